#include "kv_types.h"
#include "tables.h"

uint byte_of(uint word, uint i) { return (word >> (8 * (i & 3))) & 0xffu; }

// The level of a magnitude index of `bits` bits. Selections instead of a table: drivers put constant arrays into slow memory.
float magnitude_level(uint bits, uint index) {
    if (bits == 0) return 1.0;
    if (bits == 1) return float(byte_of(TQ2_LEVELS, index));
    if (bits == 2) return float(byte_of(TQ3_LEVELS, index));
    if (bits == 3) return float(byte_of(index < 4 ? TQ4_LEVELS_LOW : TQ4_LEVELS_HIGH, index));
    if (bits == 4) {
        const uint low = index < 4 ? TQ5_LEVELS_0 : TQ5_LEVELS_1, high = index < 12 ? TQ5_LEVELS_2 : TQ5_LEVELS_3;
        return float(byte_of(index < 8 ? low : high, index));
    }
    if (bits == 5 && index >= 16) {
        const uint low = index < 20 ? TQ6_LEVELS_4 : TQ6_LEVELS_5, high = index < 28 ? TQ6_LEVELS_6 : TQ6_LEVELS_7;
        return float(byte_of(index < 24 ? low : high, index));
    }
    return float(2 * index + 1); // 6 bits: the smaller half; 8 bits: all
}

// Of a TurboQuant type.
uint magnitude_bits(uint type) { return KV_BITS(type) - 1 - KV_QJL(type); }

// What a code stands for before its vector's or group's scale; without QJL's bit.
float code_level(uint type, uint code) {
    if (KV_FAMILY(type) == KV_AFFINE) return float(code);
    if (KV_FAMILY(type) == KV_BLOCKS) return KV_BITS(type) == 8 ? float(int(code << 24) >> 24) : float(int(code) - 8);
    const uint bits = magnitude_bits(type);
    const float level = magnitude_level(bits, code & ((1u << bits) - 1u));
    return ((code >> bits) & 1u) != 0 ? -level : level;
}

// +-1: the sign that QJL keeps of the projected residual.
float residual_sign(uint type, uint code) { return (code >> (KV_BITS(type) - 1u)) != 0 ? -1.0 : 1.0; }
