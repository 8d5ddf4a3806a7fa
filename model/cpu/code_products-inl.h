// Scores and weighted sums of stored vectors of up to four bits a channel, computed on their codes, for one target.
// A stored vector is not decoded to memory, as in stored_vectors-inl.h: its levels are looked up in registers, and multiplied for
// up to four heads of a group before the next are looked up. Channels are taken in the order of codes (place_of), in which a
// vector has one nibble each of `lanes` words. Queries are brought into that order before, and sums of values back at the end
// (in_order). The scale of a vector multiplies its score, or the weight of a value, and not each level; only if bits are unequal,
// levels are multiplied, by the scale of their quarter.
#if defined(TQ_CPU_CODE_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_CODE_PRODUCTS_INL_H
#undef TQ_CPU_CODE_PRODUCTS_INL_H
#else
#define TQ_CPU_CODE_PRODUCTS_INL_H
#endif

#include "model/cpu/attention.h"
#include "model/cpu/code_levels-inl.h"
#include "model/cpu/code_tile-inl.h"
#include "model/cpu/lane_sums-inl.h"
#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

inline bool multiplies_codes(const KvCodec& codec) {
    return is_turboquant(codec.type) && code_bits(codec.type) <= 4 && codec.head_dim() % (8 * lanes) == 0;
}

// Returns the place of a channel in the order in which products are summed, lane by lane.
inline size_t place_in(const KvCodec& codec, size_t channel) {
    return multiplies_codes(codec) ? place_of(codec.type, channel) : channel;
}

// Calls use(of, h) for the heads h .. h + of - 1 of a group: as many fours as possible, then twos, then one.
template <class Use> void each_few_heads(size_t heads, const Use& use) {
    size_t h = 0;
    for (; h + 4 <= heads; h += 4) use(std::integral_constant<size_t, 4>(), h);
    if (h + 2 <= heads) use(std::integral_constant<size_t, 2>(), h), h += 2;
    if (h < heads) use(std::integral_constant<size_t, 1>(), h);
}

// Returns make(kind), the function for one kind of words; kind is an integral constant.
template <class Make> auto of_kind(CodeWords kind, const Make& make) {
#if HWY_TARGET <= HWY_AVX3
    if (kind == CodeWords::pairs) return make(std::integral_constant<CodeWords, CodeWords::pairs>());
#endif
    if (kind == CodeWords::trellis_nibbles) return make(std::integral_constant<CodeWords, CodeWords::trellis_nibbles>());
    if (kind == CodeWords::unequal) return make(std::integral_constant<CodeWords, CodeWords::unequal>());
    return make(std::integral_constant<CodeWords, CodeWords::nibbles>());
}

// sums[head][i] = q[head] . levels of words[i], of d channels and lane by lane; q is in the order of codes. Unequal bits: levels
// times the scale of their quarter, scales[i][quarter].
template <CodeWords kind, size_t d, size_t heads, size_t count>
HWY_INLINE void multiply_codes(V (&sums)[heads][count], const float* HWY_RESTRICT q, const uint32_t* const (&words)[count],
                               const NibbleLevels& levels, const float* scales) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG // they would keep queries in the registers that a trellis's indices need
    if constexpr (kind == CodeWords::trellis_nibbles) __asm__("" : "+r"(q));
#endif
    HWY_UNROLL(16)
    for (size_t i = 0; i < heads * count; i++) sums[i / count][i % count] = hn::Zero(F());
    HWY_UNROLL(8)
    for (size_t c = 0; c < d; c += 8 * lanes) {
        HWY_UNROLL(8)
        for (size_t n = 0; n < 8; n++) {
            const size_t nibble = nibble_of_vector(n);
            V key[count];
            HWY_UNROLL(4)
            for (size_t i = 0; i < count; i++) {
                key[i] = WordLevels<kind>(words[i] + word_of(kind, c), levels).of_nibble(nibble);
                if constexpr (kind == CodeWords::unequal)
                    key[i] = hn::Mul(key[i], hn::Set(F(), scales[KV_QUARTERS * i + nibble % KV_QUARTERS]));
            }
            HWY_UNROLL(4)
            for (size_t h = 0; h < heads; h++) {
                const V query = hn::LoadU(F(), q + h * d + c + n * lanes);
                HWY_UNROLL(4)
                for (size_t i = 0; i < count; i++) sums[h][i] = hn::MulAdd(query, key[i], sums[h][i]);
            }
        }
    }
}

