// Whether a model recalls a fact. The prompt ends with the beginning of the answer, "The code of the amber kettle is ", so that
// what follows is the value; a model with a chat template gets it as its own turn with the thinking closed. Exact: each token of
// the value is the most probable one, and no digit follows. log p is the sum over its tokens, teacher-forced in one run. Only if
// that is not exact the model says what it would (say), from the state after the prompt.
// make_haystack must hit a length of the whole prompt: what stands around the text is not known before it is rendered, so it is
// corrected up to eight times.
#include "tools/check/quality/needle.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/forward.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tq::quality {
namespace {

using nlohmann::json;

bool has_template(const Model& model) { return !model.file.text("tokenizer.chat_template", "").empty(); }

bool begins_with_digit(std::string_view text) { return !text.empty() && text[0] >= '0' && text[0] <= '9'; }

// Among the ids that stand for a token: the rows that pad a vocabulary may have any logits. On a tie the lower id wins.
uint32_t most_probable(std::span<const float> logits, const Tokenizer& tokenizer) {
    uint32_t best = UINT32_MAX;
    for (uint32_t id = 0; id < logits.size(); id++)
        if ((best == UINT32_MAX || logits[id] > logits[best]) && id < tokenizer.size() && !tokenizer.is_unused(id)) best = id;
    if (best == UINT32_MAX) fail("the file has no token that a model can generate: it is damaged");
    return best;
}

// The model's own greedy answer, token by token from `id` on.
std::string say(Forward& forward, const Tokenizer& tokenizer, uint32_t id, size_t tokens) {
    std::string said;
    for (size_t i = 0; i < tokens && !tokenizer.is_end_of_generation(id); i++) {
        said += tokenizer.bytes(id);
        if (i + 1 < tokens) id = most_probable(forward.run({&id, 1}), tokenizer);
    }
    return printable(said);
}

json to_json(const Recall& recall) { return {{"exact", recall.exact ? 1 : 0}, {"log_p", recall.log_p}, {"said", recall.said}}; }

Recall recall_from_json(const json& json) {
    return {json.at("exact").get<int>() == 1, json.at("log_p").get<double>(), json.at("said").get<std::string>()};
}

} // namespace

std::vector<uint32_t> needle_prompt(const Model& model, std::string_view text, const Fact& fact) {
    if (!has_template(model)) {
        const Piece plain{fmt::format("{}\nQuestion: {}\nAnswer: {}", text, ask(fact), begin_answer(fact))};
        return model.tokenizer.encode(std::span(&plain, 1));
    }
    const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", fmt::format("{} {}", text, ask(fact))}}};
    const ChatOptions options{.variant = model.chat, .add_generation_prompt = true, .enable_thinking = false};
    std::vector<Piece> pieces = render_chat(messages, nullptr, options);
    if (options.opens_thinking()) pieces.push_back({"\n</think>\n\n", true}); // the prompt ends inside of the block
    pieces.push_back({begin_answer(fact)});
    return model.tokenizer.encode(pieces);
}

// Each try begins with the same random state, so the facts stay and only the filler gets shorter. `around` grows with each
// failure, hence the loop ends; a text that does not fit after eight tries has sentences that are too long for the rest.
Haystack make_haystack(const Model& model, HaystackOptions options, uint32_t length, std::span<const std::string> sentences,
                       Random random) {
    const CountTokens count = [&](std::string_view text) { return uint32_t(model.tokenizer.encode(text, false).size()); };
    uint32_t around = 0; // the most tokens of a prompt besides the text, including the value
    for (uint32_t tries = 0; tries < 8; tries++) {
        options.tokens = length - std::min(length, around);
        Random same = random;
        Haystack haystack = make_haystack(options, sentences, same, count);
        size_t max = 0;
        for (const Needle& needle : haystack.needles)
            max = std::max(max, needle_prompt(model, haystack.text, needle.fact).size() + count(needle.fact.value));
        if (max <= length) return haystack;
        around = std::max(around + 1, uint32_t(max) - count(haystack.text));
    }
    fail("the text cannot be cut to prompts of {} tokens, as it has too few short sentences: give another one with -f", length);
}

// The value is run at once after the prompt (teacher-forced): the logits before token i are right even if an earlier one was not
// the most probable. The cache returns to the end of the prompt before the model answers on its own, and the next fact's prompt
// begins with what is left of this one.
std::optional<Recall> recall(Session& session, const Model& model, std::span<const uint32_t> prompt, const std::string& value,
                             const Progress& progress) {
    const std::vector<uint32_t> ids = model.tokenizer.encode(value, false);
    Forward& forward = session.forward();
    if (prompt.size() + ids.size() > forward.context_size())
        fail("a question of {} tokens and its answer of {} exceed the context of {}: ask for a larger one with -c", prompt.size(),
             ids.size(), forward.context_size());
    std::span<const float> logits = session.prefill(prompt, progress);
    if (logits.empty()) return std::nullopt;
    Recall recall{true, 0, value};
    const uint32_t first = most_probable(logits, model.tokenizer);
    const auto take = [&](std::span<const float> logits, size_t i) {
        const uint32_t best = most_probable(logits, model.tokenizer);
        if (i == ids.size()) {
            recall.exact = recall.exact && !begins_with_digit(model.tokenizer.bytes(best));
            return;
        }
        recall.exact = recall.exact && best == ids[i];
        recall.log_p -= loss(logits, ids[i]);
    };
    take(logits, 0);
    const SavedSlot after_prompt = forward.cache().mark(0);
    forward.run_all(ids, [&](uint32_t i, std::span<const float> logits) { take(logits, i + 1); });
    if (!recall.exact) {
        forward.cache().return_to(0, after_prompt);
        recall.said = say(forward, model.tokenizer, first, ids.size() + 1);
    }
    return recall;
}

NeedleSummary summarise(std::span<const Found> found) {
    NeedleSummary s{.facts = found.size()};
    std::vector<double> exact, reference_exact, log_p, reference_log_p, change;
    for (const Found& f : found) {
        exact.push_back(f.measured.exact ? 1 : 0);
        log_p.push_back(f.measured.log_p);
        s.exact += f.measured.exact ? 1 : 0;
        if (!f.reference) continue;
        reference_exact.push_back(f.reference->exact ? 1 : 0);
        reference_log_p.push_back(f.reference->log_p);
        change.push_back(f.measured.log_p - f.reference->log_p);
        s.reference_exact += f.reference->exact ? 1 : 0;
    }
    s.exact_share = mean(exact);
    s.log_p = mean(log_p);
    s.reference_exact_share = mean(reference_exact);
    s.reference_log_p = mean(reference_log_p);
    s.log_p_change = mean(change);
    return s;
}

json to_json(const Needle& needle, const Found& found) {
    json out = to_json(found.measured);
    out["depth"] = found.depth;
    out["key"] = needle.fact.key;
    out["value"] = needle.fact.value;
    if (found.reference) out["reference"] = to_json(*found.reference);
    return out;
}

Found found_from_json(const json& json) {
    try {
        Found found{json.at("depth").get<size_t>(), recall_from_json(json), std::nullopt};
        if (json.contains("reference")) found.reference = recall_from_json(json.at("reference"));
        return found;
    } catch (const nlohmann::json::exception&) {
        fail("the log has a part that is not an answer, so it is damaged: delete it");
    }
}

} // namespace tq::quality
