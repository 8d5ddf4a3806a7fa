// Stored vectors in the layouts of other programs: their bytes, exact round trips, and refused ones.
#include "base/error.h"
#include "base/half.h"
#include "model/kv/layouts.h"
#include "tests/support/codec_golden.h"
#include "tests/support/document_codec.h"
#include "tools/check/conformance/vectors/codec_vectors.h"
#include <bit>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <limits>

using namespace tq;
using namespace tq::test;
using namespace tq::conformance;

namespace {

constexpr KvLayout all_layouts[] = {KvLayout::planes, KvLayout::block68, KvLayout::bytes132, KvLayout::ggml};

std::vector<uint8_t> exported(const KvCodec& codec, KvLayout layout, const Stored& stored) {
    std::vector<uint8_t> bytes(layout_bytes(layout, codec.type, codec.head_dim()));
    export_vector(codec, layout, bytes, stored.codes, stored.scales);
    return bytes;
}

Stored imported(const KvCodec& codec, KvLayout layout, std::span<const uint8_t> bytes, bool allow_nonfinite = false) {
    Stored out{std::vector<uint32_t>(codec.words()), std::vector<uint16_t>(codec.scales())};
    import_vector(codec, layout, out.codes, out.scales, bytes, allow_nonfinite);
    return out;
}

KvCodec codec_of(KvType type, RotationKind kind = RotationKind::wht, uint32_t head_dim = 128) {
    return {type, ScaleRule::norm, make_rotation(kind, 0, KvSide::key, head_dim)};
}

std::vector<float> normal_vector(uint32_t head_dim, uint64_t seed = 1) {
    Random random{seed};
    std::vector<float> x(head_dim);
    for (float& v : x) v = random.normal();
    return x;
}

float float_at(std::span<const uint8_t> bytes) {
    uint32_t word = 0;
    for (size_t i = 0; i < 4; i++) word |= uint32_t(bytes[i]) << (8 * i);
    return std::bit_cast<float>(word);
}

void put_float(std::span<uint8_t> bytes, float v) {
    for (size_t i = 0; i < 4; i++) bytes[i] = uint8_t(std::bit_cast<uint32_t>(v) >> (8 * i));
}

// The index of channel j in block68, bit by bit.
uint32_t index_at(const std::vector<uint8_t>& block, uint32_t bits, size_t j) {
    uint32_t index = 0;
    for (uint32_t b = 0; b < bits; b++) {
        const size_t at = j * bits + b;
        index |= uint32_t(block[4 + at / 8] >> (at % 8) & 1) << b;
    }
    return index;
}

} // namespace

TEST_CASE("sizes are those of the sources") {
    CHECK(layout_bytes(KvLayout::block68, KvType::tq3, 128) == 52);
    CHECK(layout_bytes(KvLayout::block68, KvType::tq4, 128) == 68);
    CHECK(layout_bytes(KvLayout::bytes132, KvType::tq3, 128) == 132);
    CHECK(layout_bytes(KvLayout::ggml, KvType::q8_0, 128) == 4 * 34);
    CHECK(layout_bytes(KvLayout::ggml, KvType::q4_0, 128) == 4 * 18);
    CHECK(layout_bytes(KvLayout::planes, KvType::tq3, 128) == 50);
}

TEST_CASE("every codec and layout: what was exported comes back exactly, odd vectors and marked ones too") {
    for (const uint32_t d : {64u, 128u, 256u}) {
        const std::vector<float> x = codec_vectors(3 * codec_vector_kinds, d, rotation_signs(1, KvSide::key), 3);
        for (const KvCodec& codec : all_codecs(d, 1, KvSide::key))
            for (const KvLayout layout : all_layouts) {
                if (!has_layout(codec.type, layout)) continue;
                CAPTURE(describe(codec));
                CAPTURE(std::string(name(layout)));
                for (size_t at = 0; at < x.size(); at += d) {
                    const Stored stored = encoded(codec, std::span(x).subspan(at, d));
                    const std::vector<uint8_t> bytes = exported(codec, layout, stored);
                    CHECK(imported(codec, layout, bytes, true) == stored);
                    if (is_finite(codec, stored.codes, stored.scales))
                        CHECK(imported(codec, layout, bytes) == stored);
                    else
                        CHECK_THROWS_AS(imported(codec, layout, bytes), Error);
                }
            }
    }
}

