// The bytes of the codec: against a second implementation written only from turboquant.md, against golden vectors, and the same
// on every machine.
#include "base/half.h"
#include "tests/support/codec_golden.h"
#include "tests/support/document_codec.h"
#include "tools/check/conformance/vectors/codec_vectors.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <doctest/doctest.h>
#include <hwy/targets.h>
#include <limits>
#include <set>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

using namespace tq;
using namespace tq::conformance;
using namespace tq::test;

namespace {

constexpr uint32_t head_dims[] = {64, 128, 256};

KvCodec wht_codec(KvType type, uint32_t head_dim, ScaleRule rule = ScaleRule::unbiased) {
    return {type, rule, make_rotation(RotationKind::wht, 0, KvSide::key, head_dim, type)};
}

double dot(std::span<const float> a, std::span<const float> b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); i++) sum += double(a[i]) * double(b[i]);
    return sum;
}

bool same(const Stored& stored, const DocumentStored& document) {
    for (size_t i = 0; i < document.codes.size(); i++)
        if (uint8_t(stored.codes[i / 4] >> (8 * (i % 4))) != document.codes[i]) return false;
    return document.codes.size() == stored.codes.size() * 4 && stored.scales == document.scales;
}

uint64_t fnv1a(uint64_t hash, uint32_t word) {
    for (int i = 0; i < 4; i++) hash = (hash ^ (word >> (8 * i) & 0xff)) * 0x100000001b3;
    return hash;
}

// The hash of the bytes of `rounds` vectors of every kind with every codec, of equal or of unequal bits, and head_dim.
uint64_t hash_of_codes(uint32_t rounds, bool unequal = false) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const uint32_t d : head_dims) {
        const std::vector<float> x = codec_vectors(rounds * codec_vector_kinds, d, rotation_signs(3, KvSide::value), d);
        for (const KvCodec& codec : all_codecs(d, 3, KvSide::value)) {
            if (is_unequal(codec.type) != unequal) continue;
            const Stored stored = encoded(codec, x);
            for (const uint32_t word : stored.codes) hash = fnv1a(hash, word);
            for (const uint16_t scale : stored.scales) hash = fnv1a(hash, scale);
        }
    }
    return hash;
}

} // namespace

TEST_CASE("bytes per vector") {
    struct Row {
        KvType type;
        uint32_t bytes[3], scales;
    };
    const Row rows[] = {{KvType::f32, {256, 512, 1024}, 0}, {KvType::f16, {128, 256, 512}, 0}, {KvType::bf16, {128, 256, 512}, 0},
                        {KvType::tq8, {66, 130, 258}, 1},   {KvType::tq6, {50, 98, 194}, 1},   {KvType::tq5, {42, 82, 162}, 1},
                        {KvType::tq4, {34, 66, 130}, 1},    {KvType::tq3, {26, 50, 98}, 1},    {KvType::tq2, {18, 34, 66}, 1},
                        {KvType::q8_0, {68, 136, 272}, 4},  {KvType::q4_0, {36, 72, 144}, 4},  {KvType::tq3t, {26, 50, 98}, 1},
                        {KvType::tq2t, {18, 34, 66}, 1},    {KvType::tq4t, {34, 66, 130}, 1},  {KvType::tq4u, {40, 72, 136}, 4},
                        {KvType::tq5u, {48, 88, 168}, 4}};
    CHECK(std::size(rows) == kv_types.size());
    for (const Row& row : rows) {
        CAPTURE(std::string(name(row.type)));
        for (int i = 0; i < 3; i++) CHECK(kv_vector_bytes(row.type, head_dims[i]) == row.bytes[i]);
        CHECK(scale_count(row.type, 128) == row.scales);
        CHECK(code_words(row.type, 128) * 4 + row.scales * 2 == row.bytes[1]);
    }
}

TEST_CASE("rotation signs are these, whoever computes them, and look like coin tosses") {
    CHECK(rotation_signs(0, KvSide::key) ==
          Signs{0x64625032, 0xd9c0799c, 0xaf362e10, 0x7fa88912, 0xc4671b39, 0xf1d2eee4, 0x867a4029, 0xa3772475});
    CHECK(rotation_signs(0, KvSide::value) ==
          Signs{0xee3e862c, 0x88cc3672, 0x2de4afb5, 0x7e785fa2, 0x991e27d9, 0x8051c7f4, 0xb0c40637, 0xef6cfcab});
    CHECK(rotation_signs(1, KvSide::key) ==
          Signs{0xaa9816a0, 0xbca2a091, 0xa60e7ff2, 0x511a119c, 0x5a3ab2d1, 0x39ecfb7c, 0x77ece360, 0xe25f65ce});
    CHECK(rotation_signs(35, KvSide::value) ==
          Signs{0x392fbd08, 0x20bb001a, 0xe06dfc7e, 0xd6736924, 0x83a4c6c7, 0x6e6a165d, 0xed7fc1e5, 0x952557dc});

    std::set<Signs> different;
    std::array<int, 256> negated{};
    for (uint32_t layer = 0; layer < 64; layer++)
        for (const KvSide side : {KvSide::key, KvSide::value}) {
            const Signs signs = rotation_signs(layer, side);
            different.insert(signs);
            int set = 0;
            for (size_t i = 0; i < 256; i++) {
                const int bit = signs[i / 32] >> (i % 32) & 1;
                set += bit;
                negated[i] += bit;
            }
            CHECK(std::abs(set - 128) < 5 * 8);
        }
    CHECK(different.size() == 128);
    for (const int n : negated) CHECK(std::abs(n - 64) < 5 * 6);
}

