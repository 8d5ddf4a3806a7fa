// Metadata of hybrids' files: variants that are read alike, and variants that are refused.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/files/formats/gguf.h"
#include "model/load.h"
#include "model/prefix/owner.h"
#include "model/weights/synthetic/synthetic.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <cstring>
#include <doctest/doctest.h>

using namespace tq;
using namespace tq::test;

namespace {

struct File {
    TemporaryFile path;
    ModelFile file;

    explicit File(const char* model_type) : file(write(path, model_type)) {}

    void set(const char* key, const ModelFile::Value& value) {
        file.mutable_metadata()[std::string(architecture_of(file).key(key))] = value;
    }
    void erase(const char* key) { file.mutable_metadata().erase(std::string(architecture_of(file).key(key))); }
    FileTensor& tensor(std::string_view name) {
        for (FileTensor& t : file.mutable_tensors())
            if (t.name == name) return t;
        FAIL("no tensor ", std::string(name));
        return file.mutable_tensors()[0];
    }
    std::string error() const {
        try {
            const Config config = read_config(file);
            ThreadPool pool(1);
            load_weights(pool, read_weights(file, config));
            return "";
        } catch (const Error& e) {
            return e.what();
        }
    }

  private:
    static ModelFile write(const TemporaryFile& path, const char* model_type) {
        write_random_model(path.path(), {small_config(*find_model_type(model_type)), GgmlType::Q8_0, true, 3, {}});
        return read_gguf(path.path());
    }
};

std::string error_after(const char* model_type, const std::function<void(File&)>& change) {
    File file(model_type);
    change(file);
    return file.error();
}

// A file whose key has this value.
std::string error_with(const char* key, const ModelFile::Value& value, const char* model_type = "qwen3_5") {
    return error_after(model_type, [&](File& f) { f.set(key, value); });
}

} // namespace

TEST_CASE("a hybrid's configuration is read in the forms that writers give it") {
    File file("qwen3_5_moe");
    CHECK(file.error().empty());
    const Config plain = read_config(file.file);
    REQUIRE(plain.recurrent);
    CHECK(plain.recurrent_layers == std::vector{true, false, true});
    CHECK(plain.attention_layers() == 1);
    CHECK(plain.recurrent->channels() == (2 + 2 + 4) * 128);
    CHECK(plain.state_bytes() == 2 * 4 * (4 * 128 * 128 + 3 * 8 * 128));
    CHECK(plain.recurrent->tiled_heads);
    CHECK(plain.recurrent->key_head(3) == 1);
    CHECK(plain.rotary() == 64);
    CHECK(plain.q_rows() == 2 * 4 * 256);
    CHECK(plain.shared_expert_intermediate_size == 32);
    CHECK(kv_bytes_per_token(plain, {KvType::f16, KvType::f16}) == 2 * 2 * 256 * 2); // of one layer

    file.set("attention.head_count_kv", std::vector<uint64_t>{0, 2, 0}); // a number for each layer, and other tensors beside
    file.erase("expert_shared_feed_forward_length");
    for (const uint32_t layer : {0u, 2u})
        file.tensor(fmt::format("blk.{}.ssm_dt.bias", layer)).name = fmt::format("blk.{}.ssm_dt", layer);
    const FileTensor norm = file.tensor("output_norm.weight");
    for (const char* name : {"v.patch_embd.weight", "mm.0.weight", "mtp.norm.weight"}) {
        file.file.mutable_tensors().push_back(norm);
        file.file.mutable_tensors().back().name = name;
    }
    CHECK(file.error().empty());
    CHECK(read_config(file.file).num_key_value_heads == 2);
    CHECK(read_config(file.file).shared_expert_intermediate_size == 32);

    file.set("block_count", uint64_t(4)); // the last of them for multi-token prediction
    CHECK_FALSE(file.error().empty());
    file.set("nextn_predict_layers", uint64_t(1));
    file.file.mutable_tensors().push_back(norm);
    file.file.mutable_tensors().back().name = "blk.3.nextn.enorm.weight";
    CHECK(file.error().empty());
    CHECK(read_config(file.file).num_hidden_layers == 3);

    file.set("ssm.v_head_reordered", false);
    CHECK(read_config(file.file).recurrent->key_head(3) == 1);
    CHECK(read_config(file.file).recurrent->key_head(1) == 0);
    file.erase("attention.recurrent_layers");
    file.set("full_attention_interval", uint64_t(2));
    CHECK(read_config(file.file).recurrent_layers == std::vector{true, false, true});
}

