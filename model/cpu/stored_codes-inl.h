// Scores and weighted sums of stored vectors of up to four bits a channel, computed on their codes, for one target: each lane
// has a word of eight codes, whose levels are looked up in a register, one code of every word at a time. This permutes the
// channels; queries and sums are permuted once each way, rather than the codes every time.
#if defined(TQ_CPU_STORED_CODES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_STORED_CODES_INL_H
#undef TQ_CPU_STORED_CODES_INL_H
#else
#define TQ_CPU_STORED_CODES_INL_H
#endif

#include "base/half.h"
#include "model/cpu/attention.h"
#include "model/cpu/spread_codes.h"
#include "model/cpu/vector-inl.h"
#include "model/kv/trellis.h"
#include "model/kv/turboquant.h"
#include <algorithm>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

// True where a word's levels depend on the word before it.
inline bool is_nibble_trellis(KvType type) { return is_trellis(type) && code_bits(type) == 4; }

inline bool multiplies_codes(const KvCodec& codec) {
    if (is_trellis(codec.type) && lanes < 4) return false; // a circular run takes several words
    return is_turboquant(codec.type) && !is_qjl(codec.type) && code_bits(codec.type) <= 4 && codec.head_dim() % (8 * lanes) == 0;
}

// True where codes of fewer bits become words of nibbles in the order of the channels, as codes of four bits are.
HWY_INLINE bool is_spread_in_order() { return 8 * lanes == 128 && has_spread_codes(); }

// The order of codes is vector by vector, each of one nibble of `lanes` words: the even nibbles of these, then the odd ones.
constexpr size_t nibble_of(size_t vector) { return vector % 4 * 2 + vector / 4; }

// Returns the place of channel c in the order of codes.
HWY_INLINE size_t place_of(KvType type, size_t c) {
    const size_t nibble = code_bits(type) == 4 || is_spread_in_order() ? c % 8 : c % 2 * 4 + c % 8 / 2;
    const size_t vector = nibble % 2 * 4 + nibble / 2;
    return c / (8 * lanes) * (8 * lanes) + vector * lanes + c / 8 % lanes;
}

// The levels of nibbles: the index of a magnitude in three bits with its sign above, or the index of a trellis.
struct NibbleLevels {
    HWY_ALIGN float values[16] = {};
    HWY_ALIGN int8_t bytes[16] = {};

    explicit NibbleLevels(KvType type) {
        if (is_trellis(type))
            std::ranges::copy(trellis_levels(code_bits(type)).first(16), bytes);
        else
            set_magnitudes(codebook(magnitude_bits(type)).levels);
        for (size_t i = 0; i < 16; i++) values[i] = bytes[i];
    }

  private:
    void set_magnitudes(const std::vector<uint32_t>& magnitudes) {
        for (size_t i = 0; i < magnitudes.size(); i++) {
            bytes[i] = int8_t(magnitudes[i]);
            bytes[i + 8] = int8_t(-bytes[i]);
        }
    }
};

// The levels of words: those of nibble n of each.
#if HWY_TARGET <= HWY_AVX3

class WordLevels { // lookups use only four bits of an index
  public:
    HWY_INLINE WordLevels(hn::Vec<U> words, const NibbleLevels& levels) : words_(words), values_(hn::Load(F(), levels.values)) {}
    HWY_INLINE V of_nibble(size_t n) const {
        return V{_mm512_permutexvar_ps(hn::ShiftRightSame(words_, int(4 * n)).raw, values_.raw)};
    }

  private:
    hn::Vec<U> words_;
    V values_;
};

#elif HWY_TARGET != HWY_SCALAR

class WordLevels { // bytes of levels, four of a word at a time
  public:
    HWY_INLINE WordLevels(hn::Vec<U> words, const NibbleLevels& levels) {
        const auto table = hn::LoadDup128(S(), levels.bytes);
        const auto low = hn::Set(U(), 0x0f0f0f0f);
        even_ = hn::BitCast(I(), hn::TableLookupBytes(table, hn::BitCast(S(), hn::And(words, low))));
        odd_ = hn::BitCast(I(), hn::TableLookupBytes(table, hn::BitCast(S(), hn::And(hn::ShiftRight<4>(words), low))));
    }
    HWY_INLINE V of_nibble(size_t n) const {
        return hn::ConvertTo(F(), hn::ShiftRight<24>(hn::ShiftLeftSame(n % 2 == 0 ? even_ : odd_, int(24 - n / 2 * 8))));
    }

