// llama.cpp's flags that tq-run lacks, and a former one of bench: which of them are ignored, and the messages for the others.
#pragma once
#include <string_view>

namespace tq {

enum class FlagValue { none, one, perhaps }; // perhaps: on, off, auto or a number from 0, if the next word is one

struct LlamaFlag {
    std::string_view names; // separated by spaces
    FlagValue value;
    std::string_view refusal; // a sentence if ignoring the flag would change the results; empty: it is ignored
    std::string_view neutral; // the value with which it has no effect
};

const LlamaFlag* find_llama_flag(std::string_view name); // nullptr if it is none of these

} // namespace tq
