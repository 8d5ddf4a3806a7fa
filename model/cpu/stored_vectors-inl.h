// Decodes stored keys and values to fp32, bit for bit as decode_stored, for one target: codes to bytes, bytes to levels, levels
// to floats: channel i of a vector is level[i] * scale, with a scale for the vector, its quarters or each of its blocks.
#if defined(TQ_CPU_STORED_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_STORED_VECTORS_INL_H
#undef TQ_CPU_STORED_VECTORS_INL_H
#else
#define TQ_CPU_STORED_VECTORS_INL_H
#endif

#include "base/half.h"
#include "model/cpu/attention.h"
#include "model/cpu/vector-inl.h"
#include "model/kv/trellis.h"
#include "model/kv/turboquant.h"
#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

HWY_INLINE void load_plain(float* HWY_RESTRICT to, KvType type, const uint8_t* from, size_t d) {
    if (type == KvType::f32)
        std::memcpy(to, from, d * sizeof(float));
    else if (type == KvType::f16)
        for (size_t i = 0; i < d; i += lanes) hn::StoreU(load_fp16(from + 2 * i), F(), to + i);
    else
        for (size_t i = 0; i < d; i += lanes) hn::StoreU(load_bf16(from + 2 * i), F(), to + i);
}

#if HWY_TARGET != HWY_SCALAR // HWY_SCALAR has no vectors of 16 bytes

using B = hn::FixedTag<uint8_t, 16>;
using Bytes = hn::Vec<B>;

// Passes the codes of a plane of 4, 2 or 1 bits, 16 at a time and in order, to use(at, codes).
template <class Use> HWY_INLINE void each_nibble(const uint8_t* plane, size_t d, Use&& use) {
    for (size_t i = 0; i < d; i += 32, plane += 16) {
        const Bytes v = hn::LoadU(B(), plane), even = low_bits(v, 4), odd = low_bits(shift_right<4>(v), 4);
        use(i, hn::InterleaveLower(B(), even, odd));
        use(i + 16, hn::InterleaveUpper(B(), even, odd));
    }
}

// Interleaves four vectors, byte 4 j + n from cn, and passes the 64 bytes in order to use(at, codes).
// Codes of consecutive channels are in one byte, so shifts give vectors of every fourth channel. Two rounds of interleaving, by
// bytes and by pairs, put them in order.
template <class Use> HWY_INLINE void use_fours(size_t i, Bytes c0, Bytes c1, Bytes c2, Bytes c3, Use&& use) {
    const hn::FixedTag<uint16_t, 8> words;
    const auto low01 = hn::BitCast(words, hn::InterleaveLower(B(), c0, c1));
    const auto low23 = hn::BitCast(words, hn::InterleaveLower(B(), c2, c3));
    const auto high01 = hn::BitCast(words, hn::InterleaveUpper(B(), c0, c1));
    const auto high23 = hn::BitCast(words, hn::InterleaveUpper(B(), c2, c3));
    use(i, hn::BitCast(B(), hn::InterleaveLower(words, low01, low23)));
    use(i + 16, hn::BitCast(B(), hn::InterleaveUpper(words, low01, low23)));
    use(i + 32, hn::BitCast(B(), hn::InterleaveLower(words, high01, high23)));
    use(i + 48, hn::BitCast(B(), hn::InterleaveUpper(words, high01, high23)));
}

template <class Use> HWY_INLINE void each_pair(const uint8_t* plane, size_t d, Use&& use) {
    for (size_t i = 0; i < d; i += 64, plane += 16) {
        const Bytes v = hn::LoadU(B(), plane);
        use_fours(i, low_bits(v, 2), low_bits(shift_right<2>(v), 2), low_bits(shift_right<4>(v), 2),
                  low_bits(shift_right<6>(v), 2), use);
    }
}

// Passes the interleaved nibbles of two planes.
template <class Use> HWY_INLINE void each_nibble_of_two(const uint8_t* even, const uint8_t* odd, size_t d, Use&& use) {
    for (size_t i = 0; i < d; i += 64, even += 16, odd += 16) {
        const Bytes e = hn::LoadU(B(), even), o = hn::LoadU(B(), odd);
        use_fours(i, low_bits(e, 4), low_bits(o, 4), low_bits(shift_right<4>(e), 4), low_bits(shift_right<4>(o), 4), use);
    }
}

