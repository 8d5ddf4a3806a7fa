// Scores and weighted sums of stored vectors of up to four bits a channel, computed on their codes, for one target. Scores are
// sums of integers: queries have 16 bits, levels eight, so that two products are one operation and their sum is exact. A query's
// rounding adds 2^-16 of its largest channel, which is some thousandth of the error of four-bit keys. Weights stay in fp32: many
// small ones count.
#if defined(TQ_CPU_CODE_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_CODE_PRODUCTS_INL_H
#undef TQ_CPU_CODE_PRODUCTS_INL_H
#else
#define TQ_CPU_CODE_PRODUCTS_INL_H
#endif

#include "base/ensure.h"
#include "model/cpu/attention.h"
#include "model/cpu/code_levels-inl.h"
#include "model/cpu/code_tile-inl.h"
#include "model/cpu/vector-inl.h"
#include <algorithm>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

inline bool multiplies_codes(const KvCodec& codec) {
    return is_turboquant(codec.type) && !is_qjl(codec.type) && code_bits(codec.type) <= 4 && codec.head_dim() % (8 * lanes) == 0;
}

// Calls use(of, h) for the heads h .. h + of - 1 of a group: as many fours as possible, then twos, then one.
template <class Use> void each_few_heads(size_t heads, const Use& use) {
    size_t h = 0;
    for (; h + 4 <= heads; h += 4) use(std::integral_constant<size_t, 4>(), h);
    if (h + 2 <= heads) use(std::integral_constant<size_t, 2>(), h), h += 2;
    if (h < heads) use(std::integral_constant<size_t, 1>(), h);
}

// The queries of the heads of a group in integers, in the order of keys.
struct IntegerQueries {
    int16_t* q;   // [heads][d]
    float* units; // [heads]
};

// q[heads][d]; `storage` has room for heads * (d / 2 + 1) numbers.
inline IntegerQueries to_integers(float* storage, const float* q, KvType keys, size_t heads, size_t d) {
    constexpr float most = 32767;
    const IntegerQueries out{reinterpret_cast<int16_t*>(storage), storage + heads * d / 2};
    for (size_t h = 0; h < heads; h++, q += d) {
        V largest = hn::Zero(F());
        for (size_t c = 0; c < d; c += lanes) largest = hn::Max(largest, hn::Abs(hn::LoadU(F(), q + c)));
        const float unit = hn::GetLane(hn::MaxOfLanes(F(), largest)) / most,
                    per_unit = unit >= std::numeric_limits<float>::min() ? 1 / unit : 0;
        HWY_ALIGN int16_t ordered[256];
        bool finite = true;
        for (size_t c = 0; c < d; c++) {
            finite &= std::abs(q[c]) <= std::numeric_limits<float>::max();
            ordered[key_place(keys, c)] = finite ? int16_t(std::clamp(std::nearbyint(q[c] * per_unit), -most, most)) : 0;
        }
        std::memcpy(out.q + h * d, ordered, d * sizeof(int16_t));
        out.units[h] = finite ? unit : std::numeric_limits<float>::quiet_NaN();
    }
    return out;
}

using Sums = hn::Vec<I>;

// Returns in lane i of each block of four the sum of that block of v[i].
HWY_INLINE Sums sums_of_blocks(const Sums (&v)[4]) {
    const hn::Repartition<int64_t, I> pairs;
    const auto transposed = [&](Sums a, Sums b) {
        return hn::BitCast(pairs, hn::Add(hn::InterleaveLower(I(), a, b), hn::InterleaveUpper(I(), a, b)));
    };
    const auto low = transposed(v[0], v[1]), high = transposed(v[2], v[3]);
    return hn::Add(hn::BitCast(I(), hn::InterleaveLower(pairs, low, high)),
                   hn::BitCast(I(), hn::InterleaveUpper(pairs, low, high)));
}

// Returns in block i the sum of the blocks of v[i].
HWY_INLINE Sums sum_blocks(const Sums (&v)[lanes / 4]) {
#if HWY_TARGET <= HWY_AVX3
    const auto halves = [](Sums a, Sums b) { return hn::Add(hn::ConcatLowerLower(I(), b, a), hn::ConcatUpperUpper(I(), b, a)); };
    const Sums low = halves(v[0], v[1]), high = halves(v[2], v[3]);
    return hn::Add(Sums{_mm512_shuffle_i32x4(low.raw, high.raw, 0x88)}, Sums{_mm512_shuffle_i32x4(low.raw, high.raw, 0xdd)});
#elif HWY_TARGET == HWY_AVX2
    return hn::Add(hn::ConcatLowerLower(I(), v[1], v[0]), hn::ConcatUpperUpper(I(), v[1], v[0]));
#else
    return v[0];
#endif
}

