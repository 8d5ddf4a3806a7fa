// The table of architectures: what is read, what is refused, and that the passes compute what each of them needs.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/files/formats/gguf.h"
#include "model/files/formats/gguf_writer.h"
#include "model/reference/forward.h"
#include "model/weights/paired_rows.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <bit>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <fstream>
#include <numeric>

using namespace tq;
using namespace tq::test;

namespace {

const Architecture& named(std::string_view name) {
    for (const Architecture& a : architectures)
        if (a.name == name) return a;
    FAIL("no architecture ", std::string(name));
    return architectures[0];
}

// The minimum of keys of a model of 2 heads of 64 in one layer.
ModelFile keys_of(std::string_view architecture) {
    ModelFile file("model.gguf");
    ModelFile::Metadata& keys = file.mutable_metadata();
    const auto set = [&](const char* key, const ModelFile::Value& value) {
        keys[fmt::format("{}.{}", architecture, key)] = value;
    };
    keys["general.architecture"] = file.add_text(std::string(architecture));
    keys["tokenizer.ggml.tokens"] = std::vector<std::string_view>{"a", "b"};
    for (const char* key : {"embedding_length", "feed_forward_length"}) set(key, uint64_t(128));
    set("block_count", uint64_t(1));
    set("context_length", uint64_t(2048));
    set("attention.head_count", uint64_t(2));
    set("attention.layer_norm_rms_epsilon", 1e-5);
    return file;
}

std::string config_error(const ModelFile& file) {
    try {
        read_config(file);
        return "";
    } catch (const Error& e) {
        return e.what();
    }
}

struct RandomOf {
    TemporaryFile path;
    Config config;
    std::unique_ptr<ModelFile> file;
    Weights weights;

    explicit RandomOf(std::string_view architecture, GgmlType type = GgmlType::Q8_0) {
        config = small_config(named(architecture));
        write_random_model(path.path(), {config, type, true, 5, {}});
        file = std::make_unique<ModelFile>(read_gguf(path.path()));
        config = read_config(*file);
        weights = read_weights(*file, config);
    }
};

const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 64};
const std::vector<uint32_t> prompt{5, 17, 300, 2, 99, 41, 41, 260, 7};

std::vector<float> logits(Forward& forward) {
    const auto out = forward.run(prompt);
    return {out.begin(), out.end()};
}

double relative(std::span<const float> a, std::span<const float> b) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < b.size(); i++) {
        error += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
        norm += double(b[i]) * b[i];
    }
    return std::sqrt(error / norm);
}

} // namespace

TEST_CASE("keys have the architecture's name, and some have a value where they are absent") {
    for (const char* name : {"qwen2", "llama", "qwen3moe"}) {
        ModelFile minimal = keys_of(name);
        for (const char* key : {".expert_count", ".expert_used_count"})
            if (named(name).experts) minimal.mutable_metadata()[name + std::string(key)] = uint64_t(2);
        const Config c = read_config(minimal);
        CHECK(c.architecture->name == name);
        CHECK(c.head_dim == 64);
        CHECK(c.num_key_value_heads == 2);
        CHECK(c.rope_theta == 10000);
        CHECK(c.head_norm_eps().has_value() == named(name).qk_norm);
        ModelFile& more = minimal;
        more.mutable_metadata()[std::string(name) + ".attention.key_length"] = uint64_t(128);
        more.mutable_metadata()[std::string(name) + ".attention.head_count_kv"] = uint64_t(1);
        more.mutable_metadata()[std::string(name) + ".rope.freq_base"] = 5e5;
        const Config own = read_config(more);
        CHECK(own.head_dim == 128);
        CHECK(own.num_key_value_heads == 1);
        CHECK(own.rope_theta == 5e5f);
        more.mutable_metadata()[std::string(name) + ".attention.key_length"] = uint64_t(80);
        CHECK(config_error(more) ==
              fmt::format("model.gguf: key '{}.attention.key_length' is 80; tq-run runs 64, 128 and 256", name));
    }
    ModelFile odd = keys_of("llama");
    odd.mutable_metadata()["llama.attention.head_count"] = uint64_t(4);
    CHECK(config_error(odd) == "model.gguf: the size of a head, 128 / 4, is 32; tq-run runs 64, 128 and 256");
    CHECK(contains(config_error(keys_of("qwen3")), "key 'qwen3.attention.head_count_kv' is missing"));
}

