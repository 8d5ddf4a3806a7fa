#include "tables.h"

// KvType of model/kv/types.h, as specialisation constants give it, and the parts of a stored vector, in 32-bit words.
const uint KV_F32 = 0, KV_F16 = 1, KV_TQ4 = 2, KV_TQ3 = 3, KV_TQ2 = 4;

bool is_turboquant(uint type) { return type >= KV_TQ4; }
uint turboquant_bits(uint type) { return 6 - type; }
uint code_words(uint type) { return type == KV_F32 ? head_dim : type == KV_F16 ? head_dim / 2 : head_dim / 32 * turboquant_bits(type); }

// The level of a magnitude index. Shifts instead of a table: drivers put constant arrays into slow memory.
float magnitude_level(uint type, uint index) {
    const uint word = type == KV_TQ3 ? TQ3_LEVELS : type == KV_TQ2 ? TQ2_LEVELS : index < 4 ? TQ4_LEVELS_LOW : TQ4_LEVELS_HIGH;
    return float((word >> (8 * (index & 3))) & 0xff);
}
