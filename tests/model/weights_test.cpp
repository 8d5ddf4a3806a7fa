// Config and weights of a Qwen3 file: every released shape passes, everything else is refused by name.
#include "base/error.h"
#include "base/path_text.h"
#include "model/files/formats/gguf.h"
#include "model/files/formats/gguf_writer.h"
#include "model/load.h"
#include "model/weights/stacked_rows.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <limits>
#include <set>

using namespace tq;
using namespace tq::test;

namespace {

ThreadPool pool;

// Keys and tensors of a model, to be changed before they are written.
struct Draft {
    std::map<std::string, ModelFile::Value> keys;
    struct Item {
        std::string name;
        GgmlType type;
        std::vector<uint64_t> ne;
    };
    std::vector<Item> tensors;

    Item& tensor(const std::string& name) {
        return *std::find_if(tensors.begin(), tensors.end(), [&](const Item& t) { return t.name == name; });
    }
    std::string bytes() const {
        GgufWriter w;
        for (const auto& [key, value] : keys) w.set(key, value);
        for (const Item& t : tensors) w.add_tensor(t.name, t.type, t.ne);
        return w.zeros();
    }
};

Draft config_draft(uint64_t hidden, uint64_t layers, uint64_t heads, uint64_t kv_heads, uint64_t ffn) {
    Draft d;
    d.keys = {{"general.architecture", "qwen3"},
              {"qwen3.block_count", layers},
              {"qwen3.context_length", uint64_t(40960)},
              {"qwen3.embedding_length", hidden},
              {"qwen3.feed_forward_length", ffn},
              {"qwen3.attention.head_count", heads},
              {"qwen3.attention.head_count_kv", kv_heads},
              {"qwen3.attention.key_length", uint64_t(128)},
              {"qwen3.attention.value_length", uint64_t(128)},
              {"qwen3.rope.freq_base", 1e6},
              {"qwen3.attention.layer_norm_rms_epsilon", 1e-6},
              {"tokenizer.ggml.tokens", std::vector<std::string_view>{"a", "b", "c"}}};
    return d;
}

// A model of one layer, hidden 32, ffn 64, one head, 40 rows of embedding.
Draft small_draft() {
    Draft d = config_draft(32, 1, 1, 1, 64);
    const auto f32 = GgmlType::F32, q8 = GgmlType::Q8_0;
    d.tensors = {{"token_embd.weight", q8, {32, 40}},         {"output_norm.weight", f32, {32}},
                 {"blk.0.attn_norm.weight", f32, {32}},       {"blk.0.attn_q.weight", q8, {32, 128}},
                 {"blk.0.attn_k.weight", q8, {32, 128}},      {"blk.0.attn_v.weight", q8, {32, 128}},
                 {"blk.0.attn_q_norm.weight", f32, {128}},    {"blk.0.attn_k_norm.weight", f32, {128}},
                 {"blk.0.attn_output.weight", q8, {128, 32}}, {"blk.0.ffn_norm.weight", f32, {32}},
                 {"blk.0.ffn_gate.weight", q8, {32, 64}},     {"blk.0.ffn_up.weight", q8, {32, 64}},
                 {"blk.0.ffn_down.weight", q8, {64, 32}}};
    return d;
}

std::string config_error(const Draft& draft) {
    const TemporaryFile file(draft.bytes());
    const ModelFile g = read_gguf(file.path());
    try {
        read_config(g);
        return "";
    } catch (const Error& e) {
        CHECK(std::string_view(e.what()).starts_with(utf8_text(file.path()) + ": "));
        return e.what();
    }
}

std::string weights_error(const Draft& draft) {
    const TemporaryFile file(draft.bytes());
    const ModelFile g = read_gguf(file.path());
    const Config config = read_config(g);
    try {
        read_weights(g, config);
        return "";
    } catch (const Error& e) {
        return e.what();
    }
}

void check_contains(const std::string& text, const std::string& part) {
    CAPTURE(text);
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
}

void check_key(const char* key, const ModelFile::Value& value, const std::string& why) {
    Draft d = small_draft();
    d.keys[key] = value;
    const std::string error = config_error(d);
    check_contains(error, key);
    check_contains(error, why);
}

} // namespace

