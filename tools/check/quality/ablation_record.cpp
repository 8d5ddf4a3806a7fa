// A run that is resumed takes its numbers from these lines, so to_json() and cost_of() are each other's inverse as far as judging
// needs: a cost that was not finite comes back as the exception that it was, and the protocol goes the same way again. A number
// that is not finite is null, as JSON has no other form of it, and is read as infinite.
#include "tools/check/quality/ablation_record.h"
#include "base/clock.h"
#include <cmath>

namespace tq::quality {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

uint32_t bits_of(KvType type) { return is_coded(type) ? code_bits(type) : type == KvType::f32 ? 32 : 16; }

ordered_json config_json(const KvOptions& kv, uint32_t head_dim) {
    return {{"key_bits", bits_of(kv.k)},
            {"value_bits", bits_of(kv.v)},
            {"head_dim", head_dim},
            {"k", name(kv.k)},
            {"v", name(kv.v)},
            {"rotation", name(kv.rotation)},
            {"scale_rule", name(kv.scale_rule)},
            {"window", kv.window}};
}

ordered_json number(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(); }

// null stands for a number that is not finite.
double number(const json& object, const char* key) {
    const json& value = object.at(key);
    return value.is_null() ? INFINITY : value.get<double>();
}

} // namespace

ordered_json to_json(const Outcome& outcome, const Evaluation& evaluation) {
    const KvOptions& kv = outcome.trial.kv;
    const Summary s = outcome.cost ? outcome.cost->summary : Summary();
    const auto known = [&](double value) { return outcome.cost ? number(value) : ordered_json(); };
    ordered_json line{{"ts", utc_text()},
                      {"run", outcome.trial.run},
                      {"isolates", outcome.trial.isolates},
                      {"config", config_json(kv, evaluation.config.head_dim)},
                      {"cache", describe(kv)},
                      {"reference", describe(ablation_reference)},
                      {"kv_bytes_per_token", kv_bytes_per_token(evaluation.config, kv)},
                      {"eval", {{"text_sha", evaluation.text_sha}, {"n_tokens", s.tokens}}},
                      {"ppl_fp16", known(s.reference_perplexity.value)},
                      {"ppl_fp16_error", known(s.reference_perplexity.error)},
                      {"ppl_tq", known(s.perplexity.value)},
                      {"ppl_tq_error", known(s.perplexity.error)},
                      {"abs_delta", number(outcome.change())},
                      {"abs_delta_error", number(outcome.change_error())},
                      {"rel_delta", number(outcome.relative_change())},
                      {"loss_change", known(s.loss_change.value)},
                      {"loss_change_error", known(s.loss_change.error)},
                      {"kl", known(s.kl.value)},
                      {"kl_error", known(s.kl.error)},
                      {"kl_median", known(s.kl_median)},
                      {"kl_99", known(s.kl_99)},
                      {"kl_max", known(s.kl_max)},
                      {"kl_limit", outcome.trial.max_kl ? number(*outcome.trial.max_kl) : ordered_json()},
                      {"same_top", known(s.same_top.value)},
                      {"same_top_error", known(s.same_top.error)},
                      {"runtime_sec",
                       {{"fp16", known(outcome.cost ? outcome.cost->reference_seconds : 0)},
                        {"tq", known(outcome.cost ? outcome.cost->seconds : 0)}}},
                      {"verdict", name(outcome.verdict)},
                      {"reason", outcome.reason}};
    line.update(evaluation.more);
    return line;
}

bool is_of(const json& line, const Trial& trial) {
    return line.is_object() && line.value("run", json()) == trial.run && line.value("cache", json()) == describe(trial.kv);
}

CacheCost cost_of(const json& line) try {
    if (line.at("ppl_tq").is_null()) throw NonFinite(line.at("reason").get<std::string>());
    const auto estimate = [&](const char* key, const char* error) { return Estimate{number(line, key), number(line, error)}; };
    return {{.tokens = line.at("eval").at("n_tokens"),
             .perplexity = estimate("ppl_tq", "ppl_tq_error"),
             .reference_perplexity = estimate("ppl_fp16", "ppl_fp16_error"),
             .loss_change = estimate("loss_change", "loss_change_error"),
             .kl = estimate("kl", "kl_error"),
             .same_top = estimate("same_top", "same_top_error"),
             .kl_median = number(line, "kl_median"),
             .kl_99 = number(line, "kl_99"),
             .kl_max = number(line, "kl_max")},
            number(line.at("runtime_sec"), "tq"),
            number(line.at("runtime_sec"), "fp16")};
} catch (const json::exception&) {
    fail("the log has a damaged run: delete the log");
}

} // namespace tq::quality
