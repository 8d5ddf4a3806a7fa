// Descriptions of a cache: types, presets, exceptions for layers; and the resulting bytes.
#include "base/error.h"
#include "model/kv/options.h"
#include <doctest/doctest.h>

using namespace tq;

namespace {

KvOptions with_layers(const char* text) {
    KvOptions kv;
    kv.layers = parse_kv_layers(text);
    return kv;
}

} // namespace

TEST_CASE("every name is read back as its type") {
    for (const KvTypeName& known : kv_types) {
        CHECK(parse_kv_type(known.name) == known.type);
        CHECK(std::string(name(known.type)) == known.name);
    }
    CHECK(parse_kv_type("Q8_0") == KvType::q8_0);
    CHECK(parse_kv_type("TQ4") == KvType::tq4);
    for (const char* wrong : {"", "tq7", "a5", "q5_0", "tq4 ", "_128", "a4_16", "a_32", "tq5q", "q5_0r"})
        CHECK_THROWS_WITH_AS(parse_kv_type(wrong), doctest::Contains("use tq2 to tq6 or tq8"), Error);
    CHECK(parse_scale_rule("least-squares") == ScaleRule::least_squares);
    CHECK_THROWS_WITH_AS(parse_scale_rule("mse"), "unknown scale rule 'mse': use one of norm, least-squares, unbiased", Error);
    CHECK(parse_rotation("haar") == RotationKind::haar);
    CHECK_THROWS_WITH_AS(parse_rotation("none"), "unknown rotation 'none': use one of wht, haar", Error);
}

TEST_CASE("former names are read as those that take their place, and numbers of types are what they were") {
    for (const auto& [former, now] : {std::pair("tq4q", KvType::tq4),
                                      {"tq2q", KvType::tq2},
                                      {"q8_0r", KvType::q8_0},
                                      {"q4_0r", KvType::tq4t},
                                      {"a4", KvType::tq4},
                                      {"A4", KvType::tq4},
                                      {"a3_32", KvType::tq3},
                                      {"a8_64", KvType::tq8},
                                      {"a2_128", KvType::tq2}})
        CHECK(parse_kv_type(former) == now);
    for (const KvTypeName& known : kv_types) CHECK(find_former_type(known.name) == nullptr);
    for (const KvPreset& preset : kv_presets) CHECK(find_former_preset(preset.name) == nullptr);
    CHECK(std::string_view(parse_kv_preset("safe-lowbit").name) == "accurate");
    CHECK(std::string_view(parse_kv_preset("safe").name) == "balanced");
    CHECK(std::string_view(parse_kv_preset("bold").name) == "compact");
    CHECK(std::string_view(parse_kv_preset("experimental-max").name) == "compact");
    CHECK(uint32_t(KvType::tq4) == 0x1043); // as before types were removed
    CHECK(uint32_t(KvType::tq3t) == 0x5033);
    CHECK(uint32_t(KvType::tq4u) == 0x3043);
    CHECK(uint32_t(KvType::q8_0) == 0x184);
    CHECK(uint32_t(KvType::q4_0) == 0x144);
}

TEST_CASE("presets") {
    CHECK(parse_kv_preset("balanced").types == KvTypes{KvType::tq4u, KvType::tq4});
    KvOptions kv;
    kv.set(parse_kv_preset("compact"));
    CHECK(describe(kv) == "tq4u/tq3t, window 256");
    kv.set(parse_kv_preset("balanced"));
    CHECK(describe(kv) == "tq4u/tq4, window 256");
    CHECK(parse_kv_preset("f16").types == KvTypes{KvType::f16, KvType::f16});
    CHECK_THROWS_WITH_AS(parse_kv_preset("best"), doctest::Contains("use one of balanced, accurate, compact, smallest, f16"),
                         Error);
}

TEST_CASE("unequal bits are for keys that are rotated by wht, and values beside them have equal ones") {
    CHECK_NOTHROW(check_kv({KvType::tq4u, KvType::tq4}, 2));
    CHECK(values_beside(KvType::tq4u) == KvType::tq4);
    CHECK(values_beside(KvType::tq3t) == KvType::tq3t);
    CHECK_THROWS_WITH_AS(check_kv({KvType::tq4u, KvType::tq4u}, 2), doctest::Contains("choose another -ctv, such as tq4"), Error);
    CHECK_THROWS_WITH_AS(check_kv(with_layers("1=tq5u"), 2), doctest::Contains("layer 1 has its values in it"), Error);
    KvOptions haar{KvType::tq5u, KvType::tq4};
    haar.rotation = RotationKind::haar;
    CHECK_THROWS_WITH_AS(check_kv(haar, 2), doctest::Contains("choose --kv-rotation wht"), Error);
    CHECK_THROWS_AS(make_rotation(RotationKind::haar, 0, KvSide::key, 64, KvType::tq5u), Error);
}