TEST_CASE("every released dense shape passes") {
    struct Released {
        uint64_t hidden, layers, heads, ffn;
        uint32_t group;
    };
    for (const Released& r :
         {Released{1024, 28, 16, 3072, 2}, Released{2048, 28, 16, 6144, 2}, Released{2560, 36, 32, 9728, 4},
          Released{4096, 36, 32, 12288, 4}, Released{5120, 40, 40, 17408, 5}, Released{5120, 64, 64, 25600, 8}}) {
        Draft d = config_draft(r.hidden, r.layers, r.heads, 8, r.ffn);
        d.keys["qwen3.context_length"] = uint64_t(262144);
        d.keys["qwen3.rope.freq_base"] = 5e6;
        const TemporaryFile file(d.bytes());
        const Config c = read_config(read_gguf(file.path()));
        CHECK(c.hidden_size == r.hidden);
        CHECK(c.intermediate_size == r.ffn);
        CHECK(c.num_hidden_layers == r.layers);
        CHECK(c.num_attention_heads / c.num_key_value_heads == r.group);
        CHECK(c.head_dim == 128);
        CHECK(c.vocab_size == 3);
        CHECK(c.max_position_embeddings == 262144);
        CHECK(c.rope_theta == 5e6f);
        CHECK(c.rms_norm_eps == 1e-6f);
    }
}

TEST_CASE("a model's context ends where positions are no longer exact in a float") {
    for (const uint64_t length : {uint64_t(max_context), uint64_t(max_context) + 1, uint64_t(1) << 30}) {
        Draft d = config_draft(1024, 28, 16, 8, 3072);
        d.keys["qwen3.context_length"] = length;
        const TemporaryFile file(d.bytes());
        const Config c = read_config(read_gguf(file.path()));
        CHECK(c.max_position_embeddings == max_context);
        CHECK(c.rope_scaling.original_context_length == length);
    }
    CHECK(float(max_context - 1) + 1 == float(max_context));
    CHECK(float(max_context) + 1 == float(max_context));
}

TEST_CASE("a config that we cannot run is refused by its key") {
    CHECK(config_error(small_draft()).empty());
    check_contains(
        config_error([] {
            Draft d = small_draft();
            d.keys["general.architecture"] = "llama\n";
            return d;
        }()),
        "architecture is 'llama\\x0a', and tq-run runs qwen3, qwen3moe, qwen2, llama, qwen35, qwen35moe, qwen3next only");
    for (const char* key : {"qwen3.embedding_length", "qwen3.feed_forward_length", "qwen3.block_count", "qwen3.context_length",
                            "qwen3.attention.head_count", "qwen3.attention.head_count_kv", "qwen3.attention.key_length"}) {
        check_key(key, uint64_t(0), "is 0");
        check_key(key, uint64_t(1) << 32, "is 4294967296");
        check_key(key, ~uint64_t(0), "is 18446744073709551615");
        check_key(key, int64_t(-32), "is -32");
        check_key(key, 32.5, "is a real number");
        Draft d = small_draft();
        d.keys.erase(key);
        check_contains(config_error(d), std::string("key '") + key + "' is missing");
    }
    check_key("qwen3.embedding_length", uint64_t(48), "is 48");
    check_key("qwen3.feed_forward_length", uint64_t(33), "is 33");
    check_key("qwen3.attention.key_length", uint64_t(96), "is 96");
    check_key("qwen3.attention.value_length", uint64_t(64), "is 64, but the head dimension is 128");
    check_key("qwen3.rope.dimension_count", uint64_t(64), "is 64, but the head dimension is 128");
    check_key("qwen3.rope.scaling.type", "longrope\n", "is 'longrope\\x0a'");
    for (const double theta : {0.0, -1.0, double(NAN), double(INFINITY)}) check_key("qwen3.rope.freq_base", theta, "is ");
    for (const double eps : {0.0, -1e-6, double(NAN)}) check_key("qwen3.attention.layer_norm_rms_epsilon", eps, "is ");
    Draft unscaled = small_draft();
    unscaled.keys["qwen3.rope.scaling.type"] = "none";
    CHECK(config_error(unscaled).empty());
}