  private:
    using S = hn::Repartition<int8_t, F>;
    hn::Vec<I> even_, odd_;
};

#else

class WordLevels {
  public:
    WordLevels(hn::Vec<U> words, const NibbleLevels& levels) : word_(hn::GetLane(words)), values_(levels.values) {}
    V of_nibble(size_t n) const { return hn::Set(F(), values_[word_ >> 4 * n & 15]); }

  private:
    uint32_t word_;
    const float* values_;
};

#endif

// The levels of `words` as stored.
template <bool nibble_trellis> class StoredLevels : public WordLevels {
  public:
    HWY_INLINE StoredLevels(const uint32_t* words, const NibbleLevels& levels) : WordLevels(hn::LoadU(U(), words), levels) {}
};

#if HWY_TARGET != HWY_SCALAR

// Returns for each byte the one before it in its circular run of 16: two nibbles before.
HWY_INLINE hn::Vec<U> bytes_before(hn::Vec<U> words) {
    const hn::Repartition<uint8_t, F> bytes;
    const auto v = hn::BitCast(bytes, words);
    return hn::BitCast(U(), hn::CombineShiftRightBytes<15>(bytes, v, v));
}

// Of trellis codes of four bits, bit 3 of a nibble is negated where that two nibbles before is set, and that one nibble before
// negates the level (TrellisPlanes).
HWY_INLINE hn::Vec<U> turned_nibbles(hn::Vec<U> words, hn::Vec<U> before) {
    return hn::Xor(words, hn::And(before, hn::Set(U(), 0x88888888)));
}

#if HWY_TARGET <= HWY_AVX3

template <>
class StoredLevels<true> { // looks up 32 levels by the low five bits of a byte, those of even and those of odd nibbles
  public:
    HWY_INLINE StoredLevels(const uint32_t* words, const NibbleLevels& levels)
        : low_(hn::Load(F(), levels.values)), high_(hn::Neg(low_)) {
        const auto nibbles = hn::LoadU(U(), words), before = bytes_before(nibbles), turned = turned_nibbles(nibbles, before);
        even_ = with_bit_4(turned, hn::ShiftRight<3>(before));
        odd_ = with_bit_4(hn::ShiftRight<4>(turned), hn::ShiftLeft<1>(nibbles));
    }
    HWY_INLINE V of_nibble(size_t n) const {
        const auto index = hn::ShiftRightSame(n % 2 == 0 ? even_ : odd_, int(n / 2 * 8));
        return V{_mm512_permutex2var_ps(low_.raw, index.raw, high_.raw)};
    }

  private:
    static HWY_INLINE hn::Vec<U> with_bit_4(hn::Vec<U> nibbles, hn::Vec<U> others) {
        return hn::Vec<U>{_mm512_ternarylogic_epi32(_mm512_set1_epi8(15), nibbles.raw, others.raw, 0xca)};
    }

    V low_, high_;
    hn::Vec<U> even_, odd_;
};

#else

template <> class StoredLevels<true> {
  public:
    HWY_INLINE StoredLevels(const uint32_t* words, const NibbleLevels& levels) : StoredLevels(hn::LoadU(U(), words), levels) {}
    HWY_INLINE V of_nibble(size_t n) const {
        const auto sign = hn::And(hn::ShiftLeftSame(negative_, int(28 - 4 * n)), hn::Set(U(), 0x80000000));
        return hn::BitCast(F(), hn::Xor(hn::BitCast(U(), levels_.of_nibble(n)), sign));
    }

  private:
    HWY_INLINE StoredLevels(hn::Vec<U> words, const NibbleLevels& levels) : StoredLevels(words, bytes_before(words), levels) {}
    HWY_INLINE StoredLevels(hn::Vec<U> words, hn::Vec<U> before, const NibbleLevels& levels)
        : levels_(turned_nibbles(words, before), levels),
          negative_(hn::Or(hn::And(hn::ShiftRight<4>(before), hn::Set(U(), 0x08080808)),
                           hn::And(hn::ShiftLeft<4>(words), hn::Set(U(), 0x80808080)))) {}

    WordLevels levels_;
    hn::Vec<U> negative_;
};