TEST_CASE("the bytes are those of turboquant.md, for every kind of vector and every codec") {
    for (const uint32_t d : head_dims)
        for (const uint32_t layer : {0u, 7u}) {
            const std::vector<float> all =
                codec_vectors(8 * codec_vector_kinds, d, rotation_signs(layer, KvSide::key), layer + 1);
            for (const KvCodec& codec : all_codecs(d, layer, KvSide::key))
                for (size_t i = 0; i < all.size() / d; i++) {
                    const auto x = std::span(all).subspan(i * d, d);
                    if (same(encoded(codec, x), document_encode(codec, x))) continue;
                    CAPTURE(codec_vector_kind(uint32_t(i % codec_vector_kinds)));
                    CAPTURE(describe(codec));
                    FAIL_CHECK("other bytes than the document's");
                }
        }
}

TEST_CASE("decoding is what turboquant.md says") {
    for (const uint32_t d : head_dims) {
        const std::vector<float> all = codec_vectors(3 * codec_vector_kinds, d, rotation_signs(2, KvSide::value), 5);
        for (const KvCodec& codec : all_codecs(d, 2, KvSide::value))
            for (size_t i = 0; is_coded(codec.type) && i < all.size() / d; i++) {
                const auto x = std::span(all).subspan(i * d, d);
                const DocumentStored document = document_encode(codec, x);
                if (document.scales[0] == nonfinite_scale) continue;
                const std::vector<double> right = document_decode(codec, document);
                const std::vector<float> out = decoded(codec, encoded(codec, x));
                double largest = 0, error = 0;
                for (size_t c = 0; c < d; c++) {
                    largest = std::max(largest, std::fabs(right[c]));
                    error = std::max(error, std::fabs(right[c] - double(out[c])));
                }
                CAPTURE(describe(codec));
                CAPTURE(codec_vector_kind(uint32_t(i % codec_vector_kinds)));
                CHECK(error <= 4e-6 * largest);
            }
    }
}

TEST_CASE("the bytes never change: no compiler, option or machine makes others") {
    CHECK(hash_of_codes(8) == 14415457910513148919u);
    CHECK(hash_of_codes(8, true) == 16965463415778316567u);
}

TEST_CASE("every instruction set finds the same paths of a trellis") {
    const auto stored = [](KvType type, uint32_t d) {
        return encoded(wht_codec(type, d), codec_vectors(20 * codec_vector_kinds, d, rotation_signs(0, KvSide::key), d));
    };
    int compared = 0;
    for (const KvType type : {KvType::tq2t, KvType::tq3t, KvType::tq4t})
        for (const uint32_t d : head_dims) {
            const Stored right = stored(type, d);
            for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
                hwy::GetChosenTarget().Update(target);
                CAPTURE(hwy::TargetName(target));
                CHECK(stored(type, d) == right);
                compared++;
            }
            hwy::GetChosenTarget().Update(hwy::SupportedTargets());
        }
    CHECK(compared > 0);
}

TEST_CASE("the golden vectors") {
    const std::vector<GoldenVectors> golden = read_codec_golden(TQ_SOURCE_DIR "/tests/data/codec_golden.bin");
    CHECK(golden.size() == make_codec_golden().size());
    for (const GoldenVectors& g : golden) {
        CAPTURE(describe(g.codec));
        CHECK(encoded(g.codec, g.x) == g.stored);
    }
}

