// Directories as the makers of models publish them: the names of tensors of models without a head, Llama 3's scaling and
// tokenizer, tokens around every text, and settings of generation.
#include "base/error.h"
#include "model/engine/sampling/sampler.h"
#include "model/files/formats/gguf.h"
#include "model/files/formats/gguf_writer.h"
#include "model/files/formats/huggingface.h"
#include "model/model.h"
#include "model/rope.h"
#include "tests/support/huggingface_files.h"
#include "tests/support/random_model.h"
#include "tests/support/text.h"
#include "tests/support/vocabulary_file.h"
#include <doctest/doctest.h>

using namespace tq;
using namespace tq::test;

namespace {

Model load(const HuggingFaceFiles& files) {
    const TemporaryDirectory directory;
    files.write(directory);
    return load_model(directory.path());
}

std::string error_of(const HuggingFaceFiles& files) {
    try {
        load(files);
        return "";
    } catch (const Error& error) {
        return error.what();
    }
}

// The small model as a directory of a model without a head.
HuggingFaceFiles headless() {
    HuggingFaceFiles files = small_huggingface_model();
    json header = json::object();
    for (const auto& [name, entry] : files.weights.header.items()) header[name.substr(std::string("model.").size())] = entry;
    files.weights.header = header;
    return files;
}

const json llama3_scaling{{"rope_type", "llama3"},
                          {"factor", 32.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 8192}};

json template_processing(const json& single) {
    return {
        {"type", "Sequence"},
        {"processors",
         {{{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}},
          {{"type", "TemplateProcessing"}, {"single", single}, {"pair", json::array()}, {"special_tokens", json::object()}}}}};
}

const json text_piece{{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
json token_piece(const char* token) { return {{"SpecialToken", {{"id", token}, {"type_id", 0}}}}; }

// The pipeline of Llama 3's tokenizer.json over the small vocabulary.
HuggingFaceFiles llama3_tokenizer() {
    HuggingFaceFiles files = small_huggingface_model();
    json& root = files.documents["tokenizer.json"];
    root["normalizer"] = nullptr;
    root["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!"
        "\\S)|\\s+";
    root["model"]["ignore_merges"] = true;
    root["post_processor"] = template_processing({token_piece("<|endoftext|>"), text_piece});
    files.documents["tokenizer_config.json"]["tokenizer_class"] = "PreTrainedTokenizerFast";
    return files;
}

} // namespace

TEST_CASE("tensors of a model without a head have their names without \"model.\"") {
    const HuggingFaceFiles with = small_huggingface_model();
    for (const char* name : {"Qwen3Model", "Qwen3ForCausalLM"}) {
        HuggingFaceFiles files = headless();
        files.documents["config.json"]["architectures"] = json::array({name});
        const Model model = load(files);
        CHECK(model.weights.tied);
        CHECK(model.notes.empty());
        CHECK(model.weights.layers.size() == 1);
        files.documents["config.json"]["tie_word_embeddings"] = false; // as Qwen3-Embedding-8B: there is no head at all
        const Model untied = load(files);
        CHECK(untied.weights.tied);
        REQUIRE(untied.notes.size() == 1);
        CHECK(contains(untied.notes[0], "has no head (lm_head.weight): it makes embeddings"));
    }
    HuggingFaceFiles both = headless();
    both.weights.add("model.norm.weight", "BF16", {32}, std::string(64, '\0'));
    CHECK(contains(error_of(both), "is there twice, with \"model.\" before its name and without"));
    HuggingFaceFiles other = headless();
    other.documents["config.json"]["architectures"] = json::array({"Qwen3ForSequenceClassification"});
    CHECK(contains(error_of(other), "tq-run runs [\"Qwen3ForCausalLM\"] and [\"Qwen3Model\"] only"));
    other = headless();
    other.documents["config.json"]["is_causal"] = false;
    CHECK(contains(error_of(other), "'is_causal' is false; tq-run runs causal attention only"));
    CHECK(gguf_tensor_name("layers.35.self_attn.q_norm.weight") == "blk.35.attn_q_norm.weight");
    CHECK(gguf_tensor_name("embed_tokens.weight") == "token_embd.weight");
    CHECK(gguf_tensor_name("layers.0.mlp.experts.7.up_proj.weight") == "blk.0.ffn_up.7.weight");
}

TEST_CASE("the names of tensors that each family's directories have") {
    const char* layer[] = {"input_layernorm.weight",
                           "mlp.down_proj.weight",
                           "mlp.gate_proj.weight",
                           "mlp.up_proj.weight",
                           "self_attn.k_proj.weight",
                           "self_attn.o_proj.weight",
                           "post_attention_layernorm.weight",
                           "self_attn.q_proj.weight",
                           "self_attn.v_proj.weight",
                           "self_attn.k_norm.weight",
                           "self_attn.q_norm.weight",
                           "self_attn.k_proj.bias",
                           "self_attn.q_proj.bias",
                           "self_attn.v_proj.bias",
                           "mlp.gate.weight",
                           "mlp.experts.127.gate_proj.weight",
                           "mlp.experts.0.up_proj.weight"};
    for (const char* prefix : {"model.", ""}) {
        for (const char* name : layer) CHECK(gguf_tensor_name(std::string(prefix) + "layers.27." + name).starts_with("blk.27."));
        for (const char* name : {"embed_tokens.weight", "norm.weight"})
            CHECK(gguf_tensor_name(std::string(prefix) + name) != prefix + std::string(name));
    }
    CHECK(gguf_tensor_name("lm_head.weight") == "output.weight");
}

TEST_CASE("a token behind every text is what embeddings end with") {
    HuggingFaceFiles files = headless();
    files.documents["config.json"]["eos_token_id"] = 260; // <|im_end|>
    files.documents["generation_config.json"].erase("eos_token_id");
    files.documents["tokenizer.json"]["post_processor"] = template_processing({text_piece, token_piece("<|endoftext|>")});
    const Model model = load(files);
    CHECK(model.file.boolean("tokenizer.ggml.add_eos_token", false));
    CHECK(model.file.integer("tokenizer.ggml.eos_token_id") == 259);
    CHECK(model.tokenizer.is_end_of_generation(260));
    CHECK(model.tokenizer.prompt("us") == model.tokenizer.encode("us"));
    for (const json& single : {json::array({text_piece, text_piece}), json::array({token_piece("<|endoftext|>")}), json::array(),
                               json(1), json::array({token_piece("<|im_end|>"), token_piece("<|im_end|>"), text_piece})}) {
        files.documents["tokenizer.json"]["post_processor"] = template_processing(single);
        CHECK(contains(error_of(files), "; we know ByteLevel, and templates with a token before or behind the text"));
    }
    files.documents["tokenizer.json"]["post_processor"] = template_processing({text_piece, token_piece("<end>")});
    CHECK(contains(error_of(files), "the vocabulary has no token '<end>', which 'post_processor' adds to texts"));
}

TEST_CASE("Llama 3's tokenizer.json") {
    const Model model = load(llama3_tokenizer());
    CHECK(model.file.text("tokenizer.ggml.pre") == "llama-bpe");
    CHECK(model.tokenizer.prompt("aaaaus") == std::vector<uint32_t>{259, 257, 258});
    CHECK(model.tokenizer.encode("123").size() == 3);
    HuggingFaceFiles files = llama3_tokenizer();
    files.documents["tokenizer.json"]["model"]["ignore_merges"] = false;
    CHECK(load(files).file.text("tokenizer.ggml.pre") == "smaug-bpe");
    files.documents["tokenizer_config.json"]["add_bos_token"] = true; // which the template does
    CHECK(load(files).tokenizer.prompt("us").size() == 2);
    files.documents["tokenizer.json"]["post_processor"] = nullptr;
    CHECK(contains(error_of(files), "'add_bos_token' is true, but tokenizer.json has no 'post_processor'"));
    files.documents["tokenizer_config.json"].erase("add_bos_token");
    CHECK(load(files).tokenizer.prompt("us").size() == 1);
    files = small_huggingface_model();
    files.documents["tokenizer.json"]["model"]["ignore_merges"] = true;
    CHECK(contains(error_of(files), "'ignore_merges' is true, which only the tokenizer of Llama 3 has"));
}

TEST_CASE("Llama 3's scaling, where older and newer releases have it, and in both") {
    const auto config_with = [](const json& changed) {
        HuggingFaceFiles files = small_huggingface_model();
        json& config = files.documents["config.json"];
        config.update({{"model_type", "llama"},
                       {"architectures", {"LlamaForCausalLM"}},
                       {"rope_theta", 500000.0},
                       {"max_position_embeddings", 131072}});
        config.update(changed);
        json header = json::object();
        for (const auto& [name, entry] : files.weights.header.items())
            if (!contains(name, "_norm.weight") || contains(name, "layernorm")) header[name] = entry;
        return config_of(files);
    };
    const std::vector<float> factors = llama3_factors({32, 1, 4, 8192}, 5e5f, 64);
    json newer = llama3_scaling;
    newer["rope_theta"] = 500000.0;
    json older = llama3_scaling;
    older["type"] = older["rope_type"];
    for (const json& changed : {json{{"rope_scaling", llama3_scaling}}, json{{"rope_parameters", newer}, {"rope_theta", nullptr}},
                                json{{"rope_scaling", llama3_scaling}, {"rope_parameters", newer}},
                                json{{"rope_scaling", older}, {"rope_parameters", newer}}}) {
        const Config c = config_with(changed);
        CHECK(c.rope_factors == factors);
        CHECK(c.rope_theta == 5e5f);
        CHECK(c.rope_scaling.type == RopeScalingType::none);
        CHECK(c.max_position_embeddings == 131072);
    }
    CHECK(config_with({{"rope_scaling", nullptr}}).rope_factors.empty());
    for (const char* key : {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
        json scaling = llama3_scaling;
        scaling.erase(key);
        CHECK_THROWS_WITH_AS(config_with({{"rope_scaling", scaling}}), doctest::Contains(key), Error);
    }
    newer["factor"] = 8;
    CHECK_THROWS_WITH_AS(config_with({{"rope_scaling", llama3_scaling}, {"rope_parameters", newer}}),
                         doctest::Contains("are both present and differ"), Error);
}

TEST_CASE("keys of YaRN that transformers ignores are ignored, with a note") {
    HuggingFaceFiles files = small_huggingface_model();
    files.documents["config.json"]["rope_scaling"] = {
        {"type", "yarn"},    {"factor", 4},      {"original_max_position_embeddings", 1024},
        {"finetuned", true}, {"attn_factor", 1}, {"extrapolation_factor", 1}};
    const Model model = load(files);
    CHECK(model.config.rope_scaling.type == RopeScalingType::yarn);
    REQUIRE(model.notes.size() == 3);
    CHECK(contains(model.notes[1], "'rope_scaling.extrapolation_factor' is ignored, as transformers does"));
}

TEST_CASE("a model that does not sample takes the most probable token") {
    const auto sampling = [](const json& generation) {
        HuggingFaceFiles files = small_huggingface_model();
        files.documents["generation_config.json"] = generation;
        return recommended_sampling(load(files).file, true);
    };
    CHECK(sampling({{"do_sample", false}, {"temperature", 0.6}, {"top_p", 0.9}}).temperature == 0);
    CHECK(sampling({{"do_sample", false}}).temperature == 0);
    CHECK(sampling({{"do_sample", true}, {"temperature", 0.6}}).temperature == 0.6f);
    CHECK(sampling(json::object()).temperature == qwen_sampling(true).temperature);
    CHECK(sampling({{"top_k", -1}}).top_k == 0);
    CHECK(sampling({{"top_k", 0}}).top_k == 0);
    CHECK(sampling({{"top_k", 30.0}}).top_k == 30);
    CHECK(sampling({{"top_k", -1.0}}).top_k == 0);
    HuggingFaceFiles files = small_huggingface_model();
    files.documents["generation_config.json"]["do_sample"] = "no";
    CHECK(contains(error_of(files), "generation_config.json: 'do_sample' is a text, not a boolean"));
}

TEST_CASE("settings of generation that this program has not are noted, unless they change nothing") {
    const auto load_with = [](const json& generation) {
        HuggingFaceFiles files = small_huggingface_model();
        files.documents["generation_config.json"] = generation;
        return load(files);
    };
    const Model neutral = load_with({{"typical_p", 1.0},
                                     {"num_beams", 1},
                                     {"no_repeat_ngram_size", 0},
                                     {"suppress_tokens", json::array()},
                                     {"bad_words_ids", nullptr},
                                     {"guidance_scale", 1},
                                     {"presence_penalty", 1.5},
                                     {"frequency_penalty", 0.5},
                                     {"max_new_tokens", 2048}});
    CHECK(neutral.notes.empty());
    CHECK(recommended_sampling(neutral.file, false).presence_penalty == 1.5f);
    CHECK(recommended_sampling(neutral.file, false).frequency_penalty == 0.5f);
    const Model other =
        load_with({{"typical_p", 0.9}, {"num_beams", 4}, {"suppress_tokens", {1, 2}}, {"forced_eos_token_id", 0}});
    REQUIRE(other.notes.size() == 1);
    CHECK(contains(other.notes[0], "generation_config.json: tq-run has no such sampling, and ignores typical_p, num_beams, "
                                   "suppress_tokens, forced_eos_token_id"));
}

TEST_CASE("an added token without a row of the embedding is left out") {
    HuggingFaceFiles files = small_huggingface_model();
    json& added = files.documents["tokenizer.json"]["added_tokens"];
    json token = added[0];
    token.update({{"content", "[PAD]"}, {"id", 288}});
    added.push_back(token);
    const Model model = load(files);
    REQUIRE(model.notes.size() == 1);
    CHECK(contains(model.notes[0], "the added token '[PAD]' has the id 288 and is ignored: 'vocab_size' in config.json is 288"));
    CHECK(!model.tokenizer.special("[PAD]"));
}

TEST_CASE("a chat template of another kind is noted") {
    HuggingFaceFiles files = small_huggingface_model();
    files.texts["chat_template.jinja"] = "{% for m in messages %}[INST]{{ m.content }}[/INST]{% endfor %}";
    const Model model = load(files);
    REQUIRE(model.notes.size() == 1);
    CHECK(contains(model.notes[0], "has a chat template of another kind than ChatML and Llama 3's: chat and serve write ChatML"));
    HuggingFaceFiles without = files;
    for (json& token : without.documents["tokenizer.json"]["added_tokens"])
        if (token["content"] == "<|im_start|>") token["content"] = "<|begin|>";
    CHECK(contains(load(without).notes[0], "chat and serve refuse it, as its vocabulary has no <|im_start|>"));
    files.texts["chat_template.jinja"] = "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}";
    CHECK(load(files).notes.empty());
}

TEST_CASE("an added token that is a base token, too, and words of a fine-tune") {
    HuggingFaceFiles files = small_huggingface_model();
    json& added = files.documents["tokenizer.json"]["added_tokens"];
    json word = added[0];
    word.update({{"content", "aa"}, {"id", 256}, {"special", false}, {"normalized", true}});
    added.push_back(word);
    word.update({{"content", "us user"}, {"id", 270}});
    added.push_back(word);
    const Model model = load(files);
    CHECK(model.tokenizer.encode("aaaaus", false) == std::vector<uint32_t>{256, 256, 258});
    CHECK(model.tokenizer.encode("us user", false) == std::vector<uint32_t>{270});
    CHECK(model.tokenizer.encode("<think>", false).size() > 1);
}

TEST_CASE("a byte without a token in tokenizer.json") {
    HuggingFaceFiles files = small_huggingface_model();
    json& vocabulary = files.documents["tokenizer.json"]["model"]["vocab"];
    for (const char byte : {'\x04', '\x1d', '\xc0', '\xff'}) vocabulary.erase(VocabularyFile::letter(uint8_t(byte)));
    const Model model = load(files);
    CHECK(model.tokenizer.encode("us\x04us") == std::vector<uint32_t>{258, 258});
    CHECK(model.notes.empty());
}

TEST_CASE("recommended sampling that llama.cpp follows and this program has not is noted") {
    ModelFile file("a.gguf");
    file.mutable_metadata()["general.sampling.top_k"] = int64_t(-1);
    CHECK(recommended_sampling(file, false).top_k == 0);
    file.mutable_metadata()["general.sampling.top_k"] = uint64_t(1) << 40;
    CHECK(recommended_sampling(file, false).top_k == UINT32_MAX);
    file.mutable_metadata()["general.sampling.top_k"] = 30.0;
    CHECK(recommended_sampling(file, false).top_k == 30);
    file.mutable_metadata()["general.sampling.penalty_last_n"] = int64_t(-1);
    CHECK(recommended_sampling(file, false).repeat_last_n == UINT32_MAX);
    file.mutable_metadata()["general.sampling.penalty_last_n"] = int64_t(128);
    CHECK(recommended_sampling(file, false).repeat_last_n == 128);
    file.mutable_metadata()["general.sampling.top_k"] = std::string_view("20");
    CHECK_THROWS_WITH_AS(recommended_sampling(file, false), doctest::Contains("'general.sampling.top_k' is a text"), Error);

    const TemporaryFile path, with;
    write_random_model(path.path(), {small_config(), GgmlType::Q8_0, true, 1, {}});
    const ModelFile plain = read_gguf(path.path());
    GgufWriter writer;
    for (const auto& [key, value] : plain.metadata()) writer.set(key, value);
    for (const FileTensor& t : plain.tensors()) writer.add_tensor(t.name, t.type, {t.ne[0], t.ne[1]});
    for (const auto& [key, value] : {std::pair("mirostat", 2.0), {"xtc_probability", 0.0}, {"temp", 0.5}})
        writer.set(std::string("general.sampling.") + key, value);
    std::ofstream(with.path(), std::ios::binary) << writer.zeros();
    const Model model = load_model(with.path());
    CHECK(load_model(path.path()).notes.empty());
    REQUIRE(model.notes.size() == 1);
    CHECK(contains(model.notes[0], "'general.sampling.mirostat' is ignored: tq-run has no such sampling"));
}