// sums[head][i] = q[head] . the levels of `words`, of d channels.
template <CodeWords kind, size_t d, size_t heads>
HWY_INLINE void multiply_codes(Sums (&sums)[heads][4], size_t i, const int16_t* HWY_RESTRICT q, const uint32_t* words,
                               const NibbleLevels& levels) {
    Sums others[heads]; // of the second products of pairs, where the sum of both is not one operation
    HWY_UNROLL(4)
    for (size_t h = 0; h < heads; h++) sums[h][i] = others[h] = hn::Zero(I());
    HWY_UNROLL(8)
    for (size_t c = 0; c < d; c += 8 * lanes) {
        const HalfWordLevels<kind> key(words + c / 8, levels);
        HWY_UNROLL(4)
        for (size_t n = 0; n < 4; n++) {
            const auto level = key.of_nibble(n);
            HWY_UNROLL(4)
            for (size_t h = 0; h < heads; h++)
                sums[h][i] = hn::ReorderWidenMulAccumulate(I(), hn::LoadU(H(), q + h * d + c + n * 2 * lanes), level, sums[h][i],
                                                           others[h]);
        }
    }
    HWY_UNROLL(4)
    for (size_t h = 0; h < heads; h++) sums[h][i] = hn::Add(sums[h][i], others[h]);
}

// scores[head][p] = q[head] . k[p] for the positions of a tile; rows of scores are kv_tile long.
template <size_t heads, CodeWords kind, size_t d> void score_codes(float* HWY_RESTRICT scores, const int16_t* HWY_RESTRICT q,
                                                                   const float* HWY_RESTRICT units, const CodeTile& k,
                                                                   const NibbleLevels& levels, size_t count) {
    const uint32_t *next = k.words(0), *const last = k.words(count - 1); // which is read again for positions after it
    for (size_t p = 0; p < count; p += lanes) {
        Sums partial[heads][lanes / 4];
        for (size_t at = 0; at < lanes; at += 4) {
            Sums sums[heads][4];
            k.next.prefetch(p + at, 4);
            HWY_UNROLL(4)
            for (size_t i = 0; i < 4; i++) {
                multiply_codes<kind, d>(sums, i, q, next, levels);
                next = next == last ? next : next + d / 8;
            }
            HWY_UNROLL(4)
            for (size_t h = 0; h < heads; h++) partial[h][at / 4] = sums_of_blocks(sums[h]);
        }
        const V scale = hn::LoadU(F(), k.scales + p);
        HWY_UNROLL(4)
        for (size_t h = 0; h < heads; h++) {
            const V products = hn::ConvertTo(F(), sum_blocks(partial[h]));
            hn::StoreU(hn::Mul(products, hn::Mul(scale, hn::Set(F(), units[h]))), F(), scores + h * kv_tile + p);
        }
    }
}

// y[head][i] += sum over p of weights[head][p] * the i-th of `step` vectors of v[p], from `vector` of the words `first_word` and
// on.
template <size_t heads, CodeWords kind, size_t vector, size_t step>
HWY_INLINE void add_weighted_vectors(float* const* y, size_t at, const float* HWY_RESTRICT weights, const CodeTile& v,
                                     const NibbleLevels& levels, size_t first_word, size_t count) {
    V sums[heads][step];
    HWY_UNROLL(16)
    for (size_t i = 0; i < heads * step; i++) sums[i / step][i % step] = hn::LoadU(F(), y[i / step] + at + i % step * lanes);
    for (size_t p = 0; p < count; p++) {
        if (vector == 0 && first_word == 0) v.next.prefetch(p, 1);
        const WordLevels<kind> words(v.words(p) + first_word, levels);
        V weight[heads];
        HWY_UNROLL(4)
        for (size_t h = 0; h < heads; h++) weight[h] = hn::Set(F(), weights[h * kv_tile + p]);
        HWY_UNROLL(8)
        for (size_t n = 0; n < step; n++) {
            const V value = words.of_nibble(nibble_of_vector(vector + n));
            HWY_UNROLL(4)
            for (size_t h = 0; h < heads; h++) sums[h][n] = hn::MulAdd(weight[h], value, sums[h][n]);
        }
    }
    HWY_UNROLL(16)
    for (size_t i = 0; i < heads * step; i++) hn::StoreU(sums[i / step][i % step], F(), y[i / step] + at + i % step * lanes);
}