TEST_CASE("the examples of turboquant.md") {
    std::vector<float> x(64);
    for (size_t i = 0; i < 64; i++) x[i] = float(i + 1);
    const auto check = [&](const KvCodec& codec, const Stored& right) {
        CAPTURE(describe(codec));
        CHECK(encoded(codec, x) == right);
    };
    check(wht_codec(KvType::tq2, 64), {{0x6a05e19c, 0x4aca13b2, 0xe2fb0a70, 0xe86830c8}, {0x4507}});
    check(wht_codec(KvType::tq3, 64), {{0xc45a8764, 0x51913161, 0x84a205e1, 0x85813190, 0x3b1d70ca, 0xe64adf34}, {0x45d2}});
    check(wht_codec(KvType::tq3, 64, ScaleRule::least_squares),
          {{0xc45a8764, 0x51913161, 0x84a205e1, 0x85813190, 0x3b1d70ca, 0xe64adf34}, {0x4595}});
    check(wht_codec(KvType::tq3, 64, ScaleRule::norm),
          {{0xc45a8764, 0x51913161, 0x84a205e1, 0x85813190, 0x3b1d70ca, 0xe64adf34}, {0x45b4}});
    check(wht_codec(KvType::tq4, 64),
          {{0xc935b4b1, 0x59a82244, 0x160bac0a, 0x339ac28b, 0x11ab7c12, 0xd838bd8d, 0x1e12c381, 0xb8a15982}, {0x47f7}});
    check({KvType::tq4, ScaleRule::unbiased, make_rotation(RotationKind::haar, 0, KvSide::key, 64)},
          {{0x884317ba, 0x9a29092e, 0x9a38b2ac, 0x2a903369, 0xc182babc, 0x1d49de1c, 0x8d3b00c2, 0xfb91b081}, {0x4bd2}});
    check(wht_codec(KvType::tq5, 64), {{0x826b6873, 0xb3415488, 0x2c174805, 0x76248516, 0x2346f924, 0xb060791a, 0x3c249613,
                                        0x7043a205, 0x3b1d70ca, 0xe64adf34},
                                       {0x48f5}});
    check(wht_codec(KvType::tq6, 64), {{0x04c7d1e5, 0x7593a911, 0x572e7009, 0xec59192c, 0x478dd357, 0x50c1f324, 0x67493c26,
                                        0xf187540a, 0x6a05e198, 0x0aca12b2, 0xe2bb0a70, 0xa86830c8},
                                       {0x4933}});
    check(wht_codec(KvType::tq8, 64),
          {{0xa733a911, 0xb18c254e, 0x201b3333, 0x4e919b89, 0x96af009c, 0x105205a9, 0xb61d87a4, 0x2a23909c, 0x7fbc1017,
            0x0d1498a8, 0xadbd88c0, 0xc8812585, 0xbb238812, 0x11d20e1c, 0x458c801e, 0xac839815},
           {0x430c}});
    check(wht_codec(KvType::tq2t, 64), {{0x43c73c88, 0xc8de10e0, 0xd7daf34f, 0x6840af30}, {0x4674}});
    check(wht_codec(KvType::tq3t, 64), {{0xf508fb44, 0xa7ed395d, 0x39f72578, 0x74fa0aec, 0x94ecdf58, 0x9c449fda}, {0x46ad}});
    check(wht_codec(KvType::tq4t, 64),
          {{0x932f59a3, 0x7324d519, 0xb8c6a14a, 0xe2b5ed35, 0x3d5a093d, 0x94d36949, 0x3842ed33, 0x6b229cb5}, {0x473e}});
    check(wht_codec(KvType::tq4u, 64),
          {{0x0c10b060, 0x58880317, 0xd91083b1, 0x9b88d029, 0x96a070d1, 0xc92883b8, 0x49a08360, 0x0529508a},
           {0x46a0, 0x4045, 0x4546, 0x40ee}});
    check(wht_codec(KvType::tq5u, 64), {{0x1794a1c0, 0x318a0721, 0x329407d6, 0x368a20cb, 0x2c41a196, 0x12ca07e2, 0x12c007c0,
                                         0x0acb218c, 0xacca6009, 0x0668caa7},
                                        {0x4567, 0x3fe9, 0x4587, 0x4347}});
    check(wht_codec(KvType::q8_0, 64),
          {{0x100c0804, 0x201c1814, 0x302c2824, 0x403c3834, 0x4f4b4743, 0x5f5b5753, 0x6f6b6763, 0x7f7b7773, 0x47454341,
            0x4f4d4b49, 0x57555351, 0x5f5d5b59, 0x67656361, 0x6f6d6b69, 0x77757371, 0x7f7d7b79},
           {0x3408, 0x3808}});
    check(wht_codec(KvType::q4_0, 64),
          {{0x66777788, 0x44555566, 0x22333344, 0x00111122, 0x33334444, 0x22223333, 0x11112222, 0x00001111}, {0xc400, 0xc800}});
}

#ifdef __SSE__
TEST_CASE("flushing denormals to zero changes nothing") {
    const uint64_t before = hash_of_codes(3);
    const uint32_t mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040); // FTZ and DAZ
    volatile float tiny = 0x1p-126f;
    tiny = tiny * 0.5f;
    const bool flushes = tiny == 0;
    const uint64_t after = hash_of_codes(3);
    _mm_setcsr(mode);
    CHECK(flushes);
    CHECK(after == before);
}
#endif

