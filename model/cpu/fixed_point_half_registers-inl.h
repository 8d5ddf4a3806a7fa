// Integer products in vectors of 256 bits, for the instruction set in whose namespace this is included: half of the lanes of a
// group after the other, and two rows at a time, since there are 16 registers. These sets differ in how they multiply digits.
// Before they include this they define
//   Products<Format>: sums of levels times digits in half of the lanes. add(s, levels, digits) takes a step, 0 first;
//     total(factors) returns them as numbers, less those of the levels' offset, divided by total_scale of their base.

namespace {

using Levels = __m256i[2][steps]; // of the lower lanes and of the upper ones

// Hides from the compiler that the factors of a loop stay the same: it would copy them to the stack, as there are too few
// registers.
HWY_INLINE void keep_in_memory() {
#ifdef __GNUC__
    asm volatile("" : : : "memory");
#endif
}

// The levels of a block.
template <class Format> HWY_INLINE void load_steps(Levels& levels, const uint8_t* block) {
    if constexpr (HasSteps<Format>) {
        Ints of[steps];
        Format::steps_of(of, block);
        for (size_t s = 0; s < steps; s++) levels[0][s] = of[s].lower, levels[1][s] = of[s].upper;
    } else {
        const Ints a = Format::levels(block, 0), b = Format::levels(block, 1), c = Format::levels(block, 2),
                   d = Format::levels(block, 3);
        transpose(levels[0], a.lower, b.lower, c.lower, d.lower);
        transpose(levels[1], a.upper, b.upper, c.upper, d.upper);
    }
}

// Turns nibbles before they are unpacked, half as many: the low ones are those of the lower lanes.
template <> HWY_INLINE void load_steps<Q4_K>(Levels& levels, const uint8_t* block) {
    __m256i packed[4];
    transpose(packed, load_32(block + 16), load_32(block + 48), load_32(block + 80), load_32(block + 112));
    HWY_UNROLL(4)
    for (size_t s = 0; s < 4; s++) {
        levels[0][s] = _mm256_and_si256(packed[s], _mm256_set1_epi8(15));
        levels[1][s] = _mm256_and_si256(_mm256_srli_epi16(packed[s], 4), _mm256_set1_epi8(15));
    }
}

// Adds the sums over half of the lanes of a group, which are exact, for one token and `rows` rows.
template <class Format, size_t rows, size_t half> HWY_INLINE void add_half(Floats* total, const Levels* const (&levels)[rows],
                                                                           const Scales* const (&scales)[rows], const int8_t* x,
                                                                           const float* factors) {
    Products<Format> products[rows];
    HWY_UNROLL(4)
    for (size_t s = 0; s < steps; s++) {
        __m256i of_step[digits];
        HWY_UNROLL(3)
        for (size_t d = 0; d < digits; d++) of_step[d] = load_bytes(x + d * group + s * 64 + half * 32);
        HWY_UNROLL(2)
        for (size_t r = 0; r < rows; r++) products[r].add(s, (*levels[r])[half][s], of_step);
    }
    factors += 8 * half;
    const __m256 x_scale = _mm256_load_ps(factors), x_sum = _mm256_load_ps(factors + sums_at);
    HWY_UNROLL(2)
    for (size_t r = 0; r < rows; r++) {
        __m256& of_row = half == 0 ? total[r].lower : total[r].upper;
        const __m256 scale = half == 0 ? scales[r]->scale.lower : scales[r]->scale.upper;
        const __m256 sum = products[r].total(factors);
        if constexpr (Format::has_minimum)
            of_row = _mm256_fmadd_ps(half == 0 ? scales[r]->minimum.lower : scales[r]->minimum.upper, x_sum, of_row);
        of_row = _mm256_fmadd_ps(sum, _mm256_mul_ps(scale, x_scale), of_row);
    }
}

template <class Format, size_t rows> HWY_INLINE void add_rows(Floats* total, const Levels* const (&levels)[rows],
                                                              const Scales* const (&scales)[rows], const int8_t* x,
                                                              const float* factors) {
    add_half<Format, rows, 0>(total, levels, scales, x, factors);
    add_half<Format, rows, 1>(total, levels, scales, x, factors);
}

// The levels of a block in memory, for several tokens.
struct Block {
    Levels levels;
    Scales scales;
};

template <class Format> HWY_INLINE void add_blocks(Floats (*total)[dots_rows], const uint8_t* const (&blocks)[dots_rows],
                                                   const FixedPoint& x, size_t i, size_t first, size_t count, size_t cols) {
    const int8_t* of_token = x.digits + (i * x.tokens + first) * digits_of_group;
    const float* factors = x.factors + (i * x.tokens + first) * factors_of_group;
    if (count == 1) {
        for (size_t r = 0; r < dots_rows; r++) {
            keep_in_memory();
            Levels levels;
            load_steps<Format>(levels, blocks[r]);
            Scales scales = Format::scales(blocks[r]);
            if (cols != group) keep_columns(scales, cols);
            add_rows<Format, 1>(&total[0][r], {&levels}, {&scales}, of_token, factors);
        }
        return;
    }
    Block decoded[dots_rows];
    for (size_t r = 0; r < dots_rows; r++) {
        load_steps<Format>(decoded[r].levels, blocks[r]);
        decoded[r].scales = Format::scales(blocks[r]);
        if (cols != group) keep_columns(decoded[r].scales, cols);
    }
    for (size_t t = 0; t < count; t++, of_token += digits_of_group, factors += factors_of_group)
        for (size_t r = 0; r < dots_rows; r += 2) {
            keep_in_memory();
            add_rows<Format, 2>(&total[t][r], {&decoded[r].levels, &decoded[r + 1].levels},
                                {&decoded[r].scales, &decoded[r + 1].scales}, of_token, factors);
        }
}

HWY_INLINE void store_total(float* sums, const Floats (&v)[dots_rows]) {
    store_sums(sums, sums_of_half_registers(v[0].lower, v[1].lower, v[2].lower, v[3].lower),
               sums_of_half_registers(v[0].upper, v[1].upper, v[2].upper, v[3].upper));
}

} // namespace
