// The levels of formats whose weights are entries of grids (model/files/formats/blocks_iq.h), in steps of four columns of each
// run as they are multiplied, so that nothing is transposed. A lookup is a load of four bytes for a lane: in IQ3 four columns; in
// IQ2 and IQ1 the codes of eight, two bits each, which a shuffle turns into levels. Indices take most of the time: 32 or 64 loads
// for 256 weights. A block has eight signs for each group, in various packings. They are unpacked in vectors, a byte for each
// group, and become words of 16 bits in the lane of their run.

// Moves the upper half of the fields in each word left.
HWY_INLINE __m256i apart(__m256i v, int low, int high, int left) {
    return _mm256_or_si256(_mm256_and_si256(v, _mm256_set1_epi32(low)),
                           _mm256_slli_epi32(_mm256_and_si256(v, _mm256_set1_epi32(high)), left));
}

// Eight words of 28 bits, four times seven, as bytes.
HWY_INLINE __m256i bytes_of_sevens(__m256i v) { return apart(apart(v, 0x00003fff, 0x0fffc000, 2), 0x007f007f, 0x3f803f80, 1); }

// Adds the eighth sign to bytes with seven: the number of set signs is even.
HWY_INLINE __m256i with_even_signs(__m256i v) {
    __m256i parity = _mm256_xor_si256(v, _mm256_srli_epi32(v, 4)); // of the lower bits of each byte, as bit 7 is 0
    parity = _mm256_xor_si256(parity, _mm256_srli_epi32(parity, 2));
    parity = _mm256_xor_si256(parity, _mm256_srli_epi32(parity, 1));
    return _mm256_or_si256(v, _mm256_slli_epi32(_mm256_and_si256(parity, _mm256_set1_epi8(1)), 7));
}

// The words of IQ2_XXS that have signs and scales.
HWY_INLINE __m256i sign_words(Iq2Xxs, const uint8_t* x) {
    const __m256 first = _mm256_castsi256_ps(load_32(x + 2)), last = _mm256_castsi256_ps(load_32(x + 34));
    const __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(first, last, _MM_SHUFFLE(3, 1, 3, 1)));
    return _mm256_permute4x64_epi64(odd, _MM_SHUFFLE(3, 1, 2, 0));
}
HWY_INLINE __m256i sign_words(Iq3Xxs, const uint8_t* x) { return load_32(x + 66); }

// The signs of 32 groups.
template <class Blocks> HWY_INLINE __m256i signs_of(Blocks format, const uint8_t* x) {
    return with_even_signs(bytes_of_sevens(sign_words(format, x)));
}
HWY_INLINE __m256i signs_of(Iq2Xs, const uint8_t* x) {
    const __m256i first = _mm256_srli_epi16(load_32(x + 2), 9), last = _mm256_srli_epi16(load_32(x + 34), 9);
    return with_even_signs(_mm256_permute4x64_epi64(_mm256_packus_epi16(first, last), _MM_SHUFFLE(3, 1, 2, 0)));
}
HWY_INLINE __m256i signs_of(Iq2S, const uint8_t* x) { return load_32(x + 34); }
HWY_INLINE __m256i signs_of(Iq3S, const uint8_t* x) { return load_32(x + 74); }

// Tables of the lookups; an entry has four bytes.
inline const auto& entries_of(Iq2Xxs) { return iq2_xxs_columns; }
inline const auto& entries_of(Iq2Xs) { return iq2_xs_columns; }
inline const auto& entries_of(Iq2S) { return iq2_s_columns; }
inline const auto& entries_of(Iq1S) { return iq1_columns; }
inline const auto& entries_of(Iq1M) { return iq1_columns; }
inline const auto& entries_of(Iq3Xxs) { return iq3_xxs_grid; }
inline const auto& entries_of(Iq3S) { return iq3_s_grid; }

template <class Blocks> inline constexpr bool is_iq3 = std::is_same_v<Blocks, Iq3Xxs> || std::is_same_v<Blocks, Iq3S>;

// Indices of 16 entries, those from i on, as words of 16 bits.
HWY_INLINE __m256i indices(Iq3S, const uint8_t* x, size_t i) {
    int16_t high;
    std::memcpy(&high, x + 66 + i / 8, 2);
    const __m256i bit = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768);
    const __m256i is_set = _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16(high), bit), bit);
    return _mm256_or_si256(_mm256_cvtepu8_epi16(load_16(x + 2 + i)), _mm256_and_si256(is_set, _mm256_set1_epi16(0x100)));
}

// The entries of a block.
template <class Blocks> struct Entries {
    const std::byte* block;
    HWY_INLINE explicit Entries(const uint8_t* x) : block(reinterpret_cast<const std::byte*>(x)) {}
    HWY_INLINE uint32_t operator()(size_t i) const { return entries_of(Blocks{})[Blocks::index(block, i)]; }
};
// Indices are put together in vectors.
template <> struct Entries<Iq3S> {
    alignas(32) uint16_t index[64];
    HWY_INLINE explicit Entries(const uint8_t* x) {
        for (size_t i = 0; i < 64; i += 16) _mm256_store_si256(reinterpret_cast<__m256i*>(index + i), indices(Iq3S{}, x, i));
#ifdef __GNUC__
        asm("" : "+m"(index)); // or gcc takes each out of its vector, which takes longer than a load
#endif
    }
    HWY_INLINE uint32_t operator()(size_t i) const { return iq3_s_grid[index[i]]; }
};

