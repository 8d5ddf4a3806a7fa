// The file of measured keys: read back as it was, or refused.
#include "base/error.h"
#include "base/path_text.h"
#include "model/files/calibration.h"
#include "model/files/formats/gguf.h"
#include "tests/support/huggingface_files.h"
#include "tests/support/prompt_cache_files.h"
#include "tests/support/small_model.h"
#include "tests/support/stressed_model.h"
#include "tests/support/text.h"
#include <limits>

using namespace tq;
using tq::test::contains;

namespace {

// The file of a calibration without effect, for tests that damage it.
struct NeutralFile {
    KeyCalibration keys;
    std::string fingerprint;

    explicit NeutralFile(const SmallModel& of)
        : keys{of.config.num_hidden_layers, of.config.num_key_value_heads, of.config.head_dim, {}, {}},
          fingerprint(model_fingerprint(of.config, of.weights)) {
        keys.scales.assign(size_t(keys.layers) * keys.kv_heads * keys.head_dim, 1.0f);
        keys.means.assign(keys.scales.size(), 0.0f);
    }
    std::string bytes() const { return calibration_bytes(keys, fingerprint, {"a model", 5}); }
};

std::string refusal(const SmallModel& model, const std::string& bytes) {
    const test::TemporaryFile file(bytes);
    try {
        read_calibration(file.path(), model.config, model.weights,
                         [&] { return model_fingerprint(model.config, model.weights); });
    } catch (const Error& error) {
        const std::string what = error.what();
        CHECK(what.find(utf8_text(file.path())) != std::string::npos);
        return what;
    }
    return "none";
}

} // namespace

TEST_CASE("a file of measured keys is read back as it was") {
    const SmallModel model;
    const KeyCalibration keys = *random_calibration(model.config, 1).calibration;
    const test::TemporaryFile file(calibration_bytes(keys, model_fingerprint(model.config, model.weights), {"x\n", 100}));
    const KeyCalibration back = read_calibration(file.path(), model.config, model.weights,
                                                 [&] { return model_fingerprint(model.config, model.weights); });
    CHECK(back.scales == keys.scales);
    CHECK(back.means == keys.means);
    KeyConditioning conditioning = parse_key_conditioning(utf8_text(file.path()));
    load_conditioning(conditioning, model.config, model.weights);
    CHECK(conditioning.calibration->scales == keys.scales);
    KeyConditioning missing = parse_key_conditioning("/no/such/file"), none, of_norms = parse_key_conditioning("norms");
    CHECK_THROWS_WITH_AS(load_conditioning(missing, model.config, model.weights), doctest::Contains("/no/such/file"), Error);
    for (KeyConditioning* plain : {&none, &of_norms}) load_conditioning(*plain, model.config, model.weights);
    CHECK(of_norms.calibration == nullptr);
}

TEST_CASE("a file of another model, or of other positions, is refused") {
    const SmallModel model;
    NeutralFile file(model);
    CHECK(refusal(model, file.bytes()) == "none");
    file.fingerprint[3] = file.fingerprint[3] == '0' ? '1' : '0';
    CHECK(contains(refusal(model, file.bytes()), "made for another model"));

    const std::string here = model_fingerprint(model.config, model.weights);
    const test::TemporaryFile first, second; // mapped files cannot be written to on Windows
    test::write_stressed_model(model.path.path(), first.path(), {.key_spread = 0.1});
    const ModelFile other = read_gguf(first.path());
    CHECK(model_fingerprint(model.config, read_weights(other, model.config)) != here);
    test::write_stressed_model(model.path.path(), second.path(), {}); // the same model in other bytes
    const ModelFile same = read_gguf(second.path());
    CHECK(model_fingerprint(model.config, read_weights(same, model.config)) == here);
    Weights quantised = model.weights;
    quantised.layers[0].attn_q.type = GgmlType::Q4_0;
    CHECK(model_fingerprint(model.config, quantised) != here);
    Config stretched = model.config;
    stretched.rope_scaling = {RopeScalingType::linear, 2, 64};
    CHECK(model_fingerprint(stretched, model.weights) != here);
}

TEST_CASE("what no keys can have is refused, and where it is said") {
    const SmallModel model;
    const size_t at = 128 * 5 + 3; // layer 1, kv head 1, channel 3
    const float infinite = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    for (const float scale : {0.0f, -1.0f, nan, infinite, 1e-30f, 1e30f}) {
        NeutralFile file(model);
        file.keys.scales[at] = scale;
        CHECK(contains(refusal(model, file.bytes()), "the scale of layer 1, kv head 1, channel 3 is"));
    }
    for (const float mean : {nan, infinite, -infinite, 1e6f, -1e6f}) {
        NeutralFile file(model);
        file.keys.means[at] = mean;
        CHECK(contains(refusal(model, file.bytes()), "the mean of layer 1, kv head 1, channel 3 is"));
    }
}

TEST_CASE("files that are cut, of other shapes, or not of this kind are refused") {
    const SmallModel model;
    const NeutralFile file(model);
    const std::string bytes = file.bytes();
    for (const size_t length : {size_t(1), size_t(7), size_t(8), size_t(100), bytes.size() / 2, bytes.size() - 1})
        CHECK(refusal(model, bytes.substr(0, length)) != "none");
    CHECK(refusal(model, bytes + "more") != "none");

    NeutralFile fewer = file;
    fewer.keys.layers = 1;
    fewer.keys.scales.resize(fewer.keys.scales.size() / 2);
    fewer.keys.means.resize(fewer.keys.scales.size());
    CHECK(contains(refusal(model, fewer.bytes()), "is F32 of 1 x 4 x 128; this model has F32 of 2 x 4 x 128"));

    test::SafetensorsWriter writer;
    const std::string zeros(2 * 4 * 128 * 4, '\0');
    const test::json about{{"format", "tq-run-calibration"}, {"version", "4"}, {"fingerprint", file.fingerprint}};
    const auto with = [&](test::json metadata) {
        writer.header["__metadata__"] = std::move(metadata);
        return refusal(model, writer.bytes());
    };
    writer.add("scales", "F32", {2, 4, 128}, zeros);
    CHECK(contains(with({{"format", "pt"}}), "not a file of tq-run-calibration"));
    for (const std::string other : {"3", "5"}) { // means over 2048 positions, and what may come
        test::json changed = about;
        changed["version"] = other;
        CHECK(contains(with(changed),
                       "another version of tq-run wrote it as tq-run-calibration " + other + ", but this one reads 4"));
    }
    CHECK(contains(with(about), "\"scales\" and \"means\", and no others"));
    writer.add("means", "F32", {2, 4, 128}, zeros);
    CHECK(contains(with(about), "the scale of layer 0, kv head 0, channel 0 is 0"));
    writer.add("more", "F32", {1}, "aaaa");
    CHECK(contains(with(about), "and no others"));
}