TEST_CASE("other architectures, and features that would be left out, are refused by name") {
    CHECK(architecture_names() == "qwen3, qwen3moe, qwen2, llama, qwen35, qwen35moe, qwen3next");
    CHECK(config_error(keys_of("gemma3")) == "model.gguf: its architecture is 'gemma3', and tq-run runs qwen3, qwen3moe, qwen2, "
                                             "llama, qwen35, qwen35moe, qwen3next only: choose such a model, as with -hf "
                                             "Qwen/Qwen3-4B-GGUF");
    ModelFile experts = keys_of("llama"), both_ways = keys_of("llama"), none = keys_of("llama");
    experts.mutable_metadata()["llama.expert_count"] = uint64_t(8);
    CHECK(contains(config_error(experts), "key 'llama.expert_count' is 8: it is a mixture of experts"));
    none.mutable_metadata()["llama.expert_count"] = uint64_t(0);
    CHECK(config_error(none).empty());
    both_ways.mutable_metadata()["llama.attention.causal"] = false;
    CHECK(contains(config_error(both_ways), "key 'llama.attention.causal' is false"));
}

TEST_CASE("tensors that an architecture lacks, or has beyond the table, are refused by name") {
    const auto error = [](std::string_view architecture, const char* without, const char* with, uint64_t size) {
        const RandomOf model(architecture);
        GgufWriter writer;
        for (const auto& [key, value] : model.file->metadata()) writer.set(key, value);
        for (const FileTensor& t : model.file->tensors())
            if (t.name != without) writer.add_tensor(t.name, t.type, {t.ne[0], t.ne[1]});
        if (with) writer.add_tensor(with, GgmlType::F32, {size});
        const TemporaryFile path(writer.zeros());
        const ModelFile file = read_gguf(path.path());
        try {
            read_weights(file, read_config(file));
            return std::string();
        } catch (const Error& e) {
            return std::string(e.what());
        }
    };
    CHECK(error("qwen2", "", nullptr, 0).empty());
    CHECK(contains(error("qwen2", "blk.1.attn_v.weight", nullptr, 0), "tensor 'blk.1.attn_v.weight' is missing"));
    CHECK(contains(error("qwen2", "", "blk.0.attn_output.bias", 64), "tensor 'blk.0.attn_output.bias' is a bias"));
    CHECK(contains(error("llama", "", "blk.0.attn_q.bias", 512), "is a bias, which tq-run does not add in models of 'llama'"));
    CHECK(contains(error("qwen2", "", "rope_freqs.weight", 64), "tensor 'rope_freqs.weight' changes RoPE's frequencies"));
    CHECK(contains(error("llama", "", "rope_factors_long.weight", 64), "'rope_factors_long.weight' changes RoPE's frequencies"));
    CHECK(contains(error("llama", "", "rope_freqs.weight", 63), "'rope_freqs.weight' is not 64 numbers in F32"));
    CHECK(contains(error("llama", "", "rope_freqs.weight", 64), "tensor 'rope_freqs.weight' has the value 0"));
    CHECK(contains(error("llama", "", "blk.0.attn_q_norm.weight", 128), "does not belong to a model of 'llama'"));
}