TEST_CASE("a hybrid that cannot be run is refused by key") {
    CHECK(contains(error_with("ssm.state_size", uint64_t(64)), "qwen35.ssm.state_size' is 64; tq-run runs 128"));
    CHECK(contains(error_with("ssm.conv_kernel", uint64_t(3)), "qwen35.ssm.conv_kernel' is 3; tq-run runs 4"));
    CHECK(contains(error_with("ssm.inner_size", uint64_t(256)), "qwen35.ssm.inner_size' is 256; tq-run runs 512"));
    CHECK(contains(error_with("ssm.group_count", uint64_t(3)),
                   "'qwen35.ssm.time_step_rank' is 4, not a multiple of the 3 key heads"));
    CHECK(contains(error_with("ssm.group_count", uint64_t(0)), "qwen35.ssm.group_count' is 0"));
    CHECK(
        contains(error_with("rope.dimension_count", uint64_t(48)), "rope.dimension_count' is 48, but the head dimension is 256"));
    CHECK(contains(error_with("rope.dimension_count", uint64_t(0)), "rope.dimension_count' is 0, but"));
    CHECK(contains(error_with("rope.dimension_count", uint64_t(512)), "rope.dimension_count' is 512, but"));
    CHECK(contains(error_with("attention.recurrent_layers", std::vector<uint64_t>{1, 0}), "has 2 values for 3 layers"));
    CHECK(
        contains(error_with("attention.recurrent_layers", std::vector<uint64_t>{1, 1, 1}), "none of its 3 layers has attention"));
    CHECK(contains(error_with("attention.head_count_kv", std::vector<uint64_t>{0, 0, 0}), "has different values for layers"));
    CHECK(contains(error_with("nextn_predict_layers", uint64_t(3)), "nextn_predict_layers' is 3 of 3 layers in all"));
    CHECK(contains(error_with("expert_count", uint64_t(8)), "it is a mixture of experts"));
    CHECK(contains(error_with("expert_shared_feed_forward_length", uint64_t(33), "qwen3_next"), "is 33"));
    CHECK(contains(error_after("qwen3_5", [](File& f) { f.erase("ssm.group_count"); }), "'qwen35.ssm.group_count' is missing"));
    const std::string alone = error_after("qwen3_5", [](File& f) {
        f.set("nextn_predict_layers", uint64_t(1));
        std::erase_if(f.file.mutable_tensors(), [](const FileTensor& t) { return t.name.starts_with("blk.0."); });
    });
    CHECK(contains(alone, "it holds the layers for multi-token prediction alone"));
}

TEST_CASE("a hybrid with a tensor that is missing, of another shape or unknown is refused by name") {
    const auto without = [](const char* model_type, std::string_view name) {
        return error_after(model_type, [&](File& f) {
            std::erase_if(f.file.mutable_tensors(), [&](const FileTensor& t) { return t.name == name; });
        });
    };
    for (const char* name : {"blk.0.attn_qkv.weight", "blk.0.attn_gate.weight", "blk.2.ssm_alpha.weight",
                             "blk.0.ssm_conv1d.weight", "blk.0.ssm_a", "blk.0.ssm_dt.bias", "blk.2.ssm_norm.weight",
                             "blk.0.ssm_out.weight", "blk.1.post_attention_norm.weight", "blk.1.attn_q_norm.weight"})
        CHECK(contains(without("qwen3_5", name), fmt::format("tensor '{}' is missing", name)));
    for (const char* name : {"blk.0.ffn_gate_inp_shexp.weight", "blk.1.ffn_up_shexp.weight"})
        CHECK(contains(without("qwen3_5_moe", name), fmt::format("tensor '{}' is missing", name)));
    CHECK(contains(error_after("qwen3_5", [](File& f) { f.tensor("blk.1.attn_q.weight").ne[1] = 4 * 256; }),
                   "tensor 'blk.1.attn_q.weight' has shape [64, 1024, 1, 1], not [64, 2048, 1, 1]"));
    CHECK(contains(error_after("qwen3_5",
                               [](File& f) {
                                   f.tensor("blk.0.ssm_conv1d.weight").ne = {1024, 4, 1, 1};
                               }),
                   "tensor 'blk.0.ssm_conv1d.weight' has shape"));
    CHECK(contains(error_after("qwen3_5", [](File& f) { f.tensor("blk.0.ssm_conv1d.weight").type = GgmlType::Q8_0; }),
                   "norms and biases are F32, F16 or BF16"));
    CHECK(contains(error_after("qwen3_5", [](File& f) { f.tensor("blk.0.ssm_norm.weight").name = "blk.0.ffn_norm.weight"; }),
                   "'blk.0.ssm_norm.weight' is missing"));
    CHECK(contains(error_after("qwen3_next",
                               [](File& f) {
                                   f.file.mutable_tensors().push_back(f.tensor("blk.0.attn_gate.weight"));
                                   f.file.mutable_tensors().back().name = "blk.1.attn_gate.weight";
                               }),
                   "tensor 'blk.1.attn_gate.weight' does not belong to a model of 'qwen3next'"));
    CHECK(contains(error_after("qwen3_5",
                               [](File& f) {
                                   static const std::vector<float> rates{-1, 0.5f, -1, -1};
                                   f.tensor("blk.2.ssm_a").data = std::as_bytes(std::span(rates));
                               }),
                   "tensor 'blk.2.ssm_a' has a value above 0"));
}

