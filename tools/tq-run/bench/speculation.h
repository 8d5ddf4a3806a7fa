// tq-run bench --spec: what speculative decoding gains over plain decoding in the same run, after checking that both give the
// same tokens.
#pragma once
#include "tools/tq-run/bench/result.h"

namespace tq::bench {

// A prompt, and the answer that is generated after it. A text that repeats shows what a lookup can gain; a text that does not
// repeat shows what it may cost.
struct SpecText {
    std::string name;
    std::vector<uint32_t> prompt;
    std::vector<uint32_t> answer; // is generated whatever the model's choice; empty: its own most probable tokens
};

// Returns `ids` as prompt with three answers of `tokens` tokens: a copy of it with one edit in some 24 tokens, the same in random
// order, and the model's own.
std::vector<SpecText> spec_texts(const std::vector<uint32_t>& ids, uint32_t tokens);

// `count` ids below vocab_size, a few of which are frequent, as in a text.
std::vector<uint32_t> text_like_ids(uint32_t count, uint32_t vocab_size);

int run_speculation(const Arguments& arguments, Console& console);

} // namespace tq::bench