// scores[head][p] = q[head] . k[p] for the positions of a tile; rows of scores are kv_tile long, q is in the order of codes. That
// d is constant matters: one block of channels then needs no loop, whose sums would have to be copied.
template <size_t heads, CodeWords kind, size_t d> void score_codes(float* HWY_RESTRICT scores, const float* HWY_RESTRICT q,
                                                                   const CodeTile& k, const NibbleLevels& levels, size_t count) {
    constexpr size_t step = many_registers ? 4 : 2;                      // positions that share the loads of q
    const uint32_t *next = k.words(0), *const last = k.words(count - 1); // which is read again for positions after it
    for (size_t p = 0; p < count; p += lanes) {
        V partial[heads][lanes / 4];
        for (size_t at = 0; at < lanes; at += 4) {
            V fours[heads][4];
            k.next.prefetch(p + at, 4);
            HWY_UNROLL(2)
            for (size_t first = 0; first < 4; first += step) {
                V sums[heads][step];
                const uint32_t* words[step];
                for (size_t i = 0; i < step; i++) {
                    words[i] = next;
                    next = next == last ? next : next + word_of(kind, d);
                }
                multiply_codes<kind, d>(sums, q, words, levels, k.scales + KV_QUARTERS * (p + at + first));
                HWY_UNROLL(16)
                for (size_t i = 0; i < heads * step; i++) fours[i / step][first + i % step] = sums[i / step][i % step];
            }
            HWY_UNROLL(4)
            for (size_t h = 0; h < heads; h++) partial[h][at / 4] = sums_of_blocks(fours[h]);
        }
        const V scale = kind == CodeWords::unequal ? hn::Set(F(), 1) : hn::Load(F(), k.scales + p);
        HWY_UNROLL(4)
        for (size_t h = 0; h < heads; h++) hn::StoreU(hn::Mul(sum_blocks(partial[h]), scale), F(), scores + h * kv_tile + p);
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

// y[head][c] += sum over p of weights[head][p] * v[p][c], in the order of codes. Leaves weights times scales. No values have
// unequal bits.
template <size_t heads, CodeWords kind> void add_weighted_codes(float* const* y, float* HWY_RESTRICT weights, const CodeTile& v,
                                                                const NibbleLevels& levels, size_t count, size_t d) {
    constexpr size_t step = std::min<size_t>(8, (many_registers ? 16 : 8) / heads); // vectors whose sums are in registers
    for (size_t i = 0; i < heads * kv_tile; i += lanes)
        hn::StoreU(hn::Mul(hn::LoadU(F(), weights + i), hn::Load(F(), v.scales + i % kv_tile)), F(), weights + i);
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
    // q[heads][d]; ordered[heads][d] keeps it in the order of codes.
    CodeScores(const CacheSide& k, const float* q, size_t heads, float* ordered)
        : k_(k), kind_(code_words(k.codec.type)), levels_(k.codec.type), heads_(heads), q_(ordered) {
        const size_t d = k.head_dim();
        for (size_t i = 0; i < heads * d; i++) ordered[i / d * d + place_of(k.codec.type, i % d)] = q[i];
    }

    // scores[heads][kv_tile] = q . keys, without meaning past the last key; `next` is prefetched meanwhile.
    void score(float* scores, const StoredTile& keys, const NextTile& next) const {
        const CodeTile tile(k_, keys, next);
        each_few_heads(heads_, [&](auto of, size_t h) {
            function<of>()(scores + h * kv_tile, q_ + h * k_.head_dim(), tile, levels_, keys.count);
        });
    }

  private:
    template <size_t heads> auto function() const {
        switch (k_.head_dim()) { // never 64 if that is less than a block (multiplies_codes)
        case 64: return function<heads, std::max<size_t>(64, 8 * lanes)>();
        case 128: return function<heads, 128>();
        default: return function<heads, 256>();
        }
    }
    template <size_t heads, size_t d> auto function() const {
        return of_kind(kind_, [](auto kind) { return score_codes<heads, kind, d>; });
    }

    const CacheSide& k_;
    const CodeWords kind_;
    const NibbleLevels levels_;
    const size_t heads_;
    const float* const q_;
};

// Adds weighted tiles of values to the sums of a group of heads, which are in the order of codes until in_order().
class CodeSums {
  public:
    explicit CodeSums(const CacheSide& v) : v_(v), kind_(code_words(v.codec.type)), levels_(v.codec.type) {
        for (size_t c = 0; c < v.head_dim(); c++) places_[c] = uint16_t(place_of(v.codec.type, c));
    }

    // parts[..].sums[d] += weights . values; weights[parts][kv_tile] are overwritten, and `next` is prefetched meanwhile.
    void add(std::span<Partial> parts, float* weights, const StoredTile& values, const NextTile& next) const {
        const CodeTile tile(v_, values, next);
        each_few_heads(parts.size(), [&](auto of, size_t h) {
            std::array<float*, of> y;
            for (size_t i = 0; i < of; i++) y[i] = parts[h + i].sums.data();
            function<of>()(y.data(), weights + h * kv_tile, tile, levels_, values.count, v_.head_dim());
        });
    }

    void in_order(std::span<Partial> parts) const {
        for (Partial& part : parts) {
            float ordered[256];
            std::copy_n(part.sums.data(), v_.head_dim(), ordered);
            for (size_t c = 0; c < v_.head_dim(); c++) part.sums[c] = ordered[places_[c]];
        }
    }

  private:
    template <size_t heads> auto function() const {
        return of_kind(kind_, [](auto kind) { return add_weighted_codes<heads, kind>; });
    }

    const CacheSide& v_;
    const CodeWords kind_;
    const NibbleLevels levels_;
    uint16_t places_[256];
};

#else

inline bool multiplies_codes(const KvCodec&) { return false; }
inline size_t place_in(const KvCodec&, size_t channel) { return channel; }

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