TEST_CASE("block68 and bytes132: norm times centroids of the indices is the decoded vector in the rotated space") {
    for (const KvType type : {KvType::tq2, KvType::tq3, KvType::tq4, KvType::tq5, KvType::tq6, KvType::tq8})
        for (const RotationKind kind : {RotationKind::wht, RotationKind::haar}) {
            const KvCodec codec = codec_of(type, kind);
            const uint32_t bits = code_bits(type), half = 1u << (bits - 1);
            const std::vector<float> x = normal_vector(128);
            const Stored stored = encoded(codec, x);
            const std::vector<uint8_t> block = exported(codec, KvLayout::block68, stored),
                                       bytes = exported(codec, KvLayout::bytes132, stored);
            std::vector<float> y(128);
            decode_stored(codec, y, stored.codes, stored.scales);
            const double norm = float_at(block), gain = std::sqrt(codec.rotation.gain());
            CHECK(float_at(std::span(bytes).last(4)) == float_at(block));
            for (size_t j = 0; j < 128; j++) {
                const uint32_t index = index_at(block, bits, j), magnitude = index >= half ? index - half : half - 1 - index;
                CHECK(bytes[j] == index);
                const double level = type == KvType::tq8 ? 2 * magnitude + 1 : document_codebook(type).levels[magnitude];
                const double centroid = (index >= half ? level : -level) / (level_units(bits) * std::sqrt(128.0));
                CHECK(norm * centroid * gain == doctest::Approx(y[j]).epsilon(1e-6));
            }
            double length2 = 0;
            for (const float v : x) length2 += double(v) * v;
            if (type != KvType::tq8) CHECK(std::fabs(norm / std::sqrt(length2) - 1) < 0.15);
        }
}

TEST_CASE("ggml: the blocks of its quantiser") {
    std::vector<float> x(64);
    for (size_t i = 0; i < 64; i++) x[i] = i < 32 ? float(i) - 16 : 0;
    const KvCodec q8 = codec_of(KvType::q8_0, RotationKind::wht, 64), q4 = codec_of(KvType::q4_0, RotationKind::wht, 64);
    const std::vector<uint8_t> eight = exported(q8, KvLayout::ggml, encoded(q8, x)),
                               four = exported(q4, KvLayout::ggml, encoded(q4, x));
    CHECK((eight[0] | eight[1] << 8) == float_to_half(16.0f / 127));
    CHECK(int8_t(eight[2]) == -127);
    CHECK(int8_t(eight[2 + 20]) == 32); // 4 of 16
    CHECK(eight[34] == 0);
    CHECK((four[0] | four[1] << 8) == 0x4000); // -16 / -8
    CHECK((four[2] & 15) == 0);                // -16
    CHECK((four[2] >> 4) == 8);                // 0, of channel 16
    CHECK((four[2 + 4] & 15) == 2);            // -12
    CHECK((four[2 + 4] >> 4) == 10);           // 4, of channel 20
}

TEST_CASE("norms of other programs become the nearest scale") {
    const KvCodec codec = codec_of(KvType::tq4);
    std::vector<uint8_t> block = exported(codec, KvLayout::block68, encoded(codec, normal_vector(128)));
    for (const float norm : {0.0f, -0.0f, 1.0f, 11.31f, 1e-6f, 65504.0f * 38, 1e-30f}) {
        put_float(block, norm);
        CHECK(imported(codec, KvLayout::block68, block).scales[0] == (float_to_half(norm / float(level_units(4))) & 0x7fff));
    }
}

TEST_CASE("what is no stored vector is refused with the reason") {
    const KvCodec codec = codec_of(KvType::tq3);
    const Stored stored = encoded(codec, normal_vector(128));
    const auto check = [&](const KvCodec& of, KvLayout layout, std::span<const uint8_t> bytes, const char* reason) {
        CHECK_THROWS_WITH_AS(imported(of, layout, bytes), doctest::Contains(reason), Error);
    };
    std::vector<uint8_t> block = exported(codec, KvLayout::block68, stored), bytes = exported(codec, KvLayout::bytes132, stored);
    for (const float norm : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), -1.0f}) {
        put_float(block, norm);
        check(codec, KvLayout::block68, block, "finite and not negative");
    }
    put_float(block, 1e9f);
    check(codec, KvLayout::block68, block, "reach only to");
    bytes[5] = 8;
    check(codec, KvLayout::bytes132, bytes, "index 8 of channel 5 is not one of tq3, which are 0 to 7");
    std::vector<uint8_t> planes = exported(codec, KvLayout::planes, stored);
    planes[49] |= 0x80;
    check(codec, KvLayout::planes, planes, "negative");
    planes[49] = 0x7c;
    check(codec, KvLayout::planes, planes, "not finite");
    std::vector<uint8_t> ggml(4 * 34);
    ggml[34 + 1] = 0x7c;
    check(codec_of(KvType::q8_0), KvLayout::ggml, ggml, "not finite");
    CHECK_THROWS_WITH_AS(require_layout(KvType::tq3t, KvLayout::block68), doctest::Contains("tq3t has no layout block68"), Error);
    CHECK_THROWS_WITH_AS(parse_kv_layout("rows"), "unknown layout 'rows': use one of planes, block68, bytes132, ggml", Error);
}
