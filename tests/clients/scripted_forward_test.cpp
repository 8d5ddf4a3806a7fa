// The scripted model says its script, whatever the division into runs and slots, and what its pages hold.
#include "tests/support/scripted_forward.h"
#include "tests/support/stored_pages.h"
#include <algorithm>
#include <doctest/doctest.h>

namespace tq::test {
namespace {

using Ids = std::vector<uint32_t>;

const Model& model() {
    static const Model model = make_scripted_model();
    return model;
}

Ids encode(const std::string& text) { return model().tokenizer.encode(text); }

// Answers a question with the question itself, and a text that it knows by heart with what follows.
Ids echo(std::span<const uint32_t> prompt) {
    if (prompt.empty()) return encode("one two three");
    const std::string text = model().tokenizer.decode(prompt, false);
    const size_t begin = text.rfind("user\n") + 5;
    const bool thinks = !text.ends_with("</think>\n\n");
    return encode((thinks ? "<think>\nhm\n</think>\n\n" : "") + text.substr(begin, text.find("<|im_end|>", begin) - begin));
}

Ids prompt(const std::string& question, bool think = true) {
    return encode("<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n" +
                  (think ? "" : "<think>\n\n</think>\n\n"));
}

uint32_t greatest(std::span<const float> logits) { return uint32_t(std::ranges::max_element(logits) - logits.begin()); }

// Runs ids in a slot, and what the model says after them, up to <|im_end|>.
std::string say(Forward& forward, uint32_t slot, Ids ids) {
    Ids answer;
    while (answer.size() < 100) {
        const Span span{slot, ids};
        uint32_t id = 0;
        forward.run({&span, 1}, [&](size_t, uint32_t, std::span<const float> logits) { id = greatest(logits); });
        if (model().tokenizer.is_end_of_generation(id)) break;
        answer.push_back(id);
        ids = {id};
    }
    return model().tokenizer.decode(answer, false);
}

TEST_CASE("an answer follows its prompt, with thinking and without") {
    ScriptedForward forward(model(), echo, {.slots = 2});
    CHECK(say(forward, 0, prompt("Grüße 🎈")) == "<think>\nhm\n</think>\n\nGrüße 🎈");
    CHECK(say(forward, 1, prompt("two", false)) == "two");
    CHECK(say(forward, 0, encode("<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n<think>\n")) ==
          "hm\n</think>\n\nmore");
}

TEST_CASE("what was known by heart goes on, and forced tokens lead on in the answer") {
    ScriptedForward forward(model(), echo, {.slots = 2});
    CHECK(say(forward, 0, encode("one two")) == " three");
    Ids ids = prompt("late");
    for (const uint32_t id : encode("<think>\nenough</think>")) ids.push_back(id);
    CHECK(say(forward, 1, ids) == "\n\nlate");
}

TEST_CASE("spans of a run have logits as if alone, and pages carry what was said") {
    ScriptedForward forward(model(), echo, {.slots = 3, .batch_size = 7});
    const Ids long_prompt = prompt(std::string(60, 'x'), false), short_prompt = prompt("short", false);
    const Span spans[] = {{0, long_prompt, Span::Logits::all}, {2, short_prompt}};
    size_t calls = 0, lasts = 0;
    CHECK(forward.run(spans, [&](size_t span, uint32_t i, std::span<const float> logits) {
        calls++;
        if (span == 1) lasts += i + 1 == short_prompt.size() && greatest(logits) == encode("short")[0];
    }));
    CHECK(calls == long_prompt.size() + 1);
    CHECK(lasts == 1);
    CHECK(forward.passes() == (std::max(long_prompt.size(), short_prompt.size()) + 6) / 7);

    forward.cache().fork(0, 1, forward.cache().position(0));
    const Ids x = encode("xx");
    CHECK(say(forward, 1, x) == std::string(58, 'x'));
    CHECK(say(forward, 0, encode("x")) == std::string(59, 'x')); // its last page is its own
    ScriptedForward other(model(), echo, {});
    other.cache().restore(0, uint32_t(short_prompt.size()), pages_of_slot(forward.cache(), 2));
    CHECK(say(other, 0, encode("sh")) == "ort");
}

TEST_CASE("a full cache, a stopped run and a device that fails") {
    uint64_t fails_at = 0;
    const auto before_pass = [&](uint64_t pass) {
        if (pass == fails_at) throw Error("the device was lost");
    };
    ScriptedForward forward(model(), echo,
                            {.context_size = 1024, .slots = 2, .cache_tokens = 256, .batch_size = 4, .before_pass = before_pass});
    const Ids ids = prompt("question");
    const Span both[] = {{0, ids}, {1, ids}};
    CHECK_THROWS_AS(forward.run(both, [](size_t, uint32_t, std::span<const float>) {}), OutOfMemory);
    CHECK(forward.passes() == 0);
    CHECK(forward.run(ids, [](uint32_t done, uint32_t) { return done < 4; }).empty());
    CHECK(forward.position() == 4);
    fails_at = 2;
    CHECK_THROWS_AS(forward.run(ids), Error);
    CHECK(forward.position() == 4);
}

} // namespace
} // namespace tq::test
