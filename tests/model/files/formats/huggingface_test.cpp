// Directories from Hugging Face: they are read with the values that a converter to GGUF would write, and unsupported ones are
// refused with file and key.
#include "base/error.h"
#include "base/path_text.h"
#include "model/cpu/forward.h"
#include "model/engine/sampling/sampler.h"
#include "model/files/formats/huggingface.h"
#include "model/files/formats/safetensors.h"
#include "model/model.h"
#include "model/text/chat_template.h"
#include "tests/support/golden.h"
#include "tests/support/huggingface_files.h"
#include <algorithm>
#include <doctest/doctest.h>

using namespace tq;
using namespace tq::test;

namespace {

using Texts = std::vector<std::string_view>;
using Ints = std::vector<int64_t>;

// The error of loading small_huggingface_model() after `change`, without the directory; "" when there is none.
template <class Change> std::string error_after(Change change) {
    HuggingFaceFiles files = small_huggingface_model();
    change(files);
    const TemporaryDirectory directory;
    files.write(directory);
    try {
        load_model(directory.path());
        return "";
    } catch (const Error& e) {
        const std::string text = e.what(), begin = utf8_text(directory.path());
        CAPTURE(text);
        CHECK(text.starts_with(begin));
        CHECK(text.find('\n') == std::string::npos);
        CHECK(text.size() < 600);
        return text.substr(std::min(text.size(), begin.size()));
    }
}

template <class Change> void check_refused(Change change, const std::string& why) {
    const std::string error = error_after(change);
    CAPTURE(error);
    CAPTURE(why);
    CHECK(error.find(why) != std::string::npos);
}

struct Case {
    const char* key;
    json value; // "absent" takes the key away
    const char* why;
};

void check_cases(const char* document, std::initializer_list<Case> cases) {
    for (const Case& c : cases) {
        check_refused(
            [&](HuggingFaceFiles& files) {
                json& target = files.documents[document];
                if (c.value == "absent")
                    target.erase(c.key);
                else
                    target[json::json_pointer(std::string("/") + c.key)] = c.value;
            },
            c.why);
    }
}

template <class Change> ChatVariant variant_after(Change change) {
    HuggingFaceFiles files = small_huggingface_model();
    change(files);
    const TemporaryDirectory directory;
    files.write(directory);
    return load_model(directory.path()).chat;
}

} // namespace

TEST_CASE("a small directory loads, by its own path or a file in it") {
    const TemporaryDirectory directory;
    small_huggingface_model().write(directory);
    for (const char* name : {"", "config.json", "model.safetensors"}) {
        const Model model = load_model(name[0] ? directory.path() / name : directory.path());
        CHECK(model.config.num_hidden_layers == 1);
        CHECK(model.config.hidden_size == 32);
        CHECK(model.config.intermediate_size == 64);
        CHECK(model.config.head_dim == 64);
        CHECK(model.config.max_position_embeddings == 4096);
        CHECK(model.config.rope_theta == 1e6f);
        CHECK(model.config.rms_norm_eps == 1e-6f);
        CHECK(model.config.vocab_size == 288);
        CHECK(model.weights.tied);
        CHECK(model.name == utf8_text(directory.path().filename()));
        CHECK(model.tokenizer.encode("aaaaus<|im_end|>") == std::vector<uint32_t>{257, 258, 260});
        for (const uint32_t id : {259u, 260u}) CHECK(model.tokenizer.is_end_of_generation(id));
        CHECK(!model.tokenizer.is_end_of_generation(261));
        CHECK(model.tokenizer.is_unused(263));
        const SamplerOptions sampling = recommended_sampling(model.file, false);
        CHECK(sampling.temperature == 0.5f);
        CHECK(sampling.top_k == 7);
        CHECK(sampling.top_p == 0.75f);
        CHECK(sampling.repeat_penalty == SamplerOptions().repeat_penalty);
    }
}

