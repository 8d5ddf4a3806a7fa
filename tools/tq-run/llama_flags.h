// llama.cpp's flags that tq-run does not have, and one that bench had: which of them do no harm, and what to say of the others.
#pragma once
#include <string_view>

namespace tq {

enum class FlagValue { none, one, perhaps }; // perhaps: on, off, auto or a number from 0, where the next word is one

struct LlamaFlag {
    std::string_view names; // separated by spaces
    FlagValue value;
    std::string_view refusal; // a sentence where ignoring the flag would change the results; empty: it goes without effect
    std::string_view neutral; // the value with which it changes nothing after all
};

const LlamaFlag* find_llama_flag(std::string_view name); // nullptr where it is none of these

} // namespace tq