#endif
#endif

// Loads `lanes` runs of eight codes of two bits.
HWY_INLINE hn::Vec<U> load_pairs(const uint8_t* plane) {
    return hn::PromoteTo(U(), hn::LoadU(hn::Rebind<uint16_t, F>(), reinterpret_cast<const uint16_t*>(plane)));
}

// Spreads them to words of nibbles: those of channels 0, 2, 4, 6, then 1, 3, 5, 7.
HWY_INLINE hn::Vec<U> spread_pairs(const uint8_t* plane) {
    const auto pairs = load_pairs(plane);
    return hn::And(hn::Or(pairs, hn::ShiftLeft<14>(pairs)), hn::Set(U(), 0x33333333));
}

// Spreads codes of one bit in the same way, to bit 3.
HWY_INLINE hn::Vec<U> spread_bits(const uint8_t* plane) {
    const auto bits = load_bytes(plane);
    const auto halves = hn::And(hn::Or(bits, hn::ShiftLeft<15>(bits)), hn::Set(U(), 0x00550055));
    const auto bytes = hn::And(hn::Or(halves, hn::ShiftLeft<4>(halves)), hn::Set(U(), 0x05050505));
    return hn::And(hn::Or(hn::ShiftLeft<3>(bytes), hn::ShiftLeft<5>(bytes)), hn::Set(U(), 0x88888888));
}

#if HWY_TARGET != HWY_SCALAR

// Rotates each word left, which is a circular run of a trellis's codes.
template <int by, class Words> HWY_INLINE Words turned(Words runs) {
    return hn::Or(hn::ShiftLeft<by>(runs), hn::ShiftRight<32 - by>(runs));
}

// Returns words of nibbles, which are indices of levels, from `lanes` runs of eight trellis codes of two bits (TrellisPlanes).
HWY_INLINE hn::Vec<U> spread_two_bits(const uint8_t* plane) {
    const hn::Rebind<uint16_t, F> halves;
    const hn::Repartition<uint32_t, decltype(halves)> words;
    const auto codes = hn::LoadU(halves, reinterpret_cast<const uint16_t*>(plane));
    const auto even = hn::BitCast(halves, turned<2>(hn::BitCast(words, codes)));
    return hn::Or(hn::PromoteTo(U(), even), hn::ShiftLeft<16>(hn::PromoteTo(U(), codes)));
}

// The same from the two planes of codes of three bits: the indices' bits 2 and 3 are spread together, as pairs are.
HWY_INLINE hn::Vec<U> spread_three_bits(const uint8_t* pairs, const uint8_t* third_bits) {
    const hn::Rebind<uint8_t, F> bytes;
    const hn::Repartition<uint32_t, decltype(bytes)> words;
    const auto third = hn::BitCast(words, hn::LoadU(bytes, third_bits)), last = turned<1>(third);
    const auto spread = [](auto plane) {
        const auto bits = hn::PromoteTo(U(), hn::BitCast(hn::Rebind<uint8_t, F>(), plane));
        return hn::And(hn::Or(bits, hn::ShiftLeft<15>(bits)), hn::Set(U(), 0x00550055));
    };
    const auto high = hn::Or(spread(hn::Xor(hn::Xor(third, last), turned<2>(third))), hn::ShiftLeft<1>(spread(last)));
    const auto fours = hn::And(hn::Or(high, hn::ShiftLeft<4>(high)), hn::Set(U(), 0x0f0f0f0f));
    const auto twos = hn::And(hn::Or(hn::ShiftLeft<2>(fours), hn::ShiftLeft<4>(fours)), hn::Set(U(), 0xcccccccc));
    return hn::Or(spread_pairs(pairs), twos);
}

#else // multiplies_codes() is false for these

inline hn::Vec<U> spread_two_bits(const uint8_t*) { return hn::Zero(U()); }
inline hn::Vec<U> spread_three_bits(const uint8_t*, const uint8_t*) { return hn::Zero(U()); }

#endif

