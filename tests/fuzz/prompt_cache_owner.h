// Whose cache the files are that the fuzz target reads.
#pragma once
#include "model/prompt_cache.h"

namespace tq::fuzz {

// One layer, two kv heads of 64, keys with scales and values without.
inline PromptCacheOwner prompt_cache_owner() {
    PromptCacheOwner owner{
        {.vocab_size = 320, .num_hidden_layers = 1, .num_attention_heads = 2, .num_key_value_heads = 2, .head_dim = 64},
        {KvType::tq2, KvType::f16},
        "0123456789abcdef",
        "fuzz"};
    owner.config.rope_theta = 1e6;
    owner.kv.conditioning = parse_key_conditioning("none");
    return owner;
}

} // namespace tq::fuzz
