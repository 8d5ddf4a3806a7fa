// A tile of stored codes of up to four bits a channel, for one target. Codes of fewer bits are spread to words of nibbles if they
// cannot be read as they are.
#if defined(TQ_CPU_CODE_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TQ_CPU_CODE_TILE_INL_H
#undef TQ_CPU_CODE_TILE_INL_H
#else
#define TQ_CPU_CODE_TILE_INL_H
#endif

#include "base/half.h"
#include "model/cpu/attention.h"
#include "model/cpu/code_levels-inl.h"
#include "model/cpu/spread_codes.h"
#include "model/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tq::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

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

// Rotates each word left, which is a circular run of a trellis's codes.
template <int by, class Words> HWY_INLINE Words turned(Words runs) {
    return hn::Or(hn::ShiftLeft<by>(runs), hn::ShiftRight<32 - by>(runs));
}

// Returns words of nibbles, which are indices of levels, from `lanes` runs of eight trellis codes of two bits (TrellisPlanes).
HWY_INLINE hn::Vec<U> spread_two_bits(const uint8_t* plane) {
    const hn::Rebind<uint16_t, F> shorts;
    const hn::Repartition<uint32_t, decltype(shorts)> words;
    const auto codes = hn::LoadU(shorts, reinterpret_cast<const uint16_t*>(plane));
    const auto even = hn::BitCast(shorts, turned<2>(hn::BitCast(words, codes)));
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

// A tile of stored vectors: words of codes, and scales.
class CodeTile {
  public:
    CodeTile(const host::CacheSide& side, const StoredTile& tile, const NextTile& next)
        : next(next), words_(side.codes(tile.first, tile.head).data()),
          words_per_vector_(word_of(code_words(side.codec.type), side.head_dim())), count_(tile.count) {
        load_scales(side.scales(tile.first, tile.head).data(), side.codec.scales());
        if (code_bits(side.codec.type) == 4 || code_words(side.codec.type) == CodeWords::pairs) return;
        const auto* codes = reinterpret_cast<const uint8_t*>(words_);
        if (is_spread_in_order())
            spread_codes(side.codec.type, spread_, codes, count_, side.head_dim());
        else
            spread(side.codec.type, codes);
        words_ = spread_;
    }

    // Returns the words of a position.
    const uint32_t* words(size_t position) const { return words_ + position * words_per_vector_; }

    HWY_ALIGN float scales[kv_tile * KV_QUARTERS]; // of each vector, or of each quarter of a vector
    const NextTile next;

  private:
    void load_scales(const uint16_t* from, size_t per_vector) {
        const size_t count = count_ * per_vector, all = kv_tile * per_vector;
        size_t i = 0;
        for (; i + lanes <= count; i += lanes) hn::Store(load_fp16(reinterpret_cast<const uint8_t*>(from + i)), F(), scales + i);
        for (; i < all; i++) scales[i] = i < count ? half_to_float(from[i]) : 0;
    }

    void spread(KvType type, const uint8_t* codes) {
        const uint32_t bits = code_bits(type);
        for (size_t p = 0; p < count_; p++, codes += words_per_vector_ * bits) {
            uint32_t* const to = spread_ + p * words_per_vector_;
            if (is_trellis(type))
                spread_trellis(to, codes, bits);
            else
                spread(to, codes, bits);
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

#endif

} // namespace tq::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
