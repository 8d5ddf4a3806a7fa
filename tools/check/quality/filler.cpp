// The words of haystacks: simple ones, so that small models know them. They are the words of the demo model's own corpus
// (tools/demo-model/words.py and memory.py).
#include "base/ensure.h"
#include "tools/check/quality/haystack.h"
#include <array>
#include <fmt/format.h>

namespace tq::quality {
namespace {

using Word = std::string_view;

constexpr std::array<Word, 30> adjectives{"amber",  "green",  "silver", "old",    "tiny",     "heavy",  "broken", "golden",
                                          "red",    "blue",   "wooden", "round",  "quiet",    "bright", "dusty",  "striped",
                                          "hollow", "narrow", "frozen", "hidden", "polished", "copper", "velvet", "rusty",
                                          "black",  "white",  "yellow", "secret", "square",   "soft"};
constexpr std::array<Word, 30> things{"kettle", "lamp",    "drum",   "ladder",  "basket", "clock",  "mirror", "wagon",
                                      "barrel", "bottle",  "chair",  "piano",   "rocket", "statue", "tower",  "bridge",
                                      "garden", "cabinet", "anchor", "lantern", "violin", "carpet", "kite",   "helmet",
                                      "door",   "box",     "key",    "safe",    "book",   "boat"};
static_assert(adjectives.size() * things.size() == max_facts);
constexpr std::array<Word, 24> names{"Mira", "Tom",  "Anna",  "Felix", "Nora",  "Oscar", "Lena",  "Hugo",
                                     "Ida",  "Max",  "Clara", "Ben",   "Ruth",  "Leo",   "Vera",  "Paul",
                                     "Emma", "Karl", "Zoe",   "Finn",  "Peter", "Lucy",  "David", "Alice"};
constexpr std::array<Word, 20> places{"market", "harbor", "forest", "library", "station",  "bakery", "mountain",
                                      "river",  "castle", "school", "farm",    "beach",    "museum", "village",
                                      "mill",   "park",   "lake",   "church",  "hospital", "airport"};
constexpr std::array<Word, 15> jobs{"baker",     "teacher", "sailor", "farmer", "doctor", "painter", "gardener", "tailor",
                                    "carpenter", "pilot",   "singer", "cook",   "nurse",  "writer",  "driver"};
constexpr std::array<Word, 16> animals{"cat",  "dog",   "fox", "horse", "rabbit", "bear", "mouse",  "duck",
                                       "goat", "sheep", "cow", "wolf",  "frog",   "pig",  "monkey", "snake"};
constexpr std::array<Word, 12> foods{"bread", "soup",   "cheese", "rice",  "cake",     "honey",
                                     "salad", "butter", "pie",    "pasta", "porridge", "pizza"};
constexpr std::array<Word, 8> furniture{"table", "chair", "bed", "shelf", "desk", "sofa", "bench", "stool"};
constexpr std::array<Word, 8> tools{"hammer", "saw", "drill", "wrench", "brush", "shovel", "rope", "knife"};
constexpr std::array<Word, 8> colors{"red", "blue", "green", "yellow", "black", "white", "brown", "pink"};
constexpr std::array<Word, 7> days{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"};
constexpr std::array<Word, 6> weathers{"sunny", "rainy", "windy", "cold", "warm", "quiet"};
constexpr std::array<Word, 6> moods{"small", "big", "happy", "sad", "hungry", "sleepy"};
constexpr std::array<Word, 6> states{"open", "closed", "full", "empty", "loud", "quiet"};
constexpr std::array<Word, 6> numbers{"two", "three", "four", "five", "six", "seven"};
constexpr std::array<Word, 8> topics{"the weather", "music",   "the garden", "football",
                                     "old books",   "cooking", "history",    "chess"};

} // namespace

std::string filler_sentence(Random& random) {
    const auto one = [&](const auto& words) { return words[random.next() % words.size()]; };
    // Chosen one by one: the order in which arguments are evaluated depends on the compiler.
    const Word name = one(names), other = one(names), place = one(places), there = one(places), animal = one(animals),
               job = one(jobs), food = one(foods), taste = one(foods);
    switch (random.next() % 12) {
    case 0: return fmt::format("The {} walked to the {}.", job, place);
    case 1: return fmt::format("{} saw a {} {} near the {}.", name, one(colors), animal, place);
    case 2: return fmt::format("It was a {} day at the {}.", one(weathers), place);
    case 3: return fmt::format("{} and {} ate {} at the {}.", name, other, food, place);
    case 4: return fmt::format("The {} slept under the {}.", animal, one(furniture));
    case 5: return fmt::format("The {} bought a {} and some {}.", job, one(tools), food);
    case 6: return fmt::format("Then {} went home and read a book.", name);
    case 7: return fmt::format("The {} ran from the {} to the {}.", animal, place, there);
    case 8: return fmt::format("{} thinks that {} is better than {}.", name, food, taste);
    case 9: return fmt::format("After {} days the {} came back from the {}.", one(numbers), job, place);
    case 10: return fmt::format("They talked about {} for a long time.", one(topics));
    default: break;
    }
    const Word day = one(days), mood = one(moods), state = one(states);
    return random.next() % 2 == 0 ? fmt::format("On {} the {} was {}.", day, place, state)
                                  : fmt::format("A {} {} sat near the {}.", mood, animal, place);
}

std::string fact_key(uint32_t n) {
    ENSURE(n < max_facts, "{}", n);
    return fmt::format("{} {}", adjectives[n / things.size()], things[n % things.size()]);
}

} // namespace tq::quality
