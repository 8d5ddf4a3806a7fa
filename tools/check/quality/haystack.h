// Long texts that hide facts to ask for: filler, the facts, and others that are similar to them.
#pragma once
#include "model/engine/sampling/sampler.h"
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tq::quality {

// "The code of the silver kettle is 4821."
struct Fact {
    std::string key, value;
};
std::string tell(const Fact& fact);
std::string ask(const Fact& fact);          // "What is the code of the silver kettle?"
std::string begin_answer(const Fact& fact); // "The code of the silver kettle is ": the value follows

inline constexpr uint32_t max_facts = 900; // of one haystack: the number of different keys
inline constexpr uint32_t max_digits = 9;

struct HaystackOptions {
    uint32_t tokens = 0;        // the most that the text may take
    std::vector<double> depths; // where the facts to ask for are: the share of the filler before them, 0 to 1
    uint32_t keys = 2;          // facts at each depth
    uint32_t digits = 4;        // of a value, 1 to max_digits
    uint32_t distractors = 0;   // facts that are not asked for, each with half the key and the first digit of one that is
};

struct Needle {
    Fact fact;
    size_t depth; // its number in HaystackOptions::depths
};

struct Haystack {
    std::string text;
    std::vector<Needle> needles; // in the order of their depths
};

using CountTokens = std::function<uint32_t(std::string_view text)>;

// Filler from `sentences`, in order from a random one on, or made of simple words if there are none. The same random numbers
// give the same text. Throws Error when there are more facts than keys, or when the facts leave less than half of the tokens to
// the filler.
Haystack make_haystack(const HaystackOptions& options, std::span<const std::string> sentences, Random& random,
                       const CountTokens& count);

// The sentences of a text, or its lines if it has no sentences, without the white space around them.
std::vector<std::string> split_sentences(std::string_view text);

// A sentence without any fact to remember.
std::string filler_sentence(Random& random);
// The n-th key, "silver kettle" and so on, n < max_facts; n / 30 is the adjective's number, n % 30 the thing's.
std::string fact_key(uint32_t n);

} // namespace tq::quality
