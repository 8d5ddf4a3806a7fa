// The text that commands which measure read by default: prose, talk, code, two other languages, numbers and lists, written for
// this. The first tokens, with something of most of these, are what a model's keys are measured on when it is first loaded
// (tools/tq-run/engine/engine_conditioning.h).
#pragma once

namespace tq {

inline constexpr const char* calibration_text =
    R"(The ferry left the harbor a little after six. It carried three trucks, a school class and a crate of young apple trees that
somebody on the island had ordered in spring. By the time the lighthouse came into view the wind had turned, and the captain
decided to go around the northern cape instead, which takes twenty minutes longer but spares the passengers the worst of the
swell. Nobody complained. The children counted seals, and the man with the trees told anyone who would listen that an orchard
is planted for the people who come after.

<|im_start|>user
Hi! My name is Mira and I keep my bicycle in the shed behind the bakery. Can you tell me what 17 times 24 is?<|im_end|>
<|im_start|>assistant
Nice to meet you, Mira! 17 times 24 is 408: 17 times 20 is 340, 17 times 4 is 68, and together they make 408.<|im_end|>
<|im_start|>user
Thanks. And where do I keep my bicycle?<|im_end|>
<|im_start|>assistant
You keep it in the shed behind the bakery.<|im_end|>

def median(values):
    """The middle of a sorted list, or the mean of its two middle elements."""
    ordered = sorted(values)
    n = len(ordered)
    if n == 0:
        raise ValueError("median of nothing")
    half = n // 2
    return ordered[half] if n % 2 else (ordered[half - 1] + ordered[half]) / 2

Es war einmal ein Müller, der hatte einen Esel, und der Esel war klüger als der Müller. Jeden Morgen trug er zwei Säcke zum
Fluss, und jeden Abend trug er einen zurück, denn unterwegs verkaufte er das Mehl an die Bäuerinnen im Dorf.

春天来了，河边的柳树长出了新叶。孩子们在草地上放风筝，老人坐在长椅上下棋。远处的山上还有一点雪，可是风已经不冷了。

{"order": 5521, "paid": true, "items": [{"id": 7, "price": 12.50}, {"id": 31, "price": 3.99}], "note": null}

for name, row in sorted(table.items()):
    print(f"{name:>12}  {median(row):8.3f}  {min(row):8.3f}  {max(row):8.3f}")

Water boils at a lower temperature on a mountain because the air presses on it less. At sea level the boiling point is 100
degrees Celsius; at 3000 metres it is about 90. Cooking therefore takes longer up there, although the water looks just as
lively. A pressure cooker turns the effect around: inside it the water reaches some 120 degrees before it boils.

Shopping list:
1. flour, 2 kg
2. eggs, a dozen
3. butter (unsalted), 250 g
4. yeast, lemons, brown sugar
5. something for the cat

| city   | founded | inhabitants | river   |
|--------|---------|-------------|---------|
| Alden  | 1284    | 48,210      | Tarn    |
| Brooke | 1651    | 7,933       | none    |
| Celm   | 912     | 1,204,556   | Oster   |

If a train leaves at 9:40 and travels 150 km at 100 km per hour, it needs an hour and a half and arrives at 11:10. If it waits
ten minutes on the way, it arrives at 11:20. If instead it travels the second half at 75 km per hour, that half takes an hour,
the first takes 45 minutes, and it arrives at 11:25.

Dear Sir or Madam, I am writing about the invoice of 3 March (number 20-1187), which lists two lamps although only one was
delivered. Please send the second lamp or correct the amount to 84.20. I can be reached in the mornings. Kind regards, T. Orlan

Once there was a clock that ran backwards. At first the clockmaker was ashamed of it and hung it where no customer would look,
above the door to the cellar. But people who came in through the cellar began to ask about it. One of them, a teacher, said that
it was the only clock in town that told how much time had been saved rather than how much was gone. The clockmaker thought about
this for a week. Then he built a second one, a little larger, and put it in the window, and beside it a card on which he had
written, in his best hand: this clock is right twice a day, like a stopped one, but it is far more surprised each time.
)";

} // namespace tq