// A tile of stored vectors: words of nibbles, and scales.
class CodeTile {
  public:
    CodeTile(const host::CacheSide& side, const StoredTile& tile, const StoredTile& next_tile)
        : levels(side.codec.type), next(side, next_tile), words_(side.codes(tile.first, tile.head).data()),
          words_per_vector_(side.head_dim() / 8), count_(tile.count) {
        load_scales(side.scales(tile.first, tile.head).data());
        if (code_bits(side.codec.type) == 4) return;
        const auto* codes = reinterpret_cast<const uint8_t*>(words_);
        if (is_spread_in_order())
            spread_codes(side.codec.type, spread_, codes, count_, side.head_dim());
        else
            spread(side.codec.type, codes);
        words_ = spread_;
    }

    // Returns the words of a position; past the last one, those of the last.
    const uint32_t* words(size_t position) const { return words_ + std::min(position, count_ - 1) * words_per_vector_; }

    HWY_ALIGN float scales[kv_tile];
    const NibbleLevels levels;
    const NextTile next;

  private:
    void load_scales(const uint16_t* from) {
        size_t p = 0;
        for (; p + lanes <= count_; p += lanes)
            hn::StoreU(load_halves(reinterpret_cast<const uint8_t*>(from + p)), F(), scales + p);
        for (; p < kv_tile; p++) scales[p] = p < count_ ? half_to_float(from[p]) : 0;
    }

    void spread(KvType type, const uint8_t* codes) {
        const uint32_t bits = code_bits(type);
        for (size_t p = 0; p < count_; p++, codes += words_per_vector_ * bits) {
            if (is_trellis(type))
                spread_trellis(spread_ + p * words_per_vector_, codes, bits);
            else
                spread(spread_ + p * words_per_vector_, codes, bits);
        }
    }

    void spread(uint32_t* HWY_RESTRICT to, const uint8_t* HWY_RESTRICT codes, uint32_t bits) const {
        for (size_t w = 0; w < words_per_vector_; w += lanes) {
            const auto pairs = spread_pairs(codes + 2 * w);
            const auto sign = bits == 3 ? spread_bits(codes + 2 * words_per_vector_ + w)
                                        : hn::ShiftLeft<2>(hn::And(pairs, hn::Set(U(), 0x22222222)));
            const auto index = bits == 3 ? pairs : hn::And(pairs, hn::Set(U(), 0x11111111));
            hn::StoreU(hn::Or(index, sign), U(), to + w);
        }
    }

    void spread_trellis(uint32_t* HWY_RESTRICT to, const uint8_t* HWY_RESTRICT codes, uint32_t bits) const {
        for (size_t w = 0; w < words_per_vector_; w += lanes) {
            const uint8_t* const pairs = codes + 2 * w;
            const auto index = bits == 2 ? spread_two_bits(pairs) : spread_three_bits(pairs, codes + 2 * words_per_vector_ + w);
            hn::StoreU(index, U(), to + w);
        }
    }

    const uint32_t* words_;
    const size_t words_per_vector_, count_;
    HWY_ALIGN uint32_t spread_[kv_tile * 256 / 8];
};

// Returns in lane i the sum of the lanes of v[i]; overwrites v.
HWY_INLINE V sums_of_lanes(V* v) {
#if HWY_TARGET != HWY_SCALAR
    for (size_t count = lanes / 2; count > 0; count /= 2)
        for (size_t i = 0; i < count; i++)
            v[i] = hn::Add(hn::ConcatEven(F(), v[2 * i + 1], v[2 * i]), hn::ConcatOdd(F(), v[2 * i + 1], v[2 * i]));
#endif
    return v[0];
}

// sums[head][i] = q[head] . levels of words[i], lane by lane; q is in the order of codes.
template <bool nibble_trellis, size_t heads, size_t count>
HWY_INLINE void multiply_codes(V (&sums)[heads][count], const float* HWY_RESTRICT q, const uint32_t* const (&words)[count],
                               const NibbleLevels& levels, size_t d) {
    HWY_UNROLL(16)
    for (size_t i = 0; i < heads * count; i++) sums[i / count][i % count] = hn::Zero(F());
    for (size_t c = 0; c < d; c += 8 * lanes) {
        HWY_UNROLL(8)
        for (size_t n = 0; n < 8; n++) {
            V key[count];
            HWY_UNROLL(4)
            for (size_t i = 0; i < count; i++)
                key[i] = StoredLevels<nibble_trellis>(words[i] + c / 8, levels).of_nibble(nibble_of(n));
            HWY_UNROLL(4)
            for (size_t h = 0; h < heads; h++) {
                const V query = hn::LoadU(F(), q + h * d + c + n * lanes);
                HWY_UNROLL(4)
                for (size_t i = 0; i < count; i++) sums[h][i] = hn::MulAdd(query, key[i], sums[h][i]);
            }
        }
    }
}