TEST_CASE("the tokenizer of a directory is that of a GGUF file made by another program") {
    const ModelFile hf = open_model_file(test_data("qwen3-tied-hf")), gguf = open_model_file(test_data("qwen3-mixed.gguf"));
    CHECK(hf.strings("tokenizer.ggml.tokens") == gguf.strings("tokenizer.ggml.tokens"));
    CHECK(hf.strings("tokenizer.ggml.merges") == gguf.strings("tokenizer.ggml.merges"));
    CHECK(std::get<Ints>(*hf.find("tokenizer.ggml.token_type")) == std::get<Ints>(*gguf.find("tokenizer.ggml.token_type")));
    for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.chat_template", "general.architecture"})
        CHECK(hf.text(key) == gguf.text(key));
    CHECK(hf.integer("tokenizer.ggml.eos_token_id") == gguf.integer("tokenizer.ggml.eos_token_id"));
}

TEST_CASE("a single file in F32 gives the golden logits") {
    const auto folder = test_data("qwen3-tied-hf");
    const TemporaryDirectory directory;
    for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "expected.json"})
        std::filesystem::copy_file(folder / name, directory.path() / name);
    SafetensorsWriter writer;
    for (const char* shard : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
        ModelFile file(folder);
        for (const FileTensor& t : read_safetensors(file, folder / shard)) {
            std::vector<float> values(t.ne[0] * t.ne[1]);
            decode_row(t.type, values, t.data);
            const bool is_vector = t.ne[1] == 1;
            writer.add(t.name, "F32", is_vector ? std::vector{t.ne[0]} : std::vector{t.ne[1], t.ne[0]},
                       {reinterpret_cast<const char*>(values.data()), values.size() * 4});
        }
    }
    directory.write("model.safetensors", writer.bytes());
    const Golden golden = load_golden(directory.path());
    CHECK(golden.weights.layers[1].ffn_up.type == GgmlType::F32);
    check_golden(golden,
                 *make_cpu_forward(golden.config, golden.weights, {.kv = {KvType::f32, KvType::f32}, .context_size = 64}));
}

