// Codes of 3 bits lie in planes: pairs of bits, and third bits (model/kv). Attention wants each as a nibble. With AVX-512 VBMI
// and GFNI this takes five instructions for 128 channels: a permutation gathers for each eight results the bytes that have their
// bits, two multishifts pick the bits, one blend joins them, and an affine map over GF(2) puts each where it belongs. The map
// also undoes the XORs of a trellis code (tq3t), as XOR is addition there. A Recipe is the tables of one type, computed at
// compile time from the places of a channel's bits.
#include "model/cpu/spread_codes.h"
#include "base/ensure.h"
#include <cstring>
#include <hwy/targets.h>

#if HWY_ARCH_X86_64
#include "model/cpu/intrinsics.h"

HWY_PUSH_ATTRIBUTES("sse2,ssse3,sse4.1,sse4.2,avx,avx2,avx512f,avx512bw,avx512vbmi,gfni")
namespace tq::cpu::vbmi {
namespace {

constexpr size_t channels = 128; // of a vector of 64 bytes, two in each

// Tables that make a vector of bytes from the planes of pairs (32 bytes) and of third bits (16 bytes).
struct Recipe {
    uint8_t gathered[64];                // bytes of the planes, eight for each eight results
    uint8_t low_bits[64], high_bits[64]; // the first bits, in these, of the four low and the four high bits of a byte
    uint8_t results[8];                  // the bits of that byte whose sum modulo 2 is bit i of the result

    // a_bit(channel) .. + 3 and b_bit(channel) .. + 3 are the bits a0 .. a3 and b0 .. b3 of a result for this channel, an even
    // one, and the next: in the planes of pairs and of third bits.
    template <class A, class B> constexpr Recipe(A a_bit, B b_bit, const uint8_t (&sums)[8])
        : gathered(), low_bits(), high_bits(), results() {
        for (int i = 0; i < 64; i++) {
            const int eight = i / 8, channel = i % 8 * 2; // of the 16 of eight results
            const bool is_pair = i % 8 < 4;
            // Pairs of 16 channels are a run; of third bits there are 8 before and 16 of them, in a run of 32.
            gathered[i] = uint8_t(is_pair ? 4 * eight + i % 4 : 32 + eight / 2 * 4 + (eight % 2 * 2 + i + 3) % 4);
            low_bits[i] = uint8_t(a_bit(channel) & 63);
            high_bits[i] = uint8_t((40 + b_bit(channel) - 4) & 63);
        }
        for (int i = 0; i < 8; i++) results[7 - i] = sums[i]; // GF2P8AFFINEQB has them in this order
    }
};

enum Bits : uint8_t { none = 0, a0 = 1, a1 = 2, a2 = 4, a3 = 8, b0 = 16, b1 = 32, b2 = 64, b3 = 128 };

constexpr int pairs(int channel) { return 2 * channel; }
constexpr int third_bits(int channel) { return channel; }
constexpr int third_bits_before(int channel) { return channel - 2; }

constexpr Recipe tq3(pairs, third_bits, {a0, a1, none, b0, a2, a3, none, b1});
constexpr Recipe tq3t(pairs, third_bits_before, {a0, a1, b0 ^ b1 ^ b2, b1, a2, a3, b1 ^ b2 ^ b3, b2});

// Loads 128 channels of a vector of d.
HWY_INLINE __m512i load_planes(const uint8_t* codes, size_t d, size_t channel) {
    if (d == channels) return _mm512_maskz_loadu_epi32(0xfff, codes);
    const __m512i pairs = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + channel / 4)));
    return _mm512_inserti32x4(pairs, _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + d / 4 + channel / 8)), 2);
}

template <const Recipe& recipe> void spread(uint32_t* words, const uint8_t* codes, size_t count, size_t d) {
    const __m512i gathered = _mm512_loadu_si512(recipe.gathered), low_bits = _mm512_loadu_si512(recipe.low_bits),
                  high_bits = _mm512_loadu_si512(recipe.high_bits), low = _mm512_set1_epi8(15);
    int64_t sums;
    std::memcpy(&sums, recipe.results, sizeof sums);
    const __m512i results = _mm512_set1_epi64(sums);
    const size_t stride = d * 3 / 8;
    for (const uint8_t* const end = codes + count * stride; codes != end; codes += stride) {
        for (size_t at = 0; at < d; at += channels, words += channels / 8) {
            const __m512i planes = load_planes(codes, d, at);
            const __m512i runs = _mm512_permutexvar_epi8(gathered, planes);
            const __m512i a = _mm512_multishift_epi64_epi8(low_bits, runs), b = _mm512_multishift_epi64_epi8(high_bits, runs);
            const __m512i bits = _mm512_ternarylogic_epi64(low, a, b, 0xca); // a if `low` is set
            _mm512_storeu_si512(words, _mm512_gf2p8affine_epi64_epi8(bits, results, 0));
        }
    }
}

} // namespace
} // namespace tq::cpu::vbmi
HWY_POP_ATTRIBUTES
#endif

namespace tq::cpu {

#if HWY_ARCH_X86_64

namespace {

bool is_there() {
#if HWY_COMPILER_GCC_ACTUAL || HWY_COMPILER_CLANG
    if (!__builtin_cpu_supports("gfni")) return false; // not all of Highway's versions ask
#endif
    return (hwy::SupportedTargets() & HWY_AVX3_DL) != 0;
}

// Detected once: in a virtual machine cpuid may take longer than a tile.
bool& is_spreading() {
    static bool value = is_there();
    return value;
}

} // namespace

bool has_spread_codes() { return is_spreading(); }

bool use_spread_codes(bool use) {
    is_spreading() = use && is_there();
    return is_spreading();
}

void spread_codes(KvType type, uint32_t* words, const uint8_t* codes, size_t count, size_t d) {
    ENSURE(d % vbmi::channels == 0, "{} channels", d);
    switch (type) {
    case KvType::tq3: return vbmi::spread<vbmi::tq3>(words, codes, count, d);
    case KvType::tq3t: return vbmi::spread<vbmi::tq3t>(words, codes, count, d);
    default: ENSURE(false, "codes of {}", name(type));
    }
}

#else

bool has_spread_codes() { return false; }
bool use_spread_codes(bool) { return false; }
void spread_codes(KvType type, uint32_t*, const uint8_t*, size_t, size_t) { ENSURE(false, "codes of {}", name(type)); }

#endif

} // namespace tq::cpu
