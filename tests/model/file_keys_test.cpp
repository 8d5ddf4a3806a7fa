// Each key of a GGUF file that may change results is followed, or refused, or a note says that it is not, or it changes nothing,
// in llama.cpp neither. tests/compare-keys compares the two programs with the same values.
#include "base/error.h"
#include "base/path_text.h"
#include "model/cpu/forward.h"
#include "model/engine/sampling/sampler.h"
#include "model/model.h"
#include "tests/support/changed_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/test_data.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>
#include <limits>
#include <tuple>

using namespace tq;
using namespace tq::test;

namespace {

using Value = ModelFile::Value;

// A user's results of a model.
struct Results {
    std::vector<float> logits;
    std::vector<uint32_t> tokens;
    std::vector<float> sampling;
    std::vector<std::optional<uint32_t>> infill;
    std::vector<uint32_t> ends;
    std::vector<std::string> notes;

    bool same(const Results& other) const {
        return std::tie(logits, tokens, sampling, infill, ends) ==
               std::tie(other.logits, other.tokens, other.sampling, other.infill, other.ends);
    }
};

Results results_of(const std::filesystem::path& path) {
    const Model model = load_model(path);
    const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 16};
    const auto forward = make_cpu_forward(model.config, model.weights, options);
    const std::vector<uint32_t> ids{5, 17, 30, 2, 99, 41, 41};
    const auto logits = forward->run(ids);
    const SamplerOptions s = recommended_sampling(model.file, false);
    const InfillTokens& infill = model.tokenizer.infill();
    std::vector<uint32_t> ends;
    for (uint32_t id = 0; id < model.tokenizer.size(); ++id)
        if (model.tokenizer.is_end_of_generation(id)) ends.push_back(id);
    return {.logits = {logits.begin(), logits.end()},
            .tokens = model.tokenizer.prompt("The 2024 report isn't\n\n  done; caf\u00e9 12345 <|eot_id|>x"),
            .sampling = {s.temperature, float(s.top_k), s.top_p, s.min_p, s.repeat_penalty, float(s.repeat_last_n)},
            .infill = {infill.prefix, infill.suffix, infill.middle, infill.file},
            .ends = ends,
            .notes = model.notes};
}

// "followed", "no change", "note: ..." or "error: ...", without the file's name.
std::string effect(const std::string& key, const Value& value) {
    static const Results base = results_of(test_data("llama3.gguf"));
    const TemporaryFile changed;
    write_changed(changed.path(), test_data("llama3.gguf"), {{key, value}});
    const auto shorten = [&](const std::string& text) {
        const std::string begin = utf8_text(changed.path()) + ": ";
        return text.starts_with(begin) ? text.substr(begin.size()) : "NO FILE: " + text;
    };
    try {
        const Results now = results_of(changed.path());
        if (now.notes.size() > base.notes.size()) return "note: " + shorten(now.notes.back());
        return now.same(base) ? "no change" : "followed";
    } catch (const Error& error) {
        return "error: " + shorten(error.what());
    }
}

struct Expected {
    const char* key; // of the architecture, if it begins with a point
    Value value;
    const char* effect; // the beginning
};

void check(const std::vector<Expected>& table) {
    for (const Expected& row : table) {
        const std::string key = *row.key == '.' ? "llama" + std::string(row.key) : row.key;
        CAPTURE(key);
        const std::string got = effect(key, row.value);
        CAPTURE(got);
        CHECK(got.starts_with(row.effect));
        const bool names_key = got.starts_with("note") || (got.starts_with("error") && !got.starts_with("error: tensor"));
        if (names_key) CHECK(contains(got, key));
    }
}

using List = std::vector<uint64_t>;
using std::string_view;

} // namespace