TEST_CASE("a number for each layer is as good as one, where they are equal") {
    for (const char* key : {"attention.head_count", "attention.head_count_kv", "feed_forward_length"}) {
        ModelFile file = keys_of("llama");
        file.mutable_metadata()["llama.block_count"] = uint64_t(2);
        const std::string name = std::string("llama.") + key;
        const uint64_t value = name == "llama.feed_forward_length" ? 128 : 2;
        file.mutable_metadata()[name] = std::vector<int64_t>{int64_t(value), int64_t(value)};
        CHECK(config_error(file).empty());
        CHECK(read_config(file).num_key_value_heads == 2);
        file.mutable_metadata()[name] = std::vector<uint64_t>{value, 2 * value};
        CHECK(contains(config_error(file), "has different values for layers"));
        for (const size_t count : {0, 1, 3}) {
            file.mutable_metadata()[name] = std::vector<uint64_t>(count, value);
            CHECK(config_error(file) == fmt::format("model.gguf: key '{}' has {} values for 2 layers", name, count));
        }
        file.mutable_metadata()[name] = std::vector<double>{2};
        CHECK(contains(config_error(file), "is a list of numbers, not an integer"));
    }
}

TEST_CASE("q, k and v in one matrix are those apart") {
    for (const char* name : {"qwen2", "llama"}) {
        const RandomOf model(name);
        ModelFile file("fused.gguf");
        file.mutable_metadata() = model.file->metadata();
        std::map<std::string, std::vector<std::byte>> fused; // "blk.0.attn_qkv.weight" and so on
        std::map<std::string, FileTensor> whole;
        for (const FileTensor& t : model.file->tensors()) {
            const size_t part = t.name.find(".attn_");
            const bool is_part = part != t.name.npos &&
                                 std::string_view("qkv").find(t.name[part + 6]) != std::string_view::npos &&
                                 t.name[part + 7] == '.';
            if (!is_part) {
                file.mutable_tensors().push_back(t);
                continue;
            }
            const std::string all = t.name.substr(0, part + 6) + "qkv" + t.name.substr(part + 7);
            const auto [entry, is_new] = whole.try_emplace(all, t);
            if (!is_new) entry->second.ne[t.ne[1] == 1 ? 0 : 1] += t.ne[t.ne[1] == 1 ? 0 : 1];
            fused[all].insert(fused[all].end(), t.data.begin(), t.data.end());
        }
        REQUIRE(whole.size() == (std::string_view(name) == "qwen2" ? 4 : 2));
        for (auto& [all, t] : whole) {
            t.name = all;
            t.data = fused[all];
            file.mutable_tensors().push_back(t);
        }
        const Weights weights = read_weights(file, model.config);
        std::vector<std::vector<float>> tensors;
        for_each_tensor(model.weights, [&](const Tensor& t) { tensors.push_back(to_floats(t)); });
        size_t i = 0;
        for_each_tensor(weights, [&](const Tensor& t) { CHECK(to_floats(t) == tensors[i++]); });
        CHECK(weights.layers[1].attn_k.name == "blk.1.attn_k.weight");
        fused.begin()->second.resize(1);
    }
}

TEST_CASE("the sizes of experts are keys, or follow from the feed-forward's") {
    ModelFile file = keys_of("qwen3moe");
    const auto set = [&](const char* key, uint64_t value) { file.mutable_metadata()[std::string("qwen3moe.") + key] = value; };
    for (const auto& [key, value] : {std::pair{"attention.head_count_kv", 1}, {"attention.key_length", 64}, {"expert_count", 8}})
        set(key, uint64_t(value));
    file.mutable_metadata()["qwen3moe.rope.freq_base"] = 1e6;
    CHECK(contains(config_error(file), "key 'qwen3moe.expert_used_count' is missing"));
    set("expert_used_count", 2);
    const Config derived = read_config(file);
    CHECK(derived.num_experts == 8);
    CHECK(derived.moe_intermediate_size == 64);
    CHECK(derived.intermediate_size == 128);
    CHECK(derived.norm_topk_prob);
    set("expert_feed_forward_length", 96);
    CHECK(read_config(file).intermediate_size == 192);
    set("expert_used_count", 9);
    CHECK(config_error(file) == "model.gguf: key 'qwen3moe.expert_used_count' is 9; tq-run runs 1 to 8, in steps of 1");
    set("expert_used_count", 3);
    file.mutable_metadata().erase("qwen3moe.expert_feed_forward_length");
    CHECK(contains(config_error(file), "key 'qwen3moe.feed_forward_length' is 128; tq-run runs 96 to "));
}