TEST_CASE("query heads per key/value head") {
    const auto error = [](uint64_t heads, uint64_t kv_heads) { return config_error(config_draft(64, 1, heads, kv_heads, 64)); };
    for (const uint64_t group : {1, 2, 4, 5, 8}) CHECK(error(group * 3, 3).empty());
    check_contains(error(5, 2), "5 query heads on 2 key/value heads");
    check_contains(error(2, 4), "2 query heads on 4 key/value heads");
    check_contains(error(17, 1), "17 query heads on 1 key/value heads");
}

TEST_CASE("padding rows are part of the vocabulary, missing rows are an error") {
    const TemporaryFile file(small_draft().bytes());
    CHECK(read_config(read_gguf(file.path())).vocab_size == 40);
    Draft d = small_draft();
    d.tensor("token_embd.weight").ne = {32, 2};
    check_contains(config_error(d), "'token_embd.weight' has 2 rows for a vocabulary of 3");
    Draft none = small_draft();
    none.keys.erase("tokenizer.ggml.tokens");
    CHECK(config_error(none).empty());
    none.tensors.clear();
    check_contains(config_error(none), "neither a tensor 'token_embd.weight' nor a vocabulary");
}

TEST_CASE("a vocabulary-only file says so when weights are wanted") {
    Draft d = small_draft();
    d.tensors.clear();
    CHECK(config_error(d).empty());
    check_contains(weights_error(d), "holds a vocabulary only");
}

TEST_CASE("the two rows of a reranker are read, and of no other shape") {
    Draft d = small_draft();
    d.tensors.push_back({"cls.output.weight", GgmlType::F16, {32, 2}});
    const TemporaryFile path(d.bytes());
    const ModelFile file = read_gguf(path.path());
    const Weights weights = read_weights(file, read_config(file));
    REQUIRE(weights.classifier);
    CHECK(weights.classifier->rows == 2);
    CHECK(weights.classifier->cols == 32);
    d.tensors.back().ne = {32, 1};
    check_contains(weights_error(d), "'cls.output.weight' has shape [32, 1, 1, 1], not [32, 2, 1, 1]");
}

TEST_CASE("an output head of its own is used, tied ones are counted once") {
    Draft d = small_draft();
    const TemporaryFile tied_file(d.bytes());
    const ModelFile tied = read_gguf(tied_file.path());
    const Weights a = read_weights(tied, read_config(tied));
    CHECK(a.tied);
    CHECK(a.output.data.data() == a.token_embd.data.data());
    const uint64_t q8_elements = 32 * 40 + 3 * 32 * 128 + 128 * 32 + 3 * 32 * 64, norm_elements = 3 * 32 + 2 * 128;
    CHECK(a.bytes() == q8_elements / 32 * 34 + norm_elements * 4);
    CHECK(a.token_embd.row(39).data() == a.token_embd.data.data() + 39 * 34);
    CHECK(a.token_embd.row(39).size() == 34);
    d.tensors.push_back({"output.weight", GgmlType::F16, {32, 40}});
    const TemporaryFile untied_file(d.bytes());
    const ModelFile untied = read_gguf(untied_file.path());
    const Weights b = read_weights(untied, read_config(untied));
    CHECK(!b.tied);
    CHECK(b.output.type == GgmlType::F16);
    CHECK(b.bytes() == a.bytes() + 40 * 64);
}

TEST_CASE("each tensor must be there, in its shape") {
    const Draft good = small_draft();
    CHECK(weights_error(good).empty());
    for (const auto& tensor : good.tensors) {
        Draft missing = good;
        std::erase_if(missing.tensors, [&](const Draft::Item& t) { return t.name == tensor.name; });
        check_contains(weights_error(missing), "tensor '" + tensor.name + "' is missing");
        Draft wider = good, deeper = good;
        wider.tensor(tensor.name).ne[0] += 32;
        check_contains(weights_error(wider), "tensor '" + tensor.name + "' has shape [");
        deeper.tensor(tensor.name).ne.push_back(2);
        if (tensor.name != "token_embd.weight") check_contains(weights_error(deeper), "tensor '" + tensor.name + "' has shape [");
    }
    Draft head = good;
    head.tensors.push_back({"output.weight", GgmlType::Q8_0, {32, 41}});
    check_contains(weights_error(head), "tensor 'output.weight' has shape [32, 41, 1, 1], not [32, 40, 1, 1]");
}

