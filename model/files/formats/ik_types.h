// The weight formats that only ik_llama.cpp has, and those that ggml has removed, to refuse them by their names.
#pragma once
#include <cstdint>

namespace tq {

// Returns the name of one of ik_llama.cpp's own types by its number in GGUF (ggml_type in its ggml.h, August 2026), or nullptr.
const char* ik_type_name(uint32_t number);

// Returns the name of a type that ggml has had and no longer has, or nullptr.
const char* removed_type_name(uint32_t number);

} // namespace tq