TEST_CASE("experts one by one are those of a stack, and each layer's have one format") {
    const RandomOf model("qwen3moe", GgmlType::F16);
    const auto apart = [&](GgmlType of_last) {
        ModelFile file("apart.gguf");
        file.mutable_metadata() = model.file->metadata();
        for (const FileTensor& t : model.file->tensors()) {
            if (t.ne[2] == 1) file.mutable_tensors().push_back(t);
            for (uint64_t e = 0; t.ne[2] > 1 && e < t.ne[2]; e++) {
                FileTensor one = t;
                one.name = t.name.substr(0, t.name.find("_exps")) + fmt::format(".{}.weight", e);
                one.ne[2] = 1;
                one.data = t.data.subspan(e * t.data.size() / t.ne[2], t.data.size() / t.ne[2]);
                if (e + 1 == t.ne[2]) one.type = of_last;
                file.mutable_tensors().push_back(one);
            }
        }
        return read_weights(file, model.config);
    };
    const Weights weights = apart(GgmlType::F16);
    for (size_t i = 0; i < weights.layers.size(); i++) {
        CHECK(to_floats(weights.layers[i].ffn_gate) == to_floats(model.weights.layers[i].ffn_gate));
        CHECK(to_floats(weights.layers[i].ffn_down) == to_floats(model.weights.layers[i].ffn_down));
    }
    std::vector<std::byte> scratch; // across two experts
    const auto rows = weights.layers[1].ffn_up.read(30, 5, scratch),
               want = model.weights.layers[1].ffn_up.data.subspan(30 * 128, 5 * 128);
    CHECK(std::ranges::equal(rows, want));
    CHECK(logits(*make_cpu_forward(model.config, weights, options)) ==
          logits(*make_cpu_forward(model.config, model.weights, options)));
    CHECK_THROWS_WITH_AS(
        apart(GgmlType::BF16),
        "apart.gguf: tensors 'blk.0.ffn_gate.0.weight' and 'blk.0.ffn_gate.5.weight' have the weight formats F16 and "
        "BF16; all experts of a layer have one",
        Error);
}

TEST_CASE("a router has F32 whatever its file has, and is not quantised at load") {
    RandomOf model("qwen3moe", GgmlType::F16);
    for (FileTensor& t : model.file->mutable_tensors())
        if (t.name == "blk.0.ffn_gate_inp.weight") t.type = GgmlType::F16, t.data = t.data.first(t.data.size() / 2);
    Weights weights = read_weights(*model.file, model.config);
    CHECK(weights.layers[0].ffn_gate_inp->type == GgmlType::F32);
    std::vector<float> first(64);
    decode_row(GgmlType::F16, first, model.file->find_tensor("blk.0.ffn_gate_inp.weight")->data.first(128));
    const std::vector<float> values = to_floats(*weights.layers[0].ffn_gate_inp);
    CHECK(std::memcmp(first.data(), values.data(), 256) == 0);
    CHECK(quantise(weights, GgmlType::Q8_0) == 15); // seven of each layer, and the embedding
    CHECK(weights.layers[1].ffn_gate_inp->type == GgmlType::F32);
    CHECK(weights.layers[1].ffn_up.type == GgmlType::Q8_0);
}

TEST_CASE("weights of experts are divided by their sum where the file says so") {
    RandomOf model("qwen3moe");
    const std::vector<float> divided = logits(*make_reference_forward(model.config, model.weights, options));
    model.config.norm_topk_prob = false;
    const std::vector<float> plain = logits(*make_reference_forward(model.config, model.weights, options));
    CHECK(relative(plain, divided) > 1e-3);
    CHECK(relative(logits(*make_cpu_forward(model.config, model.weights, options)), plain) < 1e-5);
}

