// Long texts with facts in them. A fact is a key of two words and a number. Distractors share one word of a key and the first
// digit with a fact that is asked for, because that is what a cache confuses which blurs keys. The text is filled with sentences
// up to its tokens, and facts are inserted where the tokens before are the wanted share; several facts of one depth follow each
// other by a sentence. Facts may take at most half of a text. All random choices come from one generator in a fixed order, so a
// seed gives the same text everywhere.
#include "tools/check/quality/haystack.h"
#include "base/ensure.h"
#include "base/error.h"
#include <algorithm>
#include <cmath>
#include <set>

namespace tq::quality {
namespace {

constexpr size_t longest_sentence = 400; // bytes; a longer text is cut at a space

uint32_t below(Random& random, uint64_t n) { return uint32_t(random.next() % n); }

// Facts that all have different keys.
class Facts {
  public:
    Facts(Random& random, uint32_t digits) : random_(random), digits_(digits) {}

    Fact make() {
        uint32_t key = below(random_, max_facts);
        while (!keys_.insert(key).second) key = below(random_, max_facts);
        return {fact_key(key), value("")};
    }

    // Makes a fact with the adjective or the thing of `fact`, and its first digit: a cache that blurs keys confuses the two.
    Fact make_like(const Fact& fact) {
        for (uint32_t tries = 0; tries < 200; tries++) {
            const uint32_t key = below(random_, max_facts);
            if (shared_words(fact_key(key), fact.key) != 1 || !keys_.insert(key).second) continue;
            return {fact_key(key), value(std::string_view(fact.value).substr(0, digits_ > 1 ? 1 : 0))};
        }
        return make(); // most of the similar keys are taken
    }

  private:
    static int shared_words(std::string_view a, std::string_view b) {
        const size_t end = a.find(' '), other_end = b.find(' ');
        return (a.substr(0, end) == b.substr(0, other_end) ? 1 : 0) + (a.substr(end) == b.substr(other_end) ? 1 : 0);
    }
    std::string value(std::string_view begin) {
        std::string text;
        for (uint32_t tries = 0; tries < 100; tries++) { // with few digits not all values can be different
            text = begin;
            while (text.size() < digits_) text += char('0' + (text.empty() ? 1 + below(random_, 9) : below(random_, 10)));
            if (values_.insert(text).second) break;
        }
        return text;
    }

