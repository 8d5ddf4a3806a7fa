// The owner of the cache files that the fuzz targets read.
#pragma once
#include "model/files/prompt_cache.h"

namespace tq::fuzz {

// The owner of a cache of one layer and two kv heads of 64; `kind` chooses the types of keys and values.
inline CacheOwner prompt_cache_owner(uint8_t kind) {
    const size_t types = kv_types.size();
    CacheOwner owner{
        {.vocab_size = 320, .num_hidden_layers = 1, .num_attention_heads = 2, .num_key_value_heads = 2, .head_dim = 64},
        {kv_types[kind % types].type, values_beside(kv_types[(kind * 5 + 1) % types].type)},
        "0123456789abcdef",
        "fuzz",
        "fuzz"};
    owner.config.rope_theta = 1e6;
    owner.kv.conditioning = parse_key_conditioning("none");
    return owner;
}

} // namespace tq::fuzz