TEST_CASE("rows in pairs come in halves of each head") {
    std::vector<float> values(3 * 8 * 2); // three heads of 8 rows
    std::iota(values.begin(), values.end(), 0.0f);
    const Tensor pairs{"q", GgmlType::F32, 24, 2, std::as_bytes(std::span(values))}, halves = rope_split(pairs, 8);
    const std::vector<float> got = to_floats(halves);
    for (uint32_t head = 0; head < 3; head++)
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t col = 0; col < 2; col++) {
                CHECK(got[(head * 8 + i) * 2 + col] == values[(head * 8 + 2 * i) * 2 + col]);
                CHECK(got[(head * 8 + 4 + i) * 2 + col] == values[(head * 8 + 2 * i + 1) * 2 + col]);
            }
    std::vector<std::byte> scratch;
    const auto two = halves.read(11, 2, scratch); // across the halves of the second head
    CHECK(std::memcmp(two.data(), &got[22], 16) == 0);
}

TEST_CASE("q, k and v get their biases, and heads no norm") {
    const RandomOf model("qwen2");
    std::vector<float> a;
    size_t seen = 0;
    const auto check = [&](const host::Pass& pass, std::string_view name, std::span<float> values) {
        if (name == "attn_norm") a.assign(values.begin(), values.end());
        if (name != "k" && name != "v") return;
        const LayerWeights& l = model.weights.layers[pass.layer()->number];
        const Tensor& w = name == "k" ? l.attn_k : l.attn_v;
        const std::vector<float> rows = to_floats(w), bias = to_floats(name == "k" ? *l.attn_k_bias : *l.attn_v_bias);
        double worst = 0;
        for (size_t i = 0; i < values.size(); i++) {
            const size_t row = i % w.rows, token = i / w.rows;
            double sum = double(bias[row]);
            for (size_t c = 0; c < w.cols; c++) sum += double(rows[row * w.cols + c]) * a[token * w.cols + c];
            worst = std::max(worst, std::fabs(sum - double(values[i])));
        }
        CHECK(worst < 1e-5);
        seen++;
    };
    const auto forward = make_reference_forward(model.config, model.weights, options, check);
    forward->run(prompt);
    CHECK(seen == 4);
    StoredSide keys = forward->stored(1, KvSide::key); // not normalised: their lengths differ
    std::vector<double> squares;
    for (uint32_t t = 0; t < keys.tokens; t++) {
        double sum = 0;
        for (const uint32_t word : keys.codes_of(0, t)) sum += std::pow(double(std::bit_cast<float>(word)), 2);
        squares.push_back(sum);
    }
    CHECK(*std::ranges::max_element(squares) > 1.02 * *std::ranges::min_element(squares));
}

TEST_CASE("the CPU path agrees with the reference in every architecture") {
    for (const Architecture& a : architectures) {
        const std::string name(a.name);
        CAPTURE(name);
        const RandomOf model(a.name);
        const std::vector<float> want = logits(*make_reference_forward(model.config, model.weights, options));
        const auto cpu = make_cpu_forward(model.config, model.weights, options);
        CHECK(relative(logits(*cpu), want) < 1e-5);
        cpu->truncate(0);
        std::vector<float> last;
        for (const uint32_t id : prompt) {
            const auto out = cpu->run({&id, 1});
            last.assign(out.begin(), out.end());
        }
        CHECK(relative(last, want) < 1e-5);
    }
}