TEST_CASE("formats that we cannot run are named with their tensor") {
    Draft d = small_draft();
    d.tensor("blk.0.ffn_up.weight").type = GgmlType(9);
    check_contains(weights_error(d), "tensor 'blk.0.ffn_up.weight' has weight format Q8_1, which is not supported");
    Draft norm = small_draft();
    norm.tensor("output_norm.weight").type = GgmlType::Q8_0;
    check_contains(weights_error(norm), "tensor 'output_norm.weight' has weight format Q8_0");
    norm.tensor("output_norm.weight").type = GgmlType::BF16;
    CHECK(weights_error(norm).empty());
}

TEST_CASE("each matrix of a stack in NVFP4 has its own factor") {
    constexpr uint32_t rows = 2, experts = 3;
    std::vector<std::byte> bytes(size_t(experts) * rows * 36, std::byte(0x22)); // levels of 1
    for (size_t at = 0; at < bytes.size(); at += 36) std::fill_n(&bytes[at], 4, std::byte(0x38));
    const Tensor stack{"up", GgmlType::NVFP4, experts * rows, 64, bytes, nullptr, {1, 2, -4}};
    const auto check = [&](const Tensor& t, uint32_t first) {
        const std::vector<float> values = to_floats(t);
        REQUIRE(values.size() == size_t(t.rows) * 64);
        for (size_t i = 0; i < values.size(); i++) CHECK(values[i] == stack.factors[first + i / 64 / rows]);
    };
    check(stack, 0);
    std::vector<Tensor> parts;
    for (uint32_t e = 0; e < experts; e++) {
        parts.push_back(stack.slice(e * rows, rows));
        check(parts.back(), e);
    }
    check(stacked("again", parts), 0);
    CHECK(stack.row_factors(1, 3) == std::vector<float>{1, 2, 2});
}