TEST_CASE("a config that we cannot run is refused by file and key") {
    check_cases(
        "config.json",
        {{"model_type", "absent", "/config.json: 'model_type' is missing"},
         {"model_type", "gemma3",
          "/config.json: 'model_type' is \"gemma3\"; tq-run runs qwen3, qwen3_moe, qwen2, llama, qwen3_5, "
          "qwen3_5_moe, qwen3_next only"},
         {"model_type", "qwen4_exp",
          "\"qwen4_exp\"; tq-run runs qwen3, qwen3_moe, qwen2, llama, qwen3_5, qwen3_5_moe, qwen3_next only"},
         {"model_type", "llama", "'architectures' is [\"Qwen3ForCausalLM\"]; tq-run runs [\"LlamaForCausalLM\"] and"},
         {"architectures", {"Qwen3ForSequenceClassification"}, "'architectures' is [\"Qwen3ForSequenceClassification\"]"},
         {"hidden_act", "gelu", "'hidden_act' is \"gelu\""},
         {"attention_bias", true, "'attention_bias' is true; tq-run runs models of 'qwen3' without biases only"},
         {"mlp_bias", true, "'mlp_bias' is true"},
         {"rope_interleaved", true, "'rope_interleaved' is true"},
         {"use_sliding_window", true, "'use_sliding_window' is true"},
         {"layer_types", {"full_attention", "sliding_attention"}, "'layer_types' has \"sliding_attention\""},
         {"partial_rotary_factor", 0.5, "'partial_rotary_factor' is 0.5"},
         {"quantization_config", {{"quant_method", "fp8"}}, "has the method \"fp8\", which is not supported"},
         {"quantization", {{"group_size", 64}, {"bits", 4}}, "'quantization' has the method {\"bits\":4"},
         {"quantization_config", 1, "'quantization_config' has the method 1"},
         {"num_hidden_layers", "absent", "/config.json: 'num_hidden_layers' is missing"},
         {"num_hidden_layers", 0, "/config.json: 'num_hidden_layers' is 0; tq-run runs"},
         {"num_hidden_layers", -1, "/config.json: 'num_hidden_layers' is -1, less than 0"},
         {"num_hidden_layers", 1.5, "/config.json: 'num_hidden_layers' is a real number, not an integer"},
         {"num_hidden_layers", json::array(), "/config.json: 'num_hidden_layers' is a list, not a number or text"},
         {"num_hidden_layers", 2, "tensor 'blk.1.attn_norm.weight' is missing"},
         {"hidden_size", 33, "/config.json: 'hidden_size' is 33"},
         {"hidden_size", 64, "has shape [32, 288, 1, 1], not [64, 288, 1, 1]"},
         {"hidden_size", uint64_t(1) << 63, "/config.json: 'hidden_size' is 9223372036854775808"},
         {"head_dim", nullptr, "/config.json: 'head_dim' is missing"},
         {"head_dim", 80, "/config.json: 'head_dim' is 80; tq-run runs 64, 128 and 256"},
         {"num_key_value_heads", 3, "1 query heads on 3 key/value heads"},
         {"rope_theta", "absent", "/config.json: 'rope_theta' is missing"},
         {"rope_theta", 0, "/config.json: 'rope_theta' is 0; tq-run runs"},
         {"rope_theta", "x", "/config.json: 'rope_theta' is a text, not a number"},
         {"rms_norm_eps", 0, "/config.json: 'rms_norm_eps' is 0"},
         {"max_position_embeddings", 0, "/config.json: 'max_position_embeddings' is 0"},
         {"vocab_size", 287, "/config.json: 'vocab_size' is 287, but tensor 'model.embed_tokens.weight' has 288 rows"},
         {"tie_word_embeddings", false, "tensor 'lm_head.weight' is missing, and 'tie_word_embeddings'"},
         {"tie_word_embeddings", "absent", "tensor 'lm_head.weight' is missing"},
         {"tie_word_embeddings", 1, "/config.json: 'tie_word_embeddings' is an unsigned integer, not a boolean"},
         {"eos_token_id", -1, "/config.json: 'eos_token_id' is neither a token's id nor a list of them"},
         {"eos_token_id", {1, "x"}, "'eos_token_id' is neither"},
         {"eos_token_id", 288, "'eos_token_id' of config.json or generation_config.json is 288; there are 288 tokens"},
         {"rope_scaling", 4, "/config.json: 'rope_scaling' is an integer, not an object"},
         {"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}, "/config.json: 'rope_scaling.rope_type' is 'dynamic'"},
         {"rope_scaling", {{"rope_type", "yarn"}, {"mscale", 2}}, "'rope_scaling.mscale' is an unknown key"},
         {"rope_scaling",
          {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}},
          "'rope_scaling.original_max_position_embeddings' is missing"},
         {"rope_scaling", {{"rope_type", 4}}, "'rope_scaling.rope_type' is an unsigned integer, not a text"},
         {"rope_parameters",
          {{"rope_type", "default"}, {"rope_theta", 1e13}},
          "'rope_parameters.rope_theta' is 10000000000000; tq-run runs"}});
    check_refused([](HuggingFaceFiles& f) { f.documents["config.json"] = json::array(); },
                  "/config.json: it is a list, not an object");
    check_refused(
        [](HuggingFaceFiles& f) {
            f.documents["config.json"]["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2}};
            f.documents["config.json"]["rope_parameters"] = {{"rope_type", "default"}};
        },
        "'rope_parameters' and 'rope_scaling' are both present and differ");
    const auto config_text = [](const std::string& text) {
        return error_after([&](HuggingFaceFiles& f) {
            f.documents.erase("config.json");
            f.texts["config.json"] = text;
        });
    };
    CHECK(config_text("{\"a\": 1, \"a\": 2}") == "/config.json: the key 'a' occurs twice");
    CHECK(config_text("{").starts_with("/config.json: it is not JSON: parse error at line 1"));
    CHECK(config_text(std::string(65, '[')) == "/config.json: it is nested deeper than 64 levels");
    CHECK(config_text("{\"a\": 1e999}").starts_with("/config.json: it is not JSON: number overflow"));
    CHECK(config_text(std::string((1 << 20) + 1, ' '))
              .ends_with("has 1048577 bytes, more than the 1048576 that such a file has at most"));
}

TEST_CASE("a part of a head for RoPE that cannot be is refused by its name, and a wrong head by its own") {
    const auto hybrid = [](HuggingFaceFiles& f, double part, uint64_t head_dim) {
        f.documents["config.json"].update({{"model_type", "qwen3_next"},
                                           {"architectures", {"Qwen3NextForCausalLM"}},
                                           {"layer_types", {"full_attention"}},
                                           {"linear_num_key_heads", 1},
                                           {"linear_num_value_heads", 1},
                                           {"linear_key_head_dim", 128},
                                           {"linear_value_head_dim", 128},
                                           {"linear_conv_kernel_dim", 4},
                                           {"num_experts", 2},
                                           {"num_experts_per_tok", 1},
                                           {"moe_intermediate_size", 32},
                                           {"shared_expert_intermediate_size", 32},
                                           {"head_dim", head_dim},
                                           {"partial_rotary_factor", part}});
    };
    for (const double part : {0.0, -1.0, 2.0})
        check_refused([&](HuggingFaceFiles& f) { hybrid(f, part, 256); },
                      fmt::format("'partial_rotary_factor' is {}; tq-run runs parts above 0, up to 1", part));
    check_refused([&](HuggingFaceFiles& f) { hybrid(f, 0.3, 256); },
                  "'partial_rotary_factor', in channels of a head, is 76, but the head dimension is 256");
    check_refused([&](HuggingFaceFiles& f) { hybrid(f, 0.25, 0); }, "'head_dim' is 0; tq-run runs");
    check_refused([&](HuggingFaceFiles& f) { hybrid(f, 1, UINT64_MAX); }, "'head_dim' is 18446744073709551615; tq-run runs");
}

TEST_CASE("names for the same, and a window that no layer has, are no error") {
    for (const json& same : {json{{"hidden_act", "swish"}},
                             json{{"use_sliding_window", true}, {"sliding_window", 4096}, {"max_window_layers", 28}}}) {
        CAPTURE(same.dump());
        HuggingFaceFiles files = small_huggingface_model();
        files.documents["config.json"].update(same);
        const TemporaryDirectory directory;
        files.write(directory);
        CHECK_NOTHROW(load_model(directory.path()));
    }
    check_refused(
        [](HuggingFaceFiles& files) {
            files.documents["config.json"].update(
                {{"use_sliding_window", true}, {"sliding_window", 4096}, {"max_window_layers", 0}});
        },
        "'use_sliding_window' is true");
}

TEST_CASE("RoPE's parameters are found where older and newer releases have them") {
    const auto read = [](const json& parameters, const char* key) {
        HuggingFaceFiles files = small_huggingface_model();
        json& config = files.documents["config.json"];
        if (key == std::string("rope_parameters")) config.erase("rope_theta");
        config[key] = parameters;
        const TemporaryDirectory directory;
        files.write(directory);
        ModelFile file(directory.path());
        read_huggingface_config(file, directory.path());
        return file;
    };
    const ModelFile plain = read({{"rope_type", "default"}, {"rope_theta", 5e6}}, "rope_parameters");
    CHECK(plain.real("qwen3.rope.freq_base") == 5e6);
    CHECK(plain.text("qwen3.rope.scaling.type") == "none");
    const ModelFile yarn = read({{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}}, "rope_scaling");
    CHECK(yarn.real("qwen3.rope.freq_base") == 1e6);
    CHECK(yarn.text("qwen3.rope.scaling.type") == "yarn");
    CHECK(yarn.real("qwen3.rope.scaling.factor") == 4);
    CHECK(yarn.integer("qwen3.rope.scaling.original_context_length") == 32768);
    CHECK(!yarn.find("qwen3.rope.scaling.attn_factor"));
    const ModelFile more = read({{"rope_type", "yarn"},
                                 {"factor", 4},
                                 {"rope_theta", 1e6},
                                 {"attention_factor", 2 * (0.1 * std::log(4.0) + 1)},
                                 {"beta_fast", 16},
                                 {"beta_slow", 2}},
                                "rope_parameters");
    CHECK(more.integer("qwen3.rope.scaling.original_context_length") == 4096);
    CHECK(more.real("qwen3.rope.scaling.attn_factor") == doctest::Approx(2));
    CHECK(more.real("qwen3.rope.scaling.yarn_beta_fast") == 16);
    CHECK(more.real("qwen3.rope.scaling.yarn_beta_slow") == 2);
}

TEST_CASE("a recommendation that is no number is refused; none is as good") {
    const auto sampling_of = [](const json& generation) {
        HuggingFaceFiles files = small_huggingface_model();
        files.documents["generation_config.json"] = generation;
        const TemporaryDirectory directory;
        files.write(directory);
        return recommended_sampling(load_model(directory.path()).file, false);
    };
    CHECK(sampling_of({{"repetition_penalty", 1.25}, {"min_p", 0.125}}).repeat_penalty == 1.25f);
    CHECK(sampling_of({{"repetition_penalty", 1.25}, {"min_p", 0.125}}).min_p == 0.125f);
    CHECK(sampling_of({{"temperature", nullptr}}).temperature == qwen_sampling(false).temperature);
    CHECK_THROWS_WITH(sampling_of({{"temperature", "warm"}}),
                      doctest::Contains("generation_config.json: 'temperature' is a text"));
    CHECK_THROWS_WITH(sampling_of({{"top_k", 2.5}}), doctest::Contains("generation_config.json: 'top_k' is a real number"));
    CHECK(error_after([](HuggingFaceFiles& f) { f.documents.erase("generation_config.json"); }).empty());
    check_cases("generation_config.json", {{"eos_token_id", "x", "/generation_config.json: 'eos_token_id' is neither"},
                                           {"eos_token_id", json(std::vector<int>(65, 1)), "65 entries, more than the 64"},
                                           {"top_k", json::array(), "/generation_config.json: 'top_k' is a list"}});
}

TEST_CASE("the head: tied, its own, or a copy that is left out") {
    const auto load = [](bool tied, bool has_head) {
        HuggingFaceFiles files = small_huggingface_model();
        files.documents["config.json"]["tie_word_embeddings"] = tied;
        if (has_head) files.weights.add("lm_head.weight", "BF16", {288, 32}, std::string(288 * 64, '\0'));
        const TemporaryDirectory directory;
        files.write(directory);
        return load_model(directory.path()).weights.tied;
    };
    CHECK(load(true, false));
    CHECK(load(true, true));
    CHECK(!load(false, true));
}

TEST_CASE("tensors that the architecture does not have are refused") {
    check_refused(
        [](HuggingFaceFiles& f) { f.weights.add("model.layers.0.self_attn.q_proj.bias", "BF16", {64}, std::string(128, '\0')); },
        "tensor 'blk.0.attn_q.bias' is a bias, which tq-run does not add in models of 'qwen3'");
    check_refused([](HuggingFaceFiles& f) { f.weights.add("model.layers.0.mlp.gate_proj.weight_scale_inv", "F32", {1}, "aaaa"); },
                  "tensor 'model.layers.0.mlp.gate_proj.weight_scale_inv' does not belong to a model of 'qwen3'");
    check_refused([](HuggingFaceFiles& f) { f.weights.add("blk.0.attn_norm.weight", "F32", {1}, "aaaa"); },
                  "tensor 'blk.0.attn_norm.weight'");
    check_refused([](HuggingFaceFiles& f) { f.weights = {}; },
                  ": neither model.safetensors nor model.safetensors.index.json is there");
    CHECK(gguf_tensor_name("model.layers.35.mlp.down_proj.weight") == "blk.35.ffn_down.weight");
    CHECK(gguf_tensor_name("model.layers.35") == "model.layers.35");
    CHECK(gguf_tensor_name("model.layers.") == "model.layers.");
}

TEST_CASE("chat templates: in the configuration, in a list, in a file of their own") {
    const std::string loop =
        "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}{% if add_generation_prompt %}";
    const std::string hybrid =
        loop + "{% if enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}";
    const std::string thinking = loop + "{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}";
    const std::string instruct = loop + "{{ '<|im_start|>assistant\\n' }}{% endif %}";
    for (const auto& [text, variant] :
         {std::pair(hybrid, ChatVariant::hybrid), {thinking, ChatVariant::thinking}, {instruct, ChatVariant::instruct}}) {
        CHECK(variant_after([&](HuggingFaceFiles& f) { f.documents["tokenizer_config.json"]["chat_template"] = text; }) ==
              variant);
        CHECK(variant_after([&](HuggingFaceFiles& f) {
                  f.documents["tokenizer_config.json"]["chat_template"] = {{{"name", "tool_use"}, {"template", "x"}},
                                                                           {{"name", "default"}, {"template", text}}};
              }) == variant);
        CHECK(variant_after([&](HuggingFaceFiles& f) {
                  f.documents["tokenizer_config.json"]["chat_template"] = variant == ChatVariant::hybrid ? instruct : hybrid;
                  f.texts["chat_template.jinja"] = text;
              }) == variant);
    }
    CHECK(variant_after([](HuggingFaceFiles&) {}) == ChatVariant::instruct);
    check_cases(
        "tokenizer_config.json",
        {{"chat_template", 1, "/tokenizer_config.json: 'chat_template' is neither a text nor a list with one named \"default\""},
         {"chat_template", json::array(), "'chat_template' is neither"},
         {"add_bos_token", true, "/tokenizer_config.json: 'add_bos_token' is true, but tokenizer.json has no 'post_processor'"},
         {"add_bos_token", "yes", "/tokenizer_config.json: 'add_bos_token' is a text, not a boolean"}});
}

TEST_CASE("paths that lead to no model say what is there") {
    const TemporaryDirectory directory;
    const auto error = [&](const char* name) {
        try {
            open_model_file(name[0] ? directory.path() / name : directory.path());
            return std::string();
        } catch (const Error& e) {
            return std::string(e.what());
        }
    };
    const auto check = [&](const char* name, const char* why) {
        CAPTURE(error(name));
        CHECK(error(name).find(why) != std::string::npos);
    };
    check("", "is a directory without config.json: a model from Hugging Face has");
    directory.write("b.gguf", "x");
    directory.write("a.gguf", "x");
    check("", "to run the GGUF file in it, name the file itself: ");
    check("", "a.gguf");
    check("none.gguf", "cannot open ");
    check("model.safetensors", "model.safetensors does not exist");
    check("a.gguf", "the file is cut off");
    directory.write("pytorch_model.bin", std::string("PK\x03\x04", 4) + "x");
    check("pytorch_model.bin", "PyTorch files are not supported, as they can run code when they are read");
    directory.write("old.pt", "\x80\x02x");
    check("old.pt", "PyTorch files are not supported");
    directory.write("notes.txt", "hello there");
    check("notes.txt", "not a GGUF file: it begins with \"hell\"");
    directory.write("model.safetensors", "x");
    check("model.safetensors", "is a directory without config.json");
    directory.write("config.json", "{\"model_type\": \"qwen3\"}");
    check("", "model.safetensors: the file is cut off after 1 bytes");
}