TEST_CASE("the mean of a bias after RoPE, which stored keys lack, costs nothing and saves most of a great bias") {
    RandomOf model("qwen2");
    std::vector<std::vector<float>> biases;
    for (LayerWeights& l : model.weights.layers) { // greater than keys in pairs of channels that turn slowly
        std::vector<float>& values = biases.emplace_back(to_floats(*l.attn_k_bias));
        for (const size_t channel : {55, 60, 63, 64 + 58, 64 + 61, 128 + 59, 128 + 64 + 62}) values[channel] = 70;
    }
    for (size_t i = 0; i < biases.size(); i++) model.weights.layers[i].attn_k_bias->data = std::as_bytes(std::span(biases[i]));
    const auto run = [&](KvType keys, const char* conditioning, bool on_cpu) {
        ForwardOptions o{.kv = {keys, KvType::f32}, .context_size = 64};
        o.kv.conditioning = parse_key_conditioning(conditioning);
        return logits(on_cpu ? *make_cpu_forward(model.config, model.weights, o)
                             : *make_reference_forward(model.config, model.weights, o));
    };
    const std::vector<float> exact = run(KvType::f32, "none", false);
    CHECK(relative(run(KvType::f32, "norms", false), exact) < 1e-5);
    for (const bool on_cpu : {false, true}) {
        const double without = relative(run(KvType::q8_0, "none", on_cpu), exact),
                     with = relative(run(KvType::q8_0, "auto", on_cpu), exact);
        CAPTURE(without);
        CAPTURE(with);
        CHECK(with * 5 < without);
    }
}

TEST_CASE("biases of zero change nothing, others do") {
    RandomOf llama("llama");
    const std::vector<float> plain = logits(*make_reference_forward(llama.config, llama.weights, options));
    const uint32_t q = llama.config.num_attention_heads * llama.config.head_dim,
                   kv = llama.config.num_key_value_heads * llama.config.head_dim;
    std::vector<float> values(q, 0.0f);
    const auto bytes = std::as_bytes(std::span(values));
    for (LayerWeights& l : llama.weights.layers) {
        l.attn_q_bias = Tensor{"q bias", GgmlType::F32, 1, q, bytes};
        l.attn_k_bias = Tensor{"k bias", GgmlType::F32, 1, kv, bytes.first(kv * 4)};
        l.attn_v_bias = Tensor{"v bias", GgmlType::F32, 1, kv, bytes.first(kv * 4)};
    }
    CHECK(logits(*make_reference_forward(llama.config, llama.weights, options)) == plain);
    std::ranges::fill(values, 0.5f);
    CHECK(relative(logits(*make_reference_forward(llama.config, llama.weights, options)), plain) > 0.01);
}

TEST_CASE("biases of q, k and v that a file of Qwen2 lacks are 0") {
    for (const std::string_view lacking : {"qkv", "kv", "q"}) {
        CAPTURE(lacking);
        RandomOf whole("qwen2");
        const auto lacks = [&](const std::string& name) {
            return std::ranges::any_of(lacking, [&](char of) { return name.ends_with(fmt::format("attn_{}.bias", of)); });
        };
        GgufWriter writer;
        for (const auto& [key, value] : whole.file->metadata()) writer.set(key, value);
        std::vector<std::span<const std::byte>> kept;
        for (const FileTensor& t : whole.file->tensors()) {
            if (lacks(t.name)) continue;
            writer.add_tensor(t.name, t.type, {t.ne[0], t.ne[1]});
            kept.push_back(t.data);
        }
        const TemporaryFile path;
        std::ofstream out(path.path(), std::ios::binary);
        writer.write(out, [&](size_t i, std::ostream& to) {
            to.write(reinterpret_cast<const char*>(kept[i].data()), std::streamsize(kept[i].size()));
        });
        out.close();
        const ModelFile file = read_gguf(path.path());
        const Config config = read_config(file);
        const Weights weights = read_weights(file, config);
        const std::vector<float> zeros(whole.config.num_attention_heads * whole.config.head_dim);
        for (LayerWeights& l : whole.weights.layers)
            for (std::optional<Tensor>* t : {&l.attn_q_bias, &l.attn_k_bias, &l.attn_v_bias})
                if (lacks((*t)->name)) (*t)->data = std::as_bytes(std::span(zeros)).first((*t)->data.size());
        const std::vector<float> want = logits(*make_reference_forward(whole.config, whole.weights, options));
        CHECK(logits(*make_reference_forward(config, weights, options)) == want);
        CHECK(relative(logits(*make_cpu_forward(config, weights, options)), want) < 1e-5);
    }
}
