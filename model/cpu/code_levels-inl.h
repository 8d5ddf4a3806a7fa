// The levels of stored codes of up to four bits a channel, looked up in a register, for one target: each lane has a word of eight
// codes, and one code of every word is looked up at a time. This permutes the channels; queries and sums are permuted once each
// way, rather than the codes every time.
#if defined(TQ_CPU_CODE_LEVELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_CODE_LEVELS_INL_H
#undef TQ_CPU_CODE_LEVELS_INL_H
#else
#define TQ_CPU_CODE_LEVELS_INL_H
#endif

#include "model/cpu/spread_codes.h"
#include "model/cpu/vector-inl.h"
#include "model/kv/trellis.h"
#include "model/kv/turboquant.h"
#include <algorithm>
#include <span>

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

// Forms in which the codes of a vector are read. nibbles: words of nibbles, which are indices of levels. trellis_nibbles: the
// same of a trellis, whose levels also depend on the nibbles before them. unequal: bytes of two codes of unequal bits, 6 and 2 or
// 5 and 3 in turn. pairs: pairs of bits, whose indices are windows of four bits.
enum class CodeWords { nibbles, trellis_nibbles, unequal, pairs };

inline CodeWords code_words(KvType type) {
    if (is_unequal(type)) return CodeWords::unequal;
    if (is_trellis(type) && code_bits(type) == 4) return CodeWords::trellis_nibbles;
    return HWY_TARGET <= HWY_AVX3 && code_bits(type) == 2 ? CodeWords::pairs : CodeWords::nibbles;
}

// Returns the word in which channel c, a multiple of 8 * lanes, begins.
constexpr size_t word_of(CodeWords kind, size_t c) { return kind == CodeWords::pairs ? c / 16 : c / 8; }

// Whether codes of fewer bits become words of nibbles in the order of the channels, as codes of four bits are.
HWY_INLINE bool is_spread_in_order() { return 8 * lanes == 128 && has_spread_codes(); }

// Returns which nibble of its word channel c is.
HWY_INLINE size_t nibble_of_channel(KvType type, size_t c) {
    const bool in_order =
        code_bits(type) == 4 || is_unequal(type) || code_words(type) == CodeWords::pairs || is_spread_in_order();
    return in_order ? c % 8 : c % 2 * 4 + c % 8 / 2;
}

// The order of codes is vector by vector, each of one nibble of `lanes` words: the even nibbles of these, then the odd ones.
constexpr size_t nibble_of_vector(size_t vector) { return vector % 4 * 2 + vector / 4; }

// Returns the place of channel c in the order of codes.
HWY_INLINE size_t place_of(KvType type, size_t c) {
    const size_t nibble = nibble_of_channel(type, c), vector = nibble % 2 * 4 + nibble / 2;
    return c / (8 * lanes) * (8 * lanes) + vector * lanes + c / 8 % lanes;
}

// The levels of nibbles: the index is a magnitude of three bits with its sign above, or that of a trellis. If bits are unequal:
// the levels of each quarter's codes, repeated to 32 numbers; for the first quarter, of six bits, only the levels that are not
// negative.
struct NibbleLevels {
    HWY_ALIGN float values[16] = {}, quarter_values[KV_QUARTERS][32] = {};
    HWY_ALIGN int8_t bytes[16] = {}, quarter_bytes[KV_QUARTERS][32] = {};

    explicit NibbleLevels(KvType type) {
        if (is_trellis(type)) {
            std::ranges::copy(trellis_levels(code_bits(type)).first(16), bytes);
        } else if (is_unequal(type)) {
            for (size_t q = 0; q < KV_QUARTERS; q++) set_magnitudes(quarter_bytes[q], magnitude_bits(type, q));
        } else {
            set_magnitudes(std::span(bytes), magnitude_bits(type), 8);
        }
        if (code_words(type) == CodeWords::pairs && !is_trellis(type)) // an index is the code before, then its own
            for (size_t i = 16; i-- > 0;) bytes[i] = bytes[(i / 4 & 1) + i / 8 * 8];
        std::ranges::copy(bytes, values);
        for (size_t q = 0; q < KV_QUARTERS; q++) std::ranges::copy(quarter_bytes[q], quarter_values[q]);
    }

