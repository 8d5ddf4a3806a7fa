// Levels of codes as fp16 numbers, which hold them exactly, for the types with KV_HALF_LEVELS. A table in shared memory has the
// two levels of every pair of codes, or the level of every code if the codes of a pair have too many bits. `copies` copies of it
// lie in different banks, so that the invocations of a subgroup read it at once.

// Levels are below 128 in magnitude, and are stored over that: products with numbers up to 2^11 stay finite in sums of 16.
const float level_unit = 128.0;

const uint k_table = KV_LEVEL_TABLE_SIZE(k_type), v_table = k_type == v_type ? 0 : KV_LEVEL_TABLE_SIZE(v_type);
const uint table_size = k_table + v_table;
shared uint level_pairs[table_size == 0 ? 1 : table_size * copies]; // [index][copy]

// Returns the code of channel 0 or 1 of a pair's index.
uint code_of_pair(uint type, uint index, uint i) {
    const uint bits = KV_BITS(type), low = KV_LOW_BITS(bits);
    // the second kind
    if (KV_UNEQUAL(type) != 0) return code_of_both(type, index & ((1u << (2 * bits)) - 1u), index >> (2 * bits) << 1 | i);
    if (KV_TRELLIS(type) != 0 && bits == 2) return (index >> (2 * i)) & 15u;
    if (low == bits) return (index >> (low * i)) & ((1u << low) - 1u);
    const uint high = index >> (2 * low + i); // tq3's plane, one bit a channel; tq3t's, with the two bits before
    return ((index >> (low * i)) & 3u) | (high & (KV_TRELLIS(type) != 0 ? 7u : 1u)) << low;
}

// Returns the entry `index` of a type's table, over level_unit: the levels of a pair, or twice that of a code.
uint table_entry(uint type, uint index) {
    f16vec2 levels;
    if (KV_PAIR_BITS(type) == 0)
        levels = f16vec2(code_level(type, index) / level_unit);
    else
        levels = f16vec2(vec2(code_level(type, code_of_pair(type, index, 0)), code_level(type, code_of_pair(type, index, 1))) / level_unit);
    return packFloat2x16(levels);
}

void prepare_level_pairs() {
    for (uint index = gl_LocalInvocationID.x; index < table_size; index += lanes) {
        const uint entry = index < k_table ? table_entry(k_type, index) : table_entry(v_type, index - k_table);
        // each copy in another bank
        [[dont_unroll]] for (uint i = 0; i < copies; i++) level_pairs[index * copies + (index + i) % copies] = entry;
    }
}

// Returns the words with the codes of channels [c, c + 8) of the vector whose words begin at `base`: from their bit 0 on the low
// plane's and the high plane's, each for a trellis after the two bits before; for tq4t a word and the one before it.
uvec2 load_codes8(uint type, uint base, uint c) {
    const uint low = KV_LOW_BITS(KV_BITS(type)), high = KV_BITS(type) - low;
    if (is_nibble_trellis(type)) return uvec2(cache_words[base + c / 8], cache_words[base + (c / 32 * 4) + ((c / 8 + 3) & 3)]);
    uvec2 words = uvec2(cache_words[base + c * low / 32], high == 0 ? 0 : cache_words[base + (head_dim * low + c * high) / 32]);
    if (KV_TRELLIS(type) != 0) {
        if (high == 0) words.x = turned(words.x, (c * low - 2) & 31);
        else words = uvec2(words.x >> (c * low & 31), turned(words.y, (c * high - 2) & 31));
        return words;
    }
    if (low != 4) words.x >>= c * low & 31;
    if (high != 0) words.y >>= c * high & 31;
    return words;
}

// Returns an entry of the table: the levels of a pair, or twice that of a code.
f16vec2 table_pair(uint type, uint index) {
    const uint first = type == k_type ? 0 : k_table;
    return unpackFloat2x16(level_pairs[(first + index) * copies + gl_LocalInvocationID.x % copies]);
}
// Returns the table's entry whose index is the `bits` bits of a word from bit `from` on, plus `more`. The shift and mask give the
// offset of its copies.
f16vec2 table_pair_at(uint type, uint word, uint from, uint bits, uint more) {
    const uint by = findLSB(copies), first = ((type == k_type ? 0 : k_table) + more) * copies, mask = ((1u << bits) - 1u) << by;
    const uint turned = from >= by ? word >> (from - by) : word << (by - from);
    return unpackFloat2x16(level_pairs[first + ((turned & mask) | gl_LocalInvocationID.x % copies)]);
}
float16_t table_level(uint type, uint code) { return table_pair(type, code).x; }

// Returns the levels of channels 2 i and 2 i + 1 of these eight.
f16vec2 level_pair(uint type, uvec2 words, uint i) {
    const uint bits = KV_BITS(type), low = KV_LOW_BITS(bits), high = bits - low;
    if (is_nibble_trellis(type)) {
        const uvec2 nibbles = trellis_nibbles(words.x, words.y);
        return f16vec2(table_level(type, nibble_index(nibbles, 2 * i)), table_level(type, nibble_index(nibbles, 2 * i + 1)));
    }
    if (KV_PAIR_BITS(type) == 0 && KV_UNEQUAL(type) != 0) {
        const uint both = (words.x >> (8 * i) & 255u) | (words.y >> (2 * i) & 3u) << 8;
        return f16vec2(table_level(type, code_of_both(type, both, 2 * (i & 1))), table_level(type, code_of_both(type, both, 2 * (i & 1) + 1)));
    }
    if (KV_PAIR_BITS(type) == 0) { // one by one
        const uint mask = (1u << high) - 1u;
        const uint a = ((words.x >> (8 * i)) & 15u) | ((words.y >> (2 * high * i)) & mask) << 4,
                   b = ((words.x >> (8 * i + 4)) & 15u) | ((words.y >> (2 * high * i + high)) & mask) << 4;
        return f16vec2(table_level(type, a), table_level(type, b));
    }
    const uint kind = KV_UNEQUAL(type) != 0 ? (i & 1) << KV_PAIR_BITS(type) : 0; // of bits by quarters
    if (high == 0) return table_pair_at(type, words.x, 2 * low * i, KV_PAIR_BITS(type), kind);
    const uint high_bits = (words.y >> (2 * high * i)) & ((1u << (KV_PAIR_BITS(type) - 4u)) - 1u);
    return table_pair(type, kind + (((words.x >> (2 * low * i)) & 15u) | high_bits << 4));
}