TEST_CASE("keys with unusual values: followed, refused, noted, or without effect") {
    check({{".rope.freq_base", 500.0, "followed"},
           {".rope.scale_linear", 4.0, "followed"},
           {".rope.scaling.factor", 4.0, "followed"},
           {".rope.scaling.type", string_view("longrope"), "error"},
           {".rope.scaling.attn_factor", 1.5, "error"},
           {".rope.scaling.yarn_ext_factor", 0.5, "error"},
           {".rope.scaling.yarn_log_multiplier", 0.1, "error"},
           {".rope.scaling.finetuned", true, "no change"},
           {".rope.dimension_count", uint64_t(32), "error"},
           {".rope.dimension_sections", List{8, 8, 8, 8}, "no change"},
           {".attention.layer_norm_rms_epsilon", 0.1, "followed"},
           {".attention.layer_norm_epsilon", 0.1, "no change"},
           {".attention.scale", 0.5, "no change"},
           {".attention.causal", false, "error"},
           {".attention.clamp_kqv", 0.1, "no change"},
           {".attention.max_alibi_bias", 8.0, "no change"},
           {".attention.key_length", uint64_t(32), "error"},
           {".attention.value_length", uint64_t(32), "error"},
           {".attention.sliding_window", uint64_t(4), "no change"},
           {".attention.logit_softcapping", 5.0, "no change"},
           {".final_logit_softcapping", 1.0, "no change"},
           {".logit_scale", 0.5, "no change"},
           {".embedding_scale", 2.0, "no change"},
           {".residual_scale", 0.5, "no change"},
           {".use_parallel_residual", true, "no change"},
           {".expert_count", uint64_t(2), "error"},
           {".expert_used_count", uint64_t(1), "no change"},
           {".pooling_type", uint64_t(1), "no change"},
           {".context_length", uint64_t(64), "no change"}, // of this text
           {".vocab_size", uint64_t(500), "no change"},
           {".feed_forward_length", uint64_t(32), "error: tensor 'blk.0.ffn_gate.weight' has shape"},
           {"tokenizer.ggml.pre", string_view("smollm"), "followed"},
           {"tokenizer.ggml.add_bos_token", false, "followed"},
           {"tokenizer.ggml.add_eos_token", true, "no change"}, // which is for embeddings here
           {"tokenizer.ggml.add_space_prefix", true, "no change"},
           {"tokenizer.ggml.remove_extra_whitespaces", true, "no change"},
           {"tokenizer.ggml.bos_token_id", uint64_t(7), "followed"},
           {"tokenizer.ggml.padding_token_id", uint64_t(9999), "note"},
           {"tokenizer.ggml.unknown_token_id", uint64_t(5), "no change"},
           {"tokenizer.ggml.fim_pre_token_id", uint64_t(7), "followed"},
           {"tokenizer.ggml.fim_suf_token_id", uint64_t(7), "followed"},
           {"tokenizer.ggml.fim_mid_token_id", uint64_t(7), "followed"},
           {"tokenizer.ggml.fim_sep_token_id", uint64_t(7), "followed"},
           {"tokenizer.ggml.fim_rep_token_id", uint64_t(7), "followed"},
           {"tokenizer.ggml.fim_pad_token_id", uint64_t(7), "followed"},
           {"tokenizer.ggml.eot_token_id", uint64_t(7), "followed"},
           {"tokenizer.ggml.eom_token_id", uint64_t(7), "followed"},
           {"general.sampling.temp", 0.25, "followed"},
           {"general.sampling.top_k", uint64_t(5), "followed"},
           {"general.sampling.top_p", 0.5, "followed"},
           {"general.sampling.min_p", 0.25, "followed"},
           {"general.sampling.penalty_repeat", 1.5, "followed"},
           {"general.sampling.penalty_last_n", int64_t(7), "followed"},
           {"general.sampling.sequence", string_view("top_k;temperature"), "note"},
           {"general.sampling.mirostat", uint64_t(2), "note"},
           {"general.sampling.mirostat_tau", 4.0, "no change"}, // these without mirostat and xtc
           {"general.sampling.mirostat_eta", 0.2, "no change"},
           {"general.sampling.xtc_probability", 0.5, "note"},
           {"general.sampling.xtc_threshold", 0.2, "no change"},
           {"some.key", List{1, 2}, "no change"}});
}

TEST_CASE("keys of an unexpected type") {
    for (const char* key : {".rope.freq_base",
                            ".rope.scaling.factor",
                            ".rope.dimension_count",
                            ".attention.layer_norm_rms_epsilon",
                            ".attention.causal",
                            ".attention.key_length",
                            ".attention.value_length",
                            ".attention.head_count",
                            ".attention.head_count_kv",
                            ".block_count",
                            ".context_length",
                            ".embedding_length",
                            ".expert_count",
                            ".feed_forward_length",
                            "tokenizer.ggml.add_bos_token",
                            "tokenizer.ggml.add_eos_token",
                            "tokenizer.ggml.bos_token_id",
                            "tokenizer.ggml.eot_token_id",
                            "tokenizer.ggml.fim_mid_token_id",
                            "tokenizer.ggml.eos_token_id",
                            "tokenizer.ggml.padding_token_id",
                            "general.sampling.temp",
                            "general.sampling.top_k",
                            "general.sampling.top_p",
                            "general.sampling.min_p",
                            "general.sampling.penalty_repeat",
                            "general.sampling.penalty_last_n",
                            "general.sampling.mirostat",
                            "general.sampling.xtc_probability"})
        check({{key, string_view("x"), "error"}});
    for (const char* key : {".rope.scaling.type", "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.merges",
                            "tokenizer.ggml.token_type", "tokenizer.chat_template", "general.sampling.sequence",
                            "general.sampling.top_k", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.padding_token_id"})
        check({{key, 1.5, "error"}});
}

TEST_CASE("keys whose values no model has") {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    check({{".rope.freq_base", nan, "error"},
           {".rope.freq_base", -1.0, "error"},
           {".rope.scaling.factor", 0.0, "error"},
           {".attention.layer_norm_rms_epsilon", nan, "error"},
           {".attention.head_count_kv", List{2}, "error"}, // for each layer
           {".attention.head_count_kv", List{}, "error"},
           {".attention.head_count_kv", uint64_t(0), "error"},
           {"tokenizer.ggml.bos_token_id", uint64_t(9999), "error"},
           {"tokenizer.ggml.eos_token_id", uint64_t(9999), "error"},
           {"tokenizer.ggml.padding_token_id", int64_t(-1), "note"},
           {"tokenizer.ggml.eot_token_id", uint64_t(4294967295), "note"},
           {"tokenizer.ggml.fim_pre_token_id", int64_t(-1), "note"},
           {"general.sampling.temp", nan, "error"},
           {"general.sampling.temp", -1.0, "error"},
           {"general.sampling.top_p", 2.0, "error"},
           {"general.sampling.top_p", nan, "error"},
           {"general.sampling.min_p", -0.5, "error"},
           {"general.sampling.penalty_repeat", 0.0, "error"},
           {"general.sampling.top_k", int64_t(-1), "followed"}, // all
           {"general.sampling.penalty_last_n", int64_t(-1), "followed"}});
}