// scores[head][p] = q[head] . k[p] for the positions of a tile; rows of scores are kv_tile long, q is in the order of codes.
template <size_t heads, bool nibble_trellis>
void score_codes(float* HWY_RESTRICT scores, const float* HWY_RESTRICT q, const CodeTile& k, size_t count, size_t d) {
    constexpr size_t step = std::min<size_t>(lanes, many_registers ? 4 : 2); // positions that share the loads of q
    for (size_t p = 0; p < count; p += lanes) {
        V partial[heads][lanes];
        for (size_t at = 0; at < lanes; at += step) {
            V sums[heads][step];
            const uint32_t* words[step];
            for (size_t i = 0; i < step; i++) {
                words[i] = k.words(p + at + i);
                k.next.prefetch(p + at + i);
            }
            multiply_codes<nibble_trellis>(sums, q, words, k.levels, d);
            HWY_UNROLL(16)
            for (size_t i = 0; i < heads * step; i++) partial[i / step][at + i % step] = sums[i / step][i % step];
        }
        const V scale = hn::LoadU(F(), k.scales + p);
        for (size_t h = 0; h < heads; h++) hn::StoreU(hn::Mul(sums_of_lanes(partial[h]), scale), F(), scores + h * kv_tile + p);
    }
}

// y[head][i] += sum over p of weights[head][p] * the i-th of `step` vectors of v[p], from `vector` of the words `first_word` and
// on.
template <size_t heads, bool nibble_trellis, size_t vector, size_t step>
HWY_INLINE void add_weighted_vectors(float* const* y, size_t at, const float* HWY_RESTRICT weights, const CodeTile& v,
                                     size_t first_word, size_t count) {
    V sums[heads][step];
    HWY_UNROLL(16)
    for (size_t i = 0; i < heads * step; i++) sums[i / step][i % step] = hn::LoadU(F(), y[i / step] + at + i % step * lanes);
    for (size_t p = 0; p < count; p++) {
        if (vector == 0 && first_word == 0) v.next.prefetch(p);
        const StoredLevels<nibble_trellis> levels(v.words(p) + first_word, v.levels);
        V weight[heads];
        HWY_UNROLL(4)
        for (size_t h = 0; h < heads; h++) weight[h] = hn::Set(F(), weights[h * kv_tile + p]);
        HWY_UNROLL(8)
        for (size_t n = 0; n < step; n++) {
            const V value = levels.of_nibble(nibble_of(vector + n));
            HWY_UNROLL(4)
            for (size_t h = 0; h < heads; h++) sums[h][n] = hn::MulAdd(weight[h], value, sums[h][n]);
        }
    }
    HWY_UNROLL(16)
    for (size_t i = 0; i < heads * step; i++) hn::StoreU(sums[i / step][i % step], F(), y[i / step] + at + i % step * lanes);
}

// y[head][c] += sum over p of weights[head][p] * v[p][c], in the order of codes. Leaves weights times scales.
template <size_t heads, bool nibble_trellis>
void add_weighted_codes(float* const* y, float* HWY_RESTRICT weights, const CodeTile& v, size_t count, size_t d) {
    constexpr size_t step = std::min<size_t>(8, (many_registers ? 16 : 8) / heads); // vectors whose sums are in registers
    for (size_t i = 0; i < heads * kv_tile; i += lanes)
        hn::StoreU(hn::Mul(hn::LoadU(F(), weights + i), hn::LoadU(F(), v.scales + i % kv_tile)), F(), weights + i);
    for (size_t c = 0; c < d; c += 8 * lanes) {
        const auto add = [&]<size_t... part>(std::index_sequence<part...>) {
            (add_weighted_vectors<heads, nibble_trellis, part * step, step>(y, c + part * step * lanes, weights, v, c / 8, count),
             ...);
        };
        add(std::make_index_sequence<8 / step>());
    }
}

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