// Two bytes hold the bits of 16 channels: each is copied to eight bytes of a vector, and each of these tests its own bit.
template <class Use> HWY_INLINE void each_bit(const uint8_t* plane, size_t d, Use&& use) {
    HWY_ALIGN constexpr uint8_t which[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    HWY_ALIGN constexpr uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const Bytes mask = hn::Load(B(), bit), from = hn::Load(B(), which), one = hn::Set(B(), 1);
    for (size_t i = 0; i < d; i += 16, plane += 2) {
        uint16_t both;
        std::memcpy(&both, plane, 2);
        const Bytes v = hn::BitCast(B(), hn::Set(hn::FixedTag<uint16_t, 8>(), both));
        use(i, hn::IfThenElseZero(hn::TestBit(hn::TableLookupBytes(v, from), mask), one));
    }
}

// True in every other byte: of a vector of numbers, or of codes of even or of odd channels, those of the third and the fourth
// quarter.
HWY_INLINE Bytes later_quarters() { return hn::BitCast(B(), hn::Set(hn::FixedTag<uint16_t, 8>(), 0xff00)); }

// Passes codes of unequal bits to use(at, even ones, odd ones), 16 of each, from the low 8 bits of 16 numbers of two, those above
// them, and the number of channels before: of the first quarter in turn with the third, and of the second with the fourth.
template <int bits, class Use> HWY_INLINE void use_numbers(size_t at, Bytes low, Bytes above, Use&& use) {
    constexpr int first_rest = 8 - (bits + 2), third_rest = 8 - (bits + 1); // bits of the other code below bit 8
    const Bytes second = hn::Or(low_bits(shift_right<bits + 2>(low), first_rest), shift_left<first_rest>(above)),
                fourth = hn::Or(low_bits(shift_right<bits + 1>(low), third_rest), shift_left<third_rest>(above));
    use(at, hn::IfVecThenElse(later_quarters(), low_bits(low, bits + 1), low_bits(low, bits + 2)),
        hn::IfVecThenElse(later_quarters(), fourth, second));
}

// Passes those of a vector of d channels.
template <class Use> HWY_INLINE void each_unequal(uint32_t bits, const uint8_t* codes, size_t d, Use&& use) {
    HWY_ALIGN uint8_t above[128], twos[32] = {}; // a copy: 64 channels have fewer than a vector's bytes of them
    if (bits == 5) {
        std::memcpy(twos, codes + d / 2, d / 8);
        each_pair(twos, d / 2, [&](size_t at, Bytes two) { hn::Store(two, B(), above + at); });
    }
    for (size_t i = 0; i < d / 2; i += 16) {
        const Bytes low = hn::LoadU(B(), codes + i);
        if (bits == 4)
            use_numbers<4>(2 * i, low, hn::Zero(B()), use);
        else
            use_numbers<5>(2 * i, low, hn::Load(B(), above + i), use);
    }
}

// The levels of codes, in units of their scale.
// A code becomes a level without arithmetic if a table of 16 bytes has all of them: a shuffle looks up 16 at a time.
// More bits need the sign apart, or two tables. Codes of 8 bits have evenly spaced levels and are computed. Blocks of ggml's
// types have the code itself, less 8.
struct Levels {
    enum class Kind { codes, table, table_and_sign, two_tables_and_sign, odd_and_sign, uniform, nibbles } kind;
    Bytes low, high; // levels of codes 0 .. 15 and 16 .. 31

    HWY_INLINE explicit Levels(KvType type) : kind(Kind::codes), low(hn::Zero(B())), high(low) {
        if (family(type) == KV_BLOCKS && code_bits(type) == 4) kind = Kind::nibbles;
        if (!is_turboquant(type)) return;
        if (is_trellis(type)) {
            kind = code_bits(type) == 4 ? Kind::table_and_sign : Kind::table;
            low = hn::LoadU(B(), reinterpret_cast<const uint8_t*>(trellis_levels(code_bits(type)).data()));
            return;
        }
        set_magnitudes(magnitude_bits(type));
    }
    // Levels of a quarter of a type of unequal bits.
    static HWY_INLINE Levels of_quarter(KvType type, size_t quarter) {
        Levels out(KvType::f32);
        if (is_unequal(type)) out.set_magnitudes(magnitude_bits(type, quarter));
        return out;
    }

    HWY_INLINE void set_magnitudes(uint32_t magnitudes) {
        kind = magnitudes < 4 ? Kind::table : magnitudes == 4 ? Kind::table_and_sign : Kind::two_tables_and_sign;
        if (magnitudes == 6) kind = Kind::odd_and_sign;
        if (magnitudes == 7) kind = Kind::uniform;
        HWY_ALIGN int8_t table[32] = {};
        const std::vector<uint32_t>& levels = codebook(magnitudes).levels;
        for (size_t i = 0; i < std::min<size_t>(levels.size(), 32); i++) {
            table[i] = int8_t(levels[i]);
            if (kind == Kind::table) table[i + levels.size()] = int8_t(-int(levels[i]));
        }
        low = hn::Load(B(), reinterpret_cast<const uint8_t*>(table));
        high = hn::Load(B(), reinterpret_cast<const uint8_t*>(table + 16));
    }

    HWY_INLINE Bytes of(Bytes code) const {
        const hn::RebindToSigned<B> s;
        switch (kind) {
        case Kind::table: return hn::TableLookupBytes(low, code);
        case Kind::table_and_sign: return with_sign(hn::TableLookupBytes(low, low_bits(code, 4)), code, 16);
        case Kind::two_tables_and_sign: {
            const Bytes index = low_bits(code, 4);
            const auto is_high = hn::TestBit(code, hn::Set(B(), 16));
            return with_sign(hn::IfThenElse(is_high, hn::TableLookupBytes(high, index), hn::TableLookupBytes(low, index)), code,
                             32);
        }
        case Kind::odd_and_sign: return with_sign(hn::Or(shift_left<1>(low_bits(code, 6)), hn::Set(B(), 1)), code, 64);
        case Kind::uniform: { // level 2 m + 1 or its negative is 2 l + 1, l = m or ~m
            const auto code_s = hn::BitCast(s, code);
            return hn::BitCast(B(), hn::IfThenElse(hn::Lt(code_s, hn::Zero(s)), hn::Xor(code_s, hn::Set(s, 127)), code_s));
        }
        case Kind::nibbles: return hn::Sub(code, hn::Set(B(), 8));
        default: return code;
        }
    }

    static HWY_INLINE Bytes with_sign(Bytes level, Bytes code, uint8_t sign) {
        return hn::IfThenElse(hn::TestBit(code, hn::Set(B(), sign)), hn::Sub(hn::Zero(B()), level), level);
    }
};

struct StoreCodes {
    uint8_t* to;
    HWY_INLINE void operator()(size_t at, Bytes codes) const { hn::Store(codes, B(), to + at); }
};
struct StoreLevels { // a copy of the levels: stored bytes might alias a reference
    uint8_t* to;
    const Levels levels;
    HWY_INLINE void operator()(size_t at, Bytes codes) const { hn::Store(levels.of(codes), B(), to + at); }
};
template <int low> struct AddHighBits { // for codes whose low bits are stored already
    uint8_t* to;
    const Levels levels;
    HWY_INLINE void operator()(size_t at, Bytes codes) const {
        hn::Store(levels.of(hn::Or(hn::Load(B(), to + at), shift_left<low>(codes))), B(), to + at);
    }
};

HWY_INLINE void load_trellis(uint8_t* HWY_RESTRICT to, std::span<const uint32_t> words, uint32_t bits, const Levels& levels,
                             size_t d) {
    const auto* codes = reinterpret_cast<const uint8_t*>(words.data());
    const TrellisPlanes planes(bits, words);
    const auto* turned = reinterpret_cast<const uint8_t*>(planes.turned);
    if (bits == 2) return each_nibble_of_two(turned, codes, d, StoreLevels{to, levels});
    const auto* last = reinterpret_cast<const uint8_t*>(planes.last);
    if (bits == 4) {
        each_nibble(turned, d, StoreCodes{to});
        return each_nibble(last, d, AddHighBits<1>{to, levels});
    }
    each_pair(codes, d, StoreCodes{to});
    each_bit(turned, d, AddHighBits<2>{to, Levels(KvType::q8_0)}); // still codes
    each_bit(last, d, AddHighBits<3>{to, levels});
}

// levels[d] = the levels of a vector's codes.
HWY_INLINE void load_levels(uint8_t* HWY_RESTRICT to, const uint8_t* HWY_RESTRICT codes, uint32_t bits, const Levels& levels,
                            size_t d) {
    const StoreLevels whole{to, levels};
    const StoreCodes part{to};
    switch (bits) {
    case 2: return each_pair(codes, d, whole);
    case 3: each_pair(codes, d, part); return each_bit(codes + d / 4, d, AddHighBits<2>{to, levels});
    case 4: return each_nibble(codes, d, whole);
    case 5: each_nibble(codes, d, part); return each_bit(codes + d / 2, d, AddHighBits<4>{to, levels});
    case 6: each_nibble(codes, d, part); return each_pair(codes + d / 2, d, AddHighBits<4>{to, levels});
    default:
        for (size_t i = 0; i < d; i += 16) whole(i, hn::LoadU(B(), codes + i));
    }
}

// The vectors of one cache side, coded in its type.
// Levels of one type are set up once for a side and kept in registers. load() has two steps, all codes to levels in bytes, then
// all levels to floats, so that the second is one loop for every type.
class CodedVectors {
  public:
    HWY_INLINE explicit CodedVectors(const KvCodec& codec)
        : codec_(codec), levels_(codec.type), second_(Levels::of_quarter(codec.type, 1)),
          third_(Levels::of_quarter(codec.type, 2)), fourth_(Levels::of_quarter(codec.type, 3)),
          block_(codec.head_dim() / std::max(1u, codec.scales())) {}

    // to[head_dim] = the decoded vector.
    HWY_INLINE void load(float* HWY_RESTRICT to, std::span<const uint32_t> codes, std::span<const uint16_t> scales) const {
        if (is_unequal(codec_.type)) return load_unequal(to, reinterpret_cast<const uint8_t*>(codes.data()), scales);
        HWY_ALIGN uint8_t bytes[256];
        const size_t d = codec_.head_dim();
        if (is_trellis(codec_.type))
            load_trellis(bytes, codes, code_bits(codec_.type), levels_, d);
        else
            load_levels(bytes, reinterpret_cast<const uint8_t*>(codes.data()), code_bits(codec_.type), levels_, d);
        const bool is_uniform = levels_.kind == Levels::Kind::uniform;
        for (size_t at = 0, i = 0; at < d; at += block_) {
            const float scale = half_to_float(scales[i++]);
            store_floats(to + at, reinterpret_cast<const int8_t*>(bytes) + at, block_, is_uniform ? 2 * scale : scale,
                         is_uniform ? scale : 0);
        }
    }

  private:
    // to = levels * scale + half_step
    static HWY_INLINE void store_floats(float* HWY_RESTRICT to, const int8_t* levels, size_t count, float scale,
                                        float half_step) {
        const V s = hn::Set(F(), scale), z = hn::Set(F(), half_step);
        for (size_t i = 0; i < count; i += lanes) hn::StoreU(hn::MulAdd(load_floats(levels + i), s, z), F(), to + i);
    }

    HWY_INLINE void load_unequal(float* HWY_RESTRICT to, const uint8_t* codes, std::span<const uint16_t> scales) const {
        HWY_ALIGN uint8_t bytes[256];
        const size_t d = codec_.head_dim();
        const auto use = [&](size_t at, Bytes even, Bytes odd) {
            const Bytes a = hn::IfVecThenElse(later_quarters(), third_.of(even), levels_.of(even)),
                        b = hn::IfVecThenElse(later_quarters(), fourth_.of(odd), second_.of(odd));
            hn::Store(hn::InterleaveLower(B(), a, b), B(), bytes + at);
            hn::Store(hn::InterleaveUpper(B(), a, b), B(), bytes + at + 16);
        };
        each_unequal(code_bits(codec_.type), codes, d, use);
        HWY_ALIGN float of_quarters[KV_QUARTERS];
        for (size_t i = 0; i < KV_QUARTERS; i++) of_quarters[i] = half_to_float(scales[i]);
        const V by = hn::LoadDup128(F(), of_quarters);
        for (size_t i = 0; i < d; i += lanes)
            hn::StoreU(hn::Mul(load_floats(reinterpret_cast<const int8_t*>(bytes) + i), by), F(), to + i);
    }

    const KvCodec& codec_;
    const Levels levels_, second_, third_, fourth_; // of all channels, or of the quarters
    const size_t block_;                            // channels per scale
};

#else

struct CodedVectors {
    const KvCodec& codec;
    void load(float* to, std::span<const uint32_t> codes, std::span<const uint16_t> scales) const {
        decode_stored(codec, {to, codec.head_dim()}, codes, scales);
    }
};

#endif

// to[tile.count][head_dim] = the vectors of a tile, or their levels, if they have one scale each; prefetches those of `next`.
inline HWY_NOINLINE void load_vectors(float* HWY_RESTRICT to, const host::CacheSide& side, const StoredTile& tile,
                                      const NextTile& next, bool only_levels = false) {
    constexpr uint16_t one[] = {0x3c00}; // in fp16
    const CodedVectors coded{side.codec};
    host::Place at = tile.first;
    for (uint32_t p = 0; p < tile.count; p++, at.token++, to += side.head_dim()) {
        next.prefetch(p, 1);
        const auto codes = side.codes(at, tile.head);
        if (is_coded(side.codec.type))
            coded.load(to, codes, only_levels ? std::span<const uint16_t>(one) : side.scales(at, tile.head));
        else
            load_plain(to, side.codec.type, reinterpret_cast<const uint8_t*>(codes.data()), side.head_dim());
    }
}

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
