// Files of cache types: they are read back as written, and errors name their place.
#include "base/error.h"
#include "model/files/kv_file.h"
#include "tests/support/temporary_file.h"
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <random>

using namespace tq;
using nlohmann::json;

namespace {

KvOptions read(const std::string& text) {
    const test::TemporaryFile file(text);
    return read_kv_file(file.path());
}

json good() {
    return json::parse(
        R"({"schema": "tq-run-kv", "version": 1, "layers": [{"k": "q8_0", "v": "tq4"}, {"k": "tq3", "v": "a4"}]})");
}

} // namespace

TEST_CASE("what is written is read back") {
    KvOptions kv;
    kv.layers = parse_kv_layers("0=q8_0/tq2;-1=f16");
    kv.rotation = RotationKind::haar;
    kv.scale_rule = ScaleRule::norm;
    kv.window = 16;
    const json file = json::parse(kv_json(kv, 5, "a test").dump());
    CHECK(file["about"] == "a test");
    CHECK(file["layers"].size() == 5);
    const KvOptions back = read(file.dump());
    CHECK(back.layer_count == 5);
    CHECK(back.rotation == RotationKind::haar);
    CHECK(back.scale_rule == ScaleRule::norm);
    CHECK(back.window == 16);
    for (uint32_t layer = 0; layer < 5; layer++) CHECK(back.at(layer, 5) == kv.at(layer, 5));
    CHECK(kv_bytes_per_token(back, 5, 2, 128) == kv_bytes_per_token(kv, 5, 2, 128));
    CHECK(json::parse(kv_json(back, 5, "a test").dump()) == file);
    CHECK(json::parse(kv_file_text(kv, 5, "a test")) == file);
    CHECK(json::parse(kv_file_text(kv, 5, "")).contains("about") == false);
}

TEST_CASE("a mix is for models of its number of layers, and is described in few words") {
    const KvOptions kv = read(good().dump());
    CHECK(kv.at(0, 2) == KvTypes{KvType::q8_0, KvType::tq4});
    CHECK(kv.at(1, 2) == KvTypes{KvType::tq3, KvType::tq4});
    CHECK(kv.rotation == RotationKind::wht);
    CHECK(kv.scale_rule == KvOptions().scale_rule);
    CHECK_NOTHROW(check_kv(kv, 2));
    for (const uint32_t other : {1u, 3u, 36u})
        CHECK_THROWS_WITH_AS(check_kv(kv, other), doctest::Contains("for a model of 2 layers"), Error);
    CHECK(describe(kv).starts_with("mix "));
    CHECK(describe(kv).ends_with(", 4.97 bits")); // (136 + 66 + 50 + 66) * 8 / (4 * 128)
    json other = good();
    other["layers"][1]["k"] = "tq4"; // adds as many bytes as the values lose
    other["layers"][1]["v"] = "tq3";
    CHECK(describe(read(other.dump())) != describe(kv));

    json same = good();
    same["layers"] = json::array({{{"k", "tq4"}, {"v", "tq3"}}, {{"k", "tq4"}, {"v", "tq3"}}});
    same["rotation"] = "haar";
    CHECK(describe(read(same.dump())) == "tq4/tq3 haar");
}

TEST_CASE("one side can be set for all layers, and later exceptions win") {
    KvOptions kv = read(good().dump());
    kv.set(KvSide::value, KvType::tq2);
    CHECK(kv.at(0, 2) == KvTypes{KvType::q8_0, KvType::tq2});
    CHECK(kv.at(1, 2) == KvTypes{KvType::tq3, KvType::tq2});
    kv.layers.push_back({-1, -1, {KvType::f16, KvType::f16}});
    CHECK(kv.at(1, 2) == KvTypes{KvType::f16, KvType::f16});
    CHECK_NOTHROW(check_kv(kv, 2));
}

TEST_CASE("what is wrong with a file is said") {
    const auto fails = [](const auto& change, const char* message) {
        json file = good();
        change(file);
        CHECK_THROWS_WITH_AS(read(file.dump()), doctest::Contains(message), Error);
    };
    fails([](json& f) { f["schema"] = "other"; }, "it is not a file of cache types");
    fails([](json& f) { f.erase("schema"); }, "it is not a file of cache types");
    fails([](json& f) { f = json::array({1}); }, "it is not a file of cache types");
    fails([](json& f) { f["version"] = 2; }, "its \"version\" must be 1");
    fails([](json& f) { f["version"] = "1"; }, "its \"version\" must be 1");
    fails([](json& f) { f["mean"] = 1; }, "unknown key 'mean'");
    fails([](json& f) { f["rotation"] = "none"; }, "unknown rotation 'none'");
    fails([](json& f) { f["scale_rule"] = 3; }, "'scale_rule' of it must be a text");
    fails([](json& f) { f["window"] = 1025; }, "'window' must be a number from 0 to 1024");
    fails([](json& f) { f["window"] = -1; }, "'window' must be a number from 0 to 1024");
    fails([](json& f) { f["window"] = "16"; }, "'window' must be a number from 0 to 1024");
    fails([](json& f) { f["about"] = json::array(); }, "'about' of it must be a text");
    fails([](json& f) { f.erase("layers"); }, "no list 'layers'");
    fails([](json& f) { f["layers"] = 3; }, "no list 'layers'");
    fails([](json& f) { f["layers"] = json::array(); }, "names 0 layers");
    fails([](json& f) { f["layers"] = json(std::vector<json>(1025, f["layers"][0])); }, "names 1025 layers");
    fails([](json& f) { f["layers"][1] = "tq4"; }, "layer 1 must be an object with 'k' and 'v'");
    fails([](json& f) { f["layers"][1].erase("v"); }, "layer 1 has no 'v'");
    fails([](json& f) { f["layers"][1]["v"] = "tq7"; }, "layer 1: unknown KV cache type 'tq7'");
    fails([](json& f) { f["layers"][0]["q"] = "tq4"; }, "layer 0 has the unknown key 'q'");
    fails([](json& f) { f["layers"][0]["k"] = nullptr; }, "'k' of layer 0 must be a text, not null");
    for (const char* broken : {"", "{", "[[[[[", "{\"schema\": \"tq-run-kv\", \"schema\": 1}", "\xff\xfe"})
        CHECK_THROWS_AS(read(broken), Error);
    CHECK_THROWS_WITH_AS(read(std::string(2 << 20, ' ')), doctest::Contains("more than the"), Error);
    CHECK_THROWS_AS(read_kv_file("/no/such/file.kv.json"), Error);
}

TEST_CASE("a damaged file reads as types, or throws an Error of one line") {
    std::mt19937 random(3);
    const std::string whole = good().dump();
    int read_well = 0;
    for (int i = 0; i < 1000; i++) {
        std::string text = whole;
        for (uint32_t changes = 1 + random() % 3; changes > 0; changes--) {
            const size_t at = random() % text.size();
            if (random() % 3 == 0)
                text.erase(at, 1 + random() % 4);
            else
                text[at] = char(random() % 2 == 0 ? whole[random() % whole.size()] : random());
        }
        try {
            const KvOptions kv = read(text);
            CHECK(kv.layer_count == kv.layers.size());
            read_well++;
        } catch (const Error& error) {
            CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
        }
    }
    CHECK(read_well > 0);
}