TEST_CASE("a component on a threshold takes the larger level") {
    Random random{5};
    for (const uint32_t d : head_dims)
        for (const KvType type : {KvType::tq6, KvType::tq5, KvType::tq4, KvType::tq3, KvType::tq2}) {
            const KvCodec codec = wht_codec(type, d);
            const auto thresholds = uint32_t(document_codebook(type).thresholds.size());
            for (uint32_t n = 0; n < 90; n++) {
                std::vector<float> x(d);
                const uint32_t j = threshold_tie(x, type, n % thresholds, codec.rotation.signs, random);
                const uint32_t code = unpack_code(encoded(codec, x).codes, code_bits(type), d, j);
                CHECK((code & ((1u << magnitude_bits(type)) - 1)) == n % thresholds + 1);
            }
        }
}

TEST_CASE("zero, not finite and too large vectors") {
    constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    for (const KvCodec& codec : all_codecs(128, 0, KvSide::value)) {
        CAPTURE(describe(codec));
        std::vector<float> x(128, -0.0f);
        const Stored zero = encoded(codec, x);
        CHECK(std::ranges::all_of(decoded(codec, zero), [](float v) { return v == 0; }));
        CHECK(is_finite(codec, zero.codes, zero.scales));
        for (const float bad : {infinity, -infinity, nan, -nan}) {
            x[77] = bad;
            const Stored stored = encoded(codec, x);
            CHECK_FALSE(is_finite(codec, stored.codes, stored.scales));
            if (!is_coded(codec.type)) continue;
            CHECK(stored == Stored{zero.codes, std::vector<uint16_t>(codec.scales(), nonfinite_scale)});
            CHECK(std::isnan(decoded(codec, stored)[0]));
        }
        if (!is_coded(codec.type)) continue;
        x[77] = std::nextafter(0x1p-25f, 0.0f);
        CHECK(encoded(codec, x) == zero);
        std::ranges::fill(x, std::numeric_limits<float>::max());
        const Stored huge = encoded(codec, x);
        CHECK(is_finite(codec, huge.codes, huge.scales));
        CHECK(std::ranges::count_if(huge.scales, [](uint16_t s) { return (s & 0x7fff) == 0x7bff; }) > 0);
    }
    for (const KvType type : {KvType::tq4, KvType::tq3, KvType::tq2}) { // 2^-25 is the least above zero
        std::vector<float> x(128);
        x[77] = 0x1p-25f;
        CHECK(std::ranges::count(encoded(wht_codec(type, 128), x).codes, 0u) < code_words(type, 128));
    }
    CHECK(std::isnan(half_to_float(nonfinite_scale)));
}

TEST_CASE("packed codes are unpacked as they were") {
    Random random{6};
    for (const uint32_t d : head_dims)
        for (const uint32_t bits : {2u, 3u, 4u, 5u, 6u, 8u}) {
            std::vector<uint32_t> codes(d), words(d / 32 * bits);
            for (uint32_t& code : codes) code = random.below(1u << bits);
            pack_codes(words, bits, codes);
            for (size_t i = 0; i < d; i++) CHECK(unpack_code(words, bits, d, i) == codes[i]);
        }
    for (const uint32_t d : head_dims)
        for (const KvType type : {KvType::tq5u, KvType::tq4u}) {
            std::vector<uint32_t> codes(d), words(code_words(type, d)), back(d);
            for (size_t i = 0; i < d; i++) codes[i] = random.below(2u << magnitude_bits(type, i));
            pack_codes(type, words, codes);
            unpack_codes(type, back, words);
            CHECK(back == codes);
        }
}

TEST_CASE("rotate_back undoes rotate") {
    for (const uint32_t d : head_dims) {
        Random random{d};
        std::vector<float> x(d);
        for (int n = 0; n < 100; n++) {
            for (float& v : x) v = float(int(random.below(20001)) - 10000); // integers: exact with wht
            for (const KvType type : {KvType::tq4, KvType::tq4u}) {
                const Rotation wht = make_rotation(RotationKind::wht, 4, KvSide::key, d, type);
                std::vector<float> y = x;
                rotate(y, wht);
                CHECK(dot(y, y) == double(wht.gain()) * dot(x, x));
                CHECK_FALSE(y == x);
                rotate_back(y, wht);
                CHECK(y == x);
            }
        }
        const Rotation haar = make_rotation(RotationKind::haar, 4, KvSide::key, d);
        std::vector<float> y = x;
        rotate(y, haar);
        CHECK(dot(y, y) == doctest::Approx(double(haar.gain()) * dot(x, x)).epsilon(1e-6));
        rotate_back(y, haar);
        for (size_t i = 0; i < d; i++) CHECK(std::fabs(y[i] - x[i]) < 0.02f);
    }
}