    Random& random_;
    const uint32_t digits_;
    std::set<uint32_t> keys_;
    std::set<std::string> values_;
};

std::string with_space(const std::string& sentence) { return " " + sentence; }

// Sentences that take at most `tokens` tokens, and the number of tokens before each and after the last.
struct Filling {
    std::vector<std::string> sentences;
    std::vector<uint64_t> before{0};
};

// Sentences are counted one by one, each with the space before it. The count of the whole text may be smaller, as a tokenizer may
// join across a space, but hardly ever larger; make_haystack() of needle.cpp corrects the rest.
Filling fill(uint64_t tokens, std::span<const std::string> from, Random& random, const CountTokens& count) {
    constexpr uint32_t max_misses = 8; // consecutive sentences that were too long for the rest
    Filling filling;
    size_t next = from.empty() ? 0 : random.next() % from.size();
    for (uint32_t misses = 0; misses < max_misses;) {
        std::string sentence = from.empty() ? filler_sentence(random) : from[next++ % from.size()];
        const uint64_t end = filling.before.back() + std::max(count(with_space(sentence)), 1u);
        misses = end > tokens ? misses + 1 : 0;
        if (end > tokens) continue;
        filling.sentences.push_back(std::move(sentence));
        filling.before.push_back(end);
    }
    return filling;
}

// Returns the sentence before which fact `k` of `keys` at this depth is inserted. Facts of one depth follow one another.
size_t place(const Filling& filling, double depth, uint32_t k, uint32_t keys) {
    const auto target = uint64_t(std::llround(depth * double(filling.before.back())));
    const auto at = std::ranges::lower_bound(filling.before, target) - filling.before.begin();
    const auto last = std::ptrdiff_t(filling.sentences.size());
    return size_t(std::clamp<std::ptrdiff_t>(at + std::ptrdiff_t(k) - std::ptrdiff_t(keys - 1) / 2, 0, last));
}

struct Placed {
    size_t before;   // the number of the sentence
    uint64_t random; // the order of facts before the same sentence
    std::string text;
};

std::string join(const Filling& filling, std::vector<Placed> facts) {
    std::ranges::sort(facts, {}, [](const Placed& p) { return std::pair(p.before, p.random); });
    std::string text;
    const auto add = [&](const std::string& sentence) { text += text.empty() ? sentence : with_space(sentence); };
    size_t next = 0;
    for (size_t i = 0; i <= filling.sentences.size(); i++) {
        for (; next < facts.size() && facts[next].before == i; next++) add(facts[next].text);
        if (i < filling.sentences.size()) add(filling.sentences[i]);
    }
    return text;
}

} // namespace

std::string tell(const Fact& fact) { return fmt::format("The code of the {} is {}.", fact.key, fact.value); }
std::string ask(const Fact& fact) { return fmt::format("What is the code of the {}?", fact.key); }
std::string begin_answer(const Fact& fact) { return fmt::format("The code of the {} is ", fact.key); }

Haystack make_haystack(const HaystackOptions& options, std::span<const std::string> sentences, Random& random,
                       const CountTokens& count) {
    ENSURE(options.digits > 0 && options.digits <= max_digits && options.keys > 0 && !options.depths.empty(),
           "{} digits, {} keys, {} depths", options.digits, options.keys, options.depths.size());
    const uint64_t needles = uint64_t(options.depths.size()) * options.keys, all = needles + options.distractors;
    if (all > max_facts)
        fail("{} facts to ask for and {} distractors are more than the {} that can be made: choose fewer with --keys or "
             "--distractors",
             needles, options.distractors, max_facts);
    Haystack haystack;
    Facts facts(random, options.digits);
    std::vector<std::string> told;
    for (size_t depth = 0; depth < options.depths.size(); depth++)
        for (uint32_t k = 0; k < options.keys; k++)
            told.push_back(tell(haystack.needles.emplace_back(Needle{facts.make(), depth}).fact));
    for (uint32_t i = 0; i < options.distractors; i++) told.push_back(tell(facts.make_like(haystack.needles[i % needles].fact)));

    uint64_t taken = 0;
    for (const std::string& text : told) taken += count(with_space(text));
    if (taken > options.tokens / 2)
        fail("{} facts take {} of the {} tokens of a text, but may take at most half: choose longer texts with --lengths, or "
             "fewer facts with --keys or --distractors",
             all, taken, options.tokens);
    const Filling filling = fill(options.tokens - taken, sentences, random, count);
    std::vector<Placed> placed;
    for (size_t i = 0; i < told.size(); i++) {
        const size_t at = i < needles ? place(filling, options.depths[i / options.keys], uint32_t(i % options.keys), options.keys)
                                      : random.next() % (filling.sentences.size() + 1);
        placed.push_back({at, random.next(), std::move(told[i])});
    }
    haystack.text = join(filling, std::move(placed));
    return haystack;
}

// A sentence ends behind . ! or ? before white space, or at a line break. "3.5" and "e.g.x" do not end one. A text without any of
// these is cut at spaces, and never within a character.
std::vector<std::string> split_sentences(std::string_view text) {
    constexpr std::string_view white = " \t\r\n", ends = ".!?";
    std::vector<std::string> sentences;
    for (size_t at = 0; (at = text.find_first_not_of(white, at)) != std::string_view::npos;) {
        size_t end = at;
        while (end < text.size() && text[end] != '\n' && end - at < longest_sentence &&
               !(ends.find(text[end]) != std::string_view::npos &&
                 (end + 1 == text.size() || white.find(text[end + 1]) != std::string_view::npos)))
            end++;
        if (end - at == longest_sentence) { // at a space, or else at the end of a character
            const size_t space = text.find_last_of(white, end);
            if (space != std::string_view::npos && space > at) end = space;
            while (end < text.size() && (uint8_t(text[end]) & 0xc0) == 0x80) end++;
        } else if (end < text.size()) {
            end++;
        }
        const std::string_view part = text.substr(at, end - at);
        sentences.emplace_back(part.substr(0, part.find_last_not_of(white) + 1));
        at = end;
    }
    return sentences;
}

} // namespace tq::quality