// Bytes whose bit 2 says that the levels of IQ1 in step s are less by 2.
HWY_INLINE Ints less_of(Iq1S, const uint8_t* x, size_t) {
    return shift_right(each_byte(words_of_pairs(_mm256_cvtepu16_epi32(load_16(x + 34)), 0), 1), 5);
}
HWY_INLINE Ints less_of(Iq1M, const uint8_t* x, size_t s) {
    return shift_right(each_byte(words_of_bytes(in_run_order(load_16(x + 32))), 0), s < 2 ? 1 : 5);
}

// Three codes' values, in bytes.
consteval int bytes_of(uint32_t (*value)(uint32_t), uint32_t added) {
    return int((value(0) + added) | (value(1) + added) << 8 | (value(2) + added) << 16);
}

// Tables of codes; in IQ1 with bit 2 of less_of().
HWY_INLINE __m128i iq2_magnitudes() { return _mm_setr_epi32(bytes_of(iq2_magnitude, 0), 0, 0, 0); }
HWY_INLINE __m128i iq1_levels_of_codes() { return _mm_setr_epi32(bytes_of(iq1_level, 2), bytes_of(iq1_level, 0), 0, 0); }

// The levels of a block in step s, those of a format with signs without its offset.
template <class Blocks> HWY_INLINE Ints step_of_grid(Blocks format, const uint8_t* x, Ints codes, size_t s) {
    const Ints code = low_bits(shift_right(codes, 2 * int(s)), 2);
    if constexpr (HasSigns<Blocks>)
        return in_table(code, iq2_magnitudes(), 0);
    else
        return in_table(with_bits(code, less_of(format, x, s), 4), iq1_levels_of_codes(), 0);
}

// to[s] = the levels of a block in step s.
template <class Blocks> HWY_INLINE void steps_of_grid(Ints (&to)[steps], const uint8_t* x) {
    const Entries<Blocks> entry(x);
    if constexpr (is_iq3<Blocks>) {
        HWY_UNROLL(4)
        for (size_t s = 0; s < steps; s++) to[s] = words([&](size_t lane) { return entry(4 * run_of(lane) + s); });
    } else {
        // The codes of each run: those of step s are in bits 2 s and 2 s + 1 of the bytes.
        const Ints codes = words([&](size_t lane) { return entry(2 * run_of(lane)) | entry(2 * run_of(lane) + 1) << 4; });
        HWY_UNROLL(4)
        for (size_t s = 0; s < steps; s++) to[s] = step_of_grid(Blocks{}, x, codes, s);
    }
    if constexpr (HasSigns<Blocks>) {
        const Ints signs = words_of_pairs(signs_of(Blocks{}, x), 16);
        HWY_UNROLL(4)
        for (size_t s = 0; s < steps; s++) to[s] = add_bytes(negative_where(to[s], signs, s), bytes(Blocks::offset));
    }
}

// Scales of 32 weights each from their numbers: multipliers are odd.
HWY_INLINE Floats odd_times(__m256i eight, float d) {
    const __m256i odd = _mm256_add_epi32(_mm256_add_epi32(eight, eight), _mm256_set1_epi32(1));
    return pairs_of_runs(_mm256_mul_ps(_mm256_cvtepi32_ps(odd), _mm256_set1_ps(d)));
}
// Scales of 16 weights each, in bytes.
HWY_INLINE Floats odd_times(__m128i sixteen, float d) {
    return unsigned_times(in_run_order(_mm_add_epi8(_mm_add_epi8(sixteen, sixteen), _mm_set1_epi8(1))), d);
}
HWY_INLINE Floats odd_nibbles_times(const uint8_t* eight, float d) {
    const __m128i packed = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(eight)), low = _mm_set1_epi8(15);
    return odd_times(_mm_unpacklo_epi8(_mm_and_si128(packed, low), _mm_and_si128(_mm_srli_epi16(packed, 4), low)), d);
}

HWY_INLINE Floats scales_of(Iq2Xxs format, const uint8_t* x, float d) {
    return odd_times(_mm256_srli_epi32(sign_words(format, x), 28), d);
}
HWY_INLINE Floats scales_of(Iq3Xxs format, const uint8_t* x, float d) {
    return odd_times(_mm256_srli_epi32(sign_words(format, x), 28), d);
}
HWY_INLINE Floats scales_of(Iq2Xs, const uint8_t* x, float d) { return odd_nibbles_times(x + 66, d); }
HWY_INLINE Floats scales_of(Iq2S, const uint8_t* x, float d) { return odd_nibbles_times(x + 74, d); }
HWY_INLINE Floats scales_of(Iq3S, const uint8_t* x, float d) {
    int32_t nibbles;
    std::memcpy(&nibbles, x + 106, 4);
    const __m256i shifted = _mm256_srlv_epi32(_mm256_set1_epi32(nibbles), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    return odd_times(_mm256_and_si256(shifted, _mm256_set1_epi32(15)), d);
}
HWY_INLINE Floats scales_of(Iq1S, const uint8_t* x, float d) {
    const __m256i high = _mm256_cvtepu16_epi32(load_16(x + 34));
    return odd_times(_mm256_and_si256(_mm256_srli_epi32(high, 12), _mm256_set1_epi32(7)), d);
}
HWY_INLINE Floats scales_of(Iq1M, const uint8_t* x, float d) {
    const __m128i fours = _mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x + 48)));
    const __m128i even = _mm_or_si128(_mm_and_si128(fours, _mm_set1_epi32(0x7)),
                                      _mm_and_si128(_mm_slli_epi32(fours, 10), _mm_set1_epi32(0x70000)));
    const __m128i odd = _mm_or_si128(_mm_and_si128(_mm_slli_epi32(fours, 5), _mm_set1_epi32(0x700)),
                                     _mm_and_si128(_mm_slli_epi32(fours, 15), _mm_set1_epi32(0x7000000)));
    return odd_times(_mm_or_si128(even, odd), d);
}