TEST_CASE("weights of a hybrid that are quantised at load leave what its states depend on") {
    File file("qwen3_5_moe");
    const Config config = read_config(file.file);
    for (FileTensor& t : file.file.mutable_tensors()) { // matrices as if they were in F16
        if (t.type != GgmlType::Q8_0) continue;
        static std::deque<std::vector<std::byte>> values;
        t.type = GgmlType::F16;
        t.data = values.emplace_back(row_bytes(t.type, t.ne[0]) * t.ne[1] * t.ne[2]);
    }
    Weights weights = read_weights(file.file, config);
    CHECK(quantise(weights, GgmlType::Q4_0) == 1 + 3 * 6 + 2 * 3 + 4);
    CHECK(weights.layers[0].recurrent->ssm_beta.type == GgmlType::F16);
    CHECK(weights.layers[2].recurrent->ssm_alpha.type == GgmlType::F16);
    CHECK(weights.layers[0].recurrent->attn_qkv.type == GgmlType::Q4_0);
    CHECK(weights.layers[0].shared_expert->up.type == GgmlType::Q4_0);
    CHECK(weights.layers[0].recurrent->ssm_conv1d.type == GgmlType::F32);
}

TEST_CASE("types of a cache are given to layers with attention; pages have their bytes alone") {
    const Config config = small_config(*find_model_type("qwen3_5"));
    KvOptions kv;
    kv.layers = parse_kv_layers("0-1=q8_0");
    check_kv(kv, config);
    kv.layers = parse_kv_layers("-1=q8_0");
    CHECK_THROWS_WITH_AS(
        check_kv(kv, config),
        "layer -1 is recurrent, and stores neither keys nor values: name layers with attention, of which the last is 1", Error);
    const ForwardOptions options{.kv = {KvType::tq4, KvType::tq4}, .context_size = 10};
    File file("qwen3_5");
    const auto forward = make_cpu_forward(config, read_weights(file.file, config), options);
    const PageLayout is = forward->cache().page_layout(), described = page_layout(config, options.kv);
    CHECK(is.bytes(7) == described.bytes(7));
    CHECK(is.bytes(7) ==
          7 * kv_bytes_per_token(config, options.kv) + FIRST_TOKENS * 2 * 2 * 256 * 2); // and the first tokens in fp16
    CHECK(plan_cpu_memory(config, read_weights(file.file, config), options).kv_cache >= config.state_bytes());
}

TEST_CASE("the shapes of published hybrids have their numbers of weights") {
    const auto millions = [](const char* name) {
        uint64_t count = 0;
        const Model model = make_synthetic(parse_synthetic(name));
        for_each_tensor(model.weights, [&](const Tensor& t) { count += uint64_t(t.rows) * t.cols; });
        return double(count) * 1e-6;
    };
    CHECK(millions("qwen3.5-0.8b") == doctest::Approx(752).epsilon(0.001));
    CHECK(millions("qwen3.5-2b") == doctest::Approx(1882).epsilon(0.001));
    CHECK(millions("qwen3.5-4b") == doctest::Approx(4206).epsilon(0.001));
    CHECK(millions("qwen3.5-9b") == doctest::Approx(8954).epsilon(0.001));
    CHECK(millions("qwen3.8-27b") == doctest::Approx(26896).epsilon(0.001));
    CHECK(millions("qwen3.5-35b-a3b") == doctest::Approx(34661).epsilon(0.001));
    CHECK(millions("qwen3-next-80b-a3b") == doctest::Approx(79674).epsilon(0.001));
    CHECK(parse_synthetic("qwen3.5-0.8b", 8).config.attention_layers() == 2);
    CHECK_THROWS_WITH_AS(parse_synthetic("qwen3.5-0.8b", 3),
                         "the first layer of qwen3.5-0.8b with attention is number 4: take at least so many", Error);
}