TEST_CASE("a matrix in NVFP4 may have a number that it is multiplied by, and no other") {
    Draft d = small_draft();
    d.tensor("blk.0.ffn_down.weight").type = GgmlType::NVFP4; // it has 64 columns
    CHECK(weights_error(d).empty());
    d.tensors.push_back({"blk.0.ffn_down.input_scale", GgmlType::F32, {1}});
    CHECK(weights_error(d).empty());
    d.tensors.push_back({"blk.0.ffn_down.scale", GgmlType::F32, {1}});
    CHECK(weights_error(d).empty());
    const TemporaryFile file(d.bytes());
    const ModelFile g = read_gguf(file.path());
    CHECK(read_weights(g, read_config(g)).layers[0].ffn_down.factors == std::vector<float>{0});
    std::string bytes = d.bytes();
    const auto with = [&](float factor) { // the last number of the file, but for padding
        std::memcpy(bytes.data() + bytes.size() - 32, &factor, sizeof factor);
        const TemporaryFile file(bytes);
        const ModelFile g = read_gguf(file.path());
        return read_weights(g, read_config(g)).layers[0].ffn_down.factors.at(0);
    };
    CHECK(with(-0.25f) == -0.25f);
    for (const float bad : {1e36f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
        CHECK_THROWS_AS(with(bad), Error);
    d.tensors.back().ne = {2};
    check_contains(weights_error(d), "tensor 'blk.0.ffn_down.scale' has shape [2, 1, 1, 1], not [1, 1, 1, 1]");
    Draft other = small_draft();
    other.tensors.push_back({"blk.0.ffn_down.scale", GgmlType::F32, {1}});
    check_contains(weights_error(other), "tensor 'blk.0.ffn_down.scale' does not belong to a model of 'qwen3'");
}

TEST_CASE("a tensor of another architecture is refused, for ignoring it would give wrong answers") {
    Draft d = small_draft();
    d.tensors.push_back({"blk.0.attn_q.bias", GgmlType::F32, {128}});
    check_contains(weights_error(d), "tensor 'blk.0.attn_q.bias' is a bias, which tq-run does not add in models of 'qwen3'");
    Draft more = small_draft();
    more.tensors.push_back({"blk.1.attn_norm.weight", GgmlType::F32, {32}});
    check_contains(weights_error(more), "tensor 'blk.1.attn_norm.weight' does not belong to a model of 'qwen3' with 1 layers");
}

TEST_CASE("NaN and infinite weights are found by tensor and row") {
    const Draft d = small_draft();
    const std::string good = d.bytes();
    const auto error_with = [&](const std::string& name, size_t at, std::string_view patch) {
        const TemporaryFile clean(good);
        const ModelFile g = read_gguf(clean.path());
        const auto offset = g.find_tensor(name)->data.data() - g.find_tensor("token_embd.weight")->data.data();
        std::string bytes = good;
        const size_t data_begin = good.size() - [&] {
            uint64_t size = 0;
            for (const FileTensor& t : g.tensors()) size += (t.data.size() + 31) / 32 * 32;
            return size;
        }();
        bytes.replace(data_begin + size_t(offset) + at, patch.size(), patch);
        const TemporaryFile file(bytes);
        const ModelFile damaged = read_gguf(file.path());
        const Weights weights = read_weights(damaged, read_config(damaged));
        try {
            load_weights(pool, weights);
            return std::string();
        } catch (const Error& e) {
            return std::string(e.what());
        }
    };
    CHECK(error_with("token_embd.weight", 0, std::string_view("\0\0", 2)).empty());
    check_contains(error_with("token_embd.weight", 34 * 17, std::string_view("\0\x7c", 2)),
                   ": tensor 'token_embd.weight' has a weight in row 17");
    check_contains(error_with("blk.0.ffn_down.weight", 34 * 2 * 31 + 34, "\xff\xff"),
                   "tensor 'blk.0.ffn_down.weight' has a weight in row 31");
    check_contains(error_with("output_norm.weight", 31 * 4, std::string_view("\0\0\xc0\x7f", 4)),
                   "tensor 'output_norm.weight' has a weight in row 0");
    check_contains(error_with("blk.0.attn_k_norm.weight", 0, std::string_view("\0\0\x80\xff", 4)),
                   "tensor 'blk.0.attn_k_norm.weight'");
}

TEST_CASE("random models of every shape and format are models") {
    for (const auto& [heads, kv_heads] : {std::pair{3u, 3u}, {2u, 1u}, {8u, 2u}, {10u, 2u}, {8u, 1u}}) {
        for (const GgmlType type : weight_formats) {
            const TemporaryFile file;
            RandomModel model{small_config(), type};
            model.config.num_attention_heads = heads;
            model.config.num_key_value_heads = kv_heads;
            model.config.intermediate_size = 256;
            model.tied = heads % 2 == 0;
            write_random_model(file.path(), model);
            const ModelFile g = read_gguf(file.path());
            const Config config = read_config(g);
            const Weights w = read_weights(g, config);
            CHECK(config.vocab_size == 320);
            CHECK(w.tied == model.tied);
            CHECK(w.layers[1].ffn_down.type == type);
            load_weights(pool, w);
        }
    }
}

TEST_CASE("random weights have the deviation that keeps activations sane, and the same seed gives the same file") {
    for (const GgmlType type : weight_formats) {
        CAPTURE(type_name(type));
        RandomModel model{small_config(), type};
        model.config.hidden_size = 256;
        const TemporaryFile file, again, other;
        write_random_model(file.path(), model);
        write_random_model(again.path(), model);
        const ModelFile a = read_gguf(file.path()), b = read_gguf(again.path());
        const Tensor t = read_weights(a, read_config(a)).layers[1].attn_q;
        double sum = 0, squares = 0;
        for (const float x : to_floats(t)) {
            sum += x;
            squares += x * x;
        }
        const double n = double(t.rows) * t.cols;
        CHECK(std::sqrt(squares / n) * 16 == doctest::Approx(1).epsilon(0.06));
        CHECK(std::abs(sum / n) * 16 < 0.02);
        CHECK(std::ranges::equal(t.data, b.find_tensor(t.name)->data));
        model.seed = 2;
        write_random_model(other.path(), model);
        CHECK(!std::ranges::equal(t.data, read_gguf(other.path()).find_tensor(t.name)->data));
    }
}

TEST_CASE("a file with a matrix of every format that other programs write: each has the size it has") {
    const ModelFile g = read_gguf(TQ_SOURCE_DIR "/tests/data/qwen3-mixed.gguf");
    const Weights w = read_weights(g, read_config(g));
    std::set<GgmlType> types;
    for (const FileTensor& t : g.tensors()) types.insert(t.type);
    CHECK(types.size() == 16);
    CHECK(w.bytes() == 1276928);
    CHECK(!w.tied);
    load_weights(pool, w);
}
