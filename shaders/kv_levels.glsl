// Codes of the cache, and the levels that they stand for.
//
// Trellis types (tq2t, tq3t, tq4t), decoder: the level of a channel depends on its own code and on bits of the two codes before
// it. The encoder (trellis.glsl) searches for the path of codes with the least error. The decoder needs no state and no search:
// the bits of the codes before it are the state, so each channel is decoded alone, in any order, from a window of bits of a
// stored word. With h the highest bit of a code, the index of channel i is (model/kv/turboquant.md, "Trellises")
// - tq2t: the codes of i - 1 and i, a window of 4 bits that begins at bit 2 i - 2.
// - tq3t: the code's 2 low bits, and a branch of 2 bits made of h[i - 2 ... i], a window of the plane of high bits.
// - tq4t: the code, bit 3 flipped by h[i - 2], and h[i - 1] as bit 4. trellis_nibbles() does it for 8 channels of a word at once.
// Windows go around within a run (one word, for tq4t four), so its first channel has a history, too: bits_around(). A level
// depends on at most 5 bits, so kv_load.glsl looks it up by these in a table of 32 in shared memory. level_pairs.glsl has a table
// of the fp16 levels of two neighbours, whose index is the union of their windows (tq2t: 6 bits, tq3t: 8), or of one level for
// tq4t.
#include "kv_types.h"
#include "tables.h"

uint byte_of(uint word, uint i) { return (word >> (8 * (i & 3))) & 0xffu; }

// Returns the level of a magnitude index of `bits` bits. No table: drivers put constant arrays into slow memory.
float magnitude_level(uint bits, uint index) {
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
    return float(2 * index + 1); // 6 bits: the smaller half; 7 and 8 bits: all
}

// Returns the bits of a magnitude index of a TurboQuant type.
uint magnitude_bits(uint type) { return KV_BITS(type) - 1; }

// Returns the signed level of a trellis index: that of 15 - index is the negative, for tq4t that of index ^ 16.
int trellis_level(uint bits, uint index) {
    uint i, low, high;
    if (bits == 4) {
        i = index & 15u;
        low = i < 8 ? TQ4T_LEVELS_0 : TQ4T_LEVELS_2;
        high = i < 8 ? TQ4T_LEVELS_1 : TQ4T_LEVELS_3;
    } else {
        i = index < 8 ? index : 15 - index;
        low = bits == 2 ? TQ2T_LEVELS_LOW : TQ3T_LEVELS_LOW;
        high = bits == 2 ? TQ2T_LEVELS_HIGH : TQ3T_LEVELS_HIGH;
    }
    const int level = int(byte_of((i & 4u) == 0 ? low : high, i) << 24) >> 24;
    return i == index ? level : -level;
}

// Returns the branch (4 levels of tq3t, 8 of tq4t) chosen by the highest bits of a channel (bit 2) and of the two before it.
uint trellis_branch(uint bits, uint highest_bits) {
    const uint last = (highest_bits >> 1) & 1u;
    return ((highest_bits ^ (highest_bits >> 2) ^ (bits == 3 ? last : 0)) & 1u) | last << 1;
}

// tq4t, whose trellis is circular over four words of eight codes: the indices' low bits as nibbles (x), and their bit 4 as bit
// 3 of nibbles (y), from a word and the one before it.
bool is_nibble_trellis(uint type) { return KV_TRELLIS(type) != 0 && KV_BITS(type) == 4; }
uvec2 trellis_nibbles(uint word, uint before) {
    return uvec2(word ^ ((word << 8 | before >> 24) & 0x88888888u), (word << 4 | before >> 28) & 0x88888888u);
}
uint nibble_index(uvec2 nibbles, uint i) {
    return ((nibbles.x >> (4 * i & 31)) & 15u) | ((nibbles.y >> ((4 * i + 3) & 31)) & 1u) << 4;
}

// Returns `count` bits of a word from bit `at` on; bit 0 follows bit 31.
uint bits_around(uint word, uint at, uint count) {
    return (at + count <= 32 ? word >> at : word >> at | word << (32 - at)) & ((1u << count) - 1u);
}

// Returns the code of place i, whose bits are unequal, from the number that it shares with a neighbour (kv_types.h), as all codes
// are numbered.
uint code_of_both(uint type, uint both, uint i) {
    const uint first = KV_QUARTER_BITS(KV_BITS(type), i & 2u);
    return ((i & 1u) == 0 ? both & ((1u << first) - 1u) : both >> first) + KV_QUARTER_AT(KV_BITS(type), i & 3u);
}

// Returns the code of channel i, whose planes' bits are in these words; for a trellis with the bits before it that its level
// depends on, and for tq4t, with the word before for a high word, the level's index.
uint code_of_words(uint type, uint low_word, uint high_word, uint i) {
    const uint low = KV_LOW_BITS(KV_BITS(type)), high = KV_BITS(type) - low;
    if (is_nibble_trellis(type)) return nibble_index(trellis_nibbles(low_word, high_word), i);
    if (KV_UNEQUAL(type) != 0) {
        const uint first = i & ~1u, above = high == 0 ? 0 : (high_word >> (first * high & 31)) & ((1u << (2 * high)) - 1u);
        return code_of_both(type, ((low_word >> (first * low & 31)) & ((1u << (2 * low)) - 1u)) | above << (2 * low), i);
    }
    if (KV_TRELLIS(type) != 0 && high == 0) return bits_around(low_word, (2 * i - 2) & 31, 4);
    const uint code = (low_word >> (i * low & 31)) & ((1u << low) - 1u);
    if (high == 0) return code;
    if (KV_TRELLIS(type) != 0) return code | bits_around(high_word, (i - 2) & 31, 3) << low;
    return code | ((high_word >> (i * high & 31)) & ((1u << high) - 1u)) << low;
}

// Returns the level of a magnitude of `bits` bits, with the sign above it.
float signed_level(uint bits, uint code) {
    const float level = magnitude_level(bits, code & ((1u << bits) - 1u));
    return uintBitsToFloat(floatBitsToUint(level) ^ ((code << (31u - bits)) & 0x80000000u));
}

// Returns the level of a code of unequal bits.
float quarter_level(uint bits, uint code) {
    if (code < KV_QUARTER_AT(bits, 2u)) return signed_level(bits + 1, code);
    if (code < KV_QUARTER_AT(bits, 3u)) return signed_level(bits, code - KV_QUARTER_AT(bits, 2u));
    if (code < KV_QUARTER_AT(bits, 1u)) return signed_level(bits - 2, code - KV_QUARTER_AT(bits, 3u));
    return signed_level(bits - 3, code - KV_QUARTER_AT(bits, 1u));
}

// Returns a code's level, before the scale of its vector or block.
float code_level(uint type, uint code) {
    if (KV_UNEQUAL(type) != 0) return quarter_level(KV_BITS(type), code);
    if (KV_TRELLIS(type) != 0)
        return float(trellis_level(KV_BITS(type), KV_BITS(type) == 3 ? (code & 3u) | trellis_branch(3, code >> 2) << 2 : code));
    if (KV_FAMILY(type) == KV_BLOCKS) return KV_BITS(type) == 8 ? float(int(code << 24) >> 24) : float(int(code) - 8);
    return signed_level(magnitude_bits(type), code);
}