  private:
    // The levels of codes whose sign is the bit above the magnitude's, or `sign`; again after the last of them.
    static void set_magnitudes(std::span<int8_t> levels, uint32_t bits, size_t sign = 0) {
        const std::vector<uint32_t>& magnitudes = codebook(bits).levels;
        if (sign == 0) sign = size_t(1) << bits;
        for (size_t i = 0; i < levels.size(); i++) {
            const size_t code = i % (2 * sign);
            if (code % sign >= magnitudes.size()) continue;
            const auto level = int8_t(magnitudes[code % sign]);
            levels[i] = (code & sign) != 0 ? int8_t(-level) : level;
        }
    }
};

#if HWY_TARGET != HWY_SCALAR // HWY_SCALAR has no vectors of several codes

// Trellis codes of four bits as indices of 32 levels, in bytes: of even and of odd nibbles. Bit 3 of a nibble is negated if bit 3
// of the nibble two before is set. Bit 3 of the nibble before, which negates the level, becomes bit 4 (TrellisPlanes).
struct TrellisIndices {
    hn::Vec<U> even, odd;

    HWY_INLINE explicit TrellisIndices(hn::Vec<U> nibbles) {
        const auto before = bytes_before(nibbles), turned = hn::Xor(nibbles, hn::And(before, hn::Set(U(), 0x88888888)));
        even = with_bit_4(turned, hn::ShiftRight<3>(before));
        odd = with_bit_4(hn::ShiftRight<4>(turned), hn::ShiftLeft<1>(nibbles));
    }

  private:
    static HWY_INLINE hn::Vec<U> with_bit_4(hn::Vec<U> nibbles, hn::Vec<U> others) {
        const auto low = hn::Set(U(), 0x0f0f0f0f);
        return hn::Or(hn::And(nibbles, low), hn::AndNot(low, others));
    }
    // Returns for each byte the one before it in its circular run of 16: two nibbles before.
    static HWY_INLINE hn::Vec<U> bytes_before(hn::Vec<U> words) {
        const hn::Repartition<uint8_t, F> bytes;
        const auto v = hn::BitCast(bytes, words);
        return hn::BitCast(U(), hn::CombineShiftRightBytes<15>(bytes, v, v));
    }
};

#if HWY_TARGET <= HWY_AVX3

// The levels of words: those of nibble n of each. Lookups use only the low bits of an index, four among 16 levels, five among 32.
template <CodeWords kind> class WordLevels {
  public:
    HWY_INLINE WordLevels(const uint32_t* words, const NibbleLevels& levels)
        : words_(hn::LoadU(U(), words)), values_(hn::Load(F(), levels.values)) {}
    HWY_INLINE V of_nibble(size_t n) const {
        return V{_mm512_permutexvar_ps(hn::ShiftRightSame(words_, int(4 * n)).raw, values_.raw)};
    }

  private:
    hn::Vec<U> words_;
    V values_;
};

template <> class WordLevels<CodeWords::trellis_nibbles> {
  public:
    HWY_INLINE WordLevels(const uint32_t* words, const NibbleLevels& levels)
        : indices_(hn::LoadU(U(), words)), low_(hn::Load(F(), levels.values)), high_(hn::Neg(low_)) {}
    HWY_INLINE V of_nibble(size_t n) const {
        const auto index = hn::ShiftRightSame(n % 2 == 0 ? indices_.even : indices_.odd, int(n / 2 * 8));
        return V{_mm512_permutex2var_ps(low_.raw, index.raw, high_.raw)};
    }

  private:
    TrellisIndices indices_;
    V low_, high_;
};

// Codes of six and of two bits, or of five and of three, in a byte: that of an even nibble is the lower. Bit 5 of six is a sign.
template <> class WordLevels<CodeWords::unequal> {
  public:
    HWY_INLINE WordLevels(const uint32_t* words, const NibbleLevels& levels) : words_(hn::LoadU(U(), words)), levels_(levels) {}
    HWY_INLINE V of_nibble(size_t n) const {
        const size_t byte = n / 2, quarter = n % 4, at = 8 * byte + (quarter == 1 ? 6 : quarter == 3 ? 5 : 0);
        const auto index = hn::ShiftRightSame(words_, int(at));
        const float* const levels = levels_.quarter_values[quarter];
        const V low = hn::Load(F(), levels);
        if (quarter % 2 != 0) return V{_mm512_permutexvar_ps(index.raw, low.raw)};
        const V level{_mm512_permutex2var_ps(low.raw, index.raw, hn::Load(F(), levels + 16).raw)};
        if (quarter != 0) return level;
        const auto sign = hn::And(hn::ShiftLeftSame(words_, int(26 - 8 * byte)), hn::Set(U(), 0x80000000));
        return hn::BitCast(F(), hn::Xor(hn::BitCast(U(), level), sign));
    }

  private:
    hn::Vec<U> words_;
    const NibbleLevels& levels_;
};