TEST_CASE("exceptions for layers") {
    const KvOptions kv = with_layers("0-1,-2:-1=q8_0;3=f16/tq2;7:8=tq3;8=tq5");
    constexpr uint32_t count = 12;
    const auto both = [](KvType type) { return KvTypes{type, type}; };
    for (const uint32_t layer : {0u, 1u, 10u, 11u}) CHECK(kv.at(layer, count) == both(KvType::q8_0));
    for (const uint32_t layer : {2u, 4u, 5u, 6u, 9u}) CHECK(kv.at(layer, count) == both(KvType::tq4));
    CHECK(kv.at(3, count) == KvTypes{KvType::f16, KvType::tq2});
    CHECK(kv.at(7, count) == both(KvType::tq3));
    CHECK(kv.at(8, count) == both(KvType::tq5)); // the later one wins
    CHECK_NOTHROW(check_kv(kv, count));
    CHECK(kv.codec(3, count, KvSide::value, 64).type == KvType::tq2);
    CHECK(kv.codec(3, count, KvSide::key, 64).head_dim() == 64);

    for (const char* wrong : {"", "=q8_0", "3=", "3", "a=q8_0", "1-=q8_0", "1-2-3=q8_0", "3=q8_0;", "1,,2=q8_0", "99999=q8_0"}) {
        CAPTURE(std::string(wrong));
        if (std::string(wrong) == "3=q8_0;")
            CHECK(parse_kv_layers(wrong).size() == 1); // a separator at the end is allowed
        else
            CHECK_THROWS_AS(parse_kv_layers(wrong), Error);
    }
    CHECK_THROWS_WITH_AS(parse_kv_layers("3=tq9"), doctest::Contains("unknown KV cache type 'tq9'"), Error);
    for (const char* outside : {"12=q8_0", "-13=q8_0", "5-3=q8_0", "-1:0=q8_0"})
        CHECK_THROWS_WITH_AS(check_kv(with_layers(outside), count), doctest::Contains("it has layers 0 to 11, or -12 to -1"),
                             Error);
}

TEST_CASE("rotations are those of the layer and side, and only rotated types have a dense one") {
    KvOptions kv;
    kv.rotation = RotationKind::haar;
    const KvCodec key = kv.codec(5, 8, KvSide::key, 128), value = kv.codec(5, 8, KvSide::value, 128);
    CHECK(key.rotation.signs == rotation_signs(5, KvSide::key));
    CHECK(value.rotation.signs == rotation_signs(5, KvSide::value));
    CHECK(*key.rotation.matrix != *value.rotation.matrix);
    CHECK(*key.rotation.matrix != *kv.codec(4, 8, KvSide::key, 128).rotation.matrix);
    kv.k = KvType::q8_0;
    CHECK(kv.codec(5, 8, KvSide::key, 128).rotation.matrix == nullptr);
}

TEST_CASE("bytes of a token") {
    constexpr uint32_t layers = 36, kv_heads = 8; // Qwen3-8B
    const auto bytes = [&](KvOptions kv) { return kv_bytes_per_token(kv, layers, kv_heads, 128); };
    KvOptions kv;
    CHECK(bytes(kv) == layers * kv_heads * 2 * 66);
    kv.k = kv.v = KvType::f16;
    CHECK(bytes(kv) == layers * kv_heads * 2 * 256);
    kv.k = KvType::q8_0;
    kv.v = KvType::q4_0;
    CHECK(bytes(kv) == layers * kv_heads * (136 + 72));
    kv.layers = parse_kv_layers("0-1=f16");
    CHECK(bytes(kv) == (layers - 2) * kv_heads * (136 + 72) + 2 * kv_heads * 512);
}

TEST_CASE("descriptions") {
    CHECK(describe(KvOptions()) == "tq4/tq4");
    KvOptions kv = with_layers("0-1=q8_0;-1=f16/tq2");
    kv.rotation = RotationKind::haar;
    kv.scale_rule = ScaleRule::norm;
    CHECK(describe(kv) == "tq4/tq4 haar norm, 0:1 q8_0/q8_0, -1 f16/tq2");
}

TEST_CASE("a layer beyond those of the model, a head's, has no measured keys") {
    KvOptions kv{KvType::tq4, KvType::tq4};
    using Kind = KeyConditioning::Kind;
    for (const Kind kind : {Kind::automatic, Kind::measured}) {
        kv.conditioning.kind = kind;
        kv.conditioning.calibration = std::make_shared<KeyCalibration>();
        CHECK(kv.conditioning_of(1, 2).kind == Kind::measured);
        CHECK(kv.conditioning_of(2, 2).kind == Kind::norms);
        CHECK(kv.conditioning_of(2, 2).calibration == nullptr);
    }
}