// y[head][c] += sum over p of weights[head][p] * v[p][c], in the order of values. Leaves weights times scales.
template <size_t heads, CodeWords kind> void add_weighted_codes(float* const* y, float* HWY_RESTRICT weights, const CodeTile& v,
                                                                const NibbleLevels& levels, size_t count, size_t d) {
    constexpr size_t step = std::min<size_t>(8, (many_registers ? 16 : 8) / heads); // vectors whose sums are in registers
    for (size_t i = 0; i < heads * kv_tile; i += lanes)
        hn::StoreU(hn::Mul(hn::LoadU(F(), weights + i), hn::LoadU(F(), v.scales + i % kv_tile)), F(), weights + i);
    for (size_t c = 0; c < d; c += 8 * lanes) {
        const auto add = [&]<size_t... part>(std::index_sequence<part...>) {
            (add_weighted_vectors<heads, kind, part * step, step>(y, c + part * step * lanes, weights, v, levels,
                                                                  word_of(kind, c), count),
             ...);
        };
        add(std::make_index_sequence<8 / step>());
    }
}

// Scores tiles of keys for the queries of a group of heads.
class CodeScores {
  public:
    // q[heads][d]; `storage` has room for heads * (d / 2 + 1) numbers.
    CodeScores(const CacheSide& k, const float* q, size_t heads, float* storage)
        : k_(k), kind_(key_words(k.codec.type)), levels_(k.codec.type, kind_), heads_(heads),
          queries_(to_integers(storage, q, k.codec.type, heads, k.head_dim())) {}

    // scores[heads][kv_tile]
    void score(float* scores, const StoredTile& keys, const NextTile& next) const {
        const size_t d = k_.head_dim();
        const CodeTile tile(k_, kind_, keys, next);
        each_few_heads(heads_, [&](auto of, size_t h) {
            function<of>()(scores + h * kv_tile, queries_.q + h * d, queries_.units + h, tile, levels_, keys.count);
        });
    }

  private:
    template <size_t heads> auto function() const {
        const auto of = [&]<size_t d>(std::integral_constant<size_t, d>) {
            return kind_ == CodeWords::trellis_nibbles ? score_codes<heads, CodeWords::trellis_nibbles, d>
                                                       : score_codes<heads, CodeWords::nibbles, d>;
        };
        switch (k_.head_dim()) {
        case 64: return of(std::integral_constant<size_t, std::max<size_t>(64, 8 * lanes)>());
        case 128: return of(std::integral_constant<size_t, 128>());
        default: return of(std::integral_constant<size_t, 256>());
        }
    }

    const CacheSide& k_;
    const CodeWords kind_;
    const NibbleLevels levels_;
    const size_t heads_;
    const IntegerQueries queries_;
};

// Adds weighted tiles of values to the sums of a group of heads, which are in the order of values until in_order().
class CodeSums {
  public:
    explicit CodeSums(const CacheSide& v) : v_(v), kind_(value_words(v.codec.type)), levels_(v.codec.type, kind_) {}

    // weights[parts][kv_tile]: overwritten.
    void add(std::span<Partial> parts, float* weights, const StoredTile& values, const NextTile& next) const {
        const CodeTile tile(v_, kind_, values, next);
        each_few_heads(parts.size(), [&](auto of, size_t h) {
            std::array<float*, of> y;
            for (size_t i = 0; i < of; i++) y[i] = parts[h + i].sums.data();
            function<of>()(y.data(), weights + h * kv_tile, tile, levels_, values.count, v_.head_dim());
        });
    }

    void in_order(std::span<Partial> parts) const {
        for (Partial& part : parts) {
            const auto ordered = part.sums;
            for (size_t c = 0; c < v_.head_dim(); c++) part.sums[c] = ordered[value_place(v_.codec.type, c)];
        }
    }

  private:
    template <size_t heads> auto function() const {
#if HWY_TARGET <= HWY_AVX3
        if (kind_ == CodeWords::pairs) return add_weighted_codes<heads, CodeWords::pairs>;
#endif
        return kind_ == CodeWords::trellis_nibbles ? add_weighted_codes<heads, CodeWords::trellis_nibbles>
                                                   : add_weighted_codes<heads, CodeWords::nibbles>;
    }

    const CacheSide& v_;
    const CodeWords kind_;
    const NibbleLevels levels_;
};

#else

inline bool multiplies_codes(const KvCodec&) { return false; }

struct CodeScores {
    CodeScores(const CacheSide&, const float*, size_t, float*) {}
    void score(float*, const StoredTile&, const NextTile&) const {}
};

struct CodeSums {
    explicit CodeSums(const CacheSide&) {}
    void add(std::span<Partial>, float*, const StoredTile&, const NextTile&) const {}
    void in_order(std::span<Partial>) const {}
};

#endif

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