template <> class WordLevels<CodeWords::pairs> { // a lane has the 16 bits of its codes above those before, of a run of 32
  public:
    HWY_INLINE WordLevels(const uint32_t* words, const NibbleLevels& levels) : values_(hn::Load(F(), levels.values)) {
        const __m512i codes = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words)));
        const auto lane = hn::Iota(U(), 0), halves = hn::Or(hn::ShiftLeft<16>(lane), hn::Xor(lane, hn::Set(U(), 1)));
        words_ = hn::Vec<U>{_mm512_permutexvar_epi16(halves.raw, codes)};
    }
    HWY_INLINE V of_nibble(size_t n) const {
        return V{_mm512_permutexvar_ps(hn::ShiftRightSame(words_, int(14 + 2 * n)).raw, values_.raw)};
    }

  private:
    hn::Vec<U> words_;
    V values_;
};

#else

// The levels of words in bytes: those of the even and those of the odd nibbles.
template <CodeWords kind> struct ByteLevels {
    using S = hn::Repartition<int8_t, F>;
    hn::Vec<S> even, odd;

    HWY_INLINE ByteLevels(const uint32_t* words, const NibbleLevels& levels) {
        const auto table = hn::LoadDup128(S(), levels.bytes);
        const auto nibbles = hn::LoadU(U(), words);
        if constexpr (kind == CodeWords::trellis_nibbles) {
            const TrellisIndices indices(nibbles);
            even = signed_levels(table, indices.even);
            odd = signed_levels(table, indices.odd);
        } else if constexpr (kind == CodeWords::unequal) {
            const auto tables = [&](size_t q, size_t at) { return hn::LoadDup128(S(), levels.quarter_bytes[q] + at); };
            const auto third = hn::BitCast(S(), hn::Set(U(), 0xff00ff00)); // and fourth
            const auto high = hn::TestBit(hn::BitCast(S(), nibbles), hn::Set(S(), 16)),
                       negative = hn::TestBit(hn::BitCast(S(), nibbles), hn::Set(S(), 32));
            const auto first = hn::IfThenElse(high, levels_of(tables(0, 16), nibbles), levels_of(tables(0, 0), nibbles));
            even = hn::IfVecThenElse(third,
                                     hn::IfThenElse(high, levels_of(tables(2, 16), nibbles), levels_of(tables(2, 0), nibbles)),
                                     hn::IfThenElse(negative, hn::Neg(first), first));
            odd = hn::IfVecThenElse(third, levels_of(tables(3, 0), hn::ShiftRight<5>(nibbles)),
                                    levels_of(tables(1, 0), hn::ShiftRight<6>(nibbles)));
        } else {
            even = levels_of(table, nibbles);
            odd = levels_of(table, hn::ShiftRight<4>(nibbles));
        }
    }

  private:
    static HWY_INLINE hn::Vec<S> levels_of(hn::Vec<S> table, hn::Vec<U> indices) {
        return hn::TableLookupBytes(table, hn::BitCast(S(), hn::And(indices, hn::Set(U(), 0x0f0f0f0f))));
    }
    static HWY_INLINE hn::Vec<S> signed_levels(hn::Vec<S> table, hn::Vec<U> indices) {
        const auto levels = levels_of(table, indices);
        return hn::IfThenElse(hn::TestBit(hn::BitCast(S(), indices), hn::Set(S(), 16)), hn::Neg(levels), levels);
    }
};

template <CodeWords kind> class WordLevels {
  public:
    HWY_INLINE WordLevels(const uint32_t* words, const NibbleLevels& levels) : bytes_(words, levels) {}
    HWY_INLINE V of_nibble(size_t n) const {
        const auto bytes = hn::BitCast(I(), n % 2 == 0 ? bytes_.even : bytes_.odd);
        return hn::ConvertTo(F(), hn::ShiftRight<24>(hn::ShiftLeftSame(bytes, int(24 - n / 2 * 8))));
    }

  private:
    ByteLevels<kind> bytes_;
};

#endif
#endif

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
