// tq-run ablate: the stages of the cache in isolation, so that a bug is named by the one that it is in; then how few bits the
// model bears.
#include "base/error.h"
#include "base/interrupt.h"
#include "base/printable.h"
#include "quality/ablation_record.h"
#include "quality/greedy_sample.h"
#include "quality/run_log.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/measured_text.h"
#include "tools/tq-run/shared_model.h"
#include <algorithm>

namespace tq {
namespace {

using nlohmann::json, nlohmann::ordered_json;
using quality::CacheCost, quality::CacheCosts, quality::Findings, quality::Outcome, quality::Trial;

constexpr uint32_t usual_context = 512, sample_prompt = 32, sample_tokens = 200, sample_count = 3;

struct AblateArguments {
    ConsoleArguments console;
    ModelArguments model;
    std::string file, output;
    uint32_t chunks = 2;
    bool samples = false, keep_going = false;
};

// Text that a model made, fit for JSON.
std::string utf8(const Tokenizer& tokenizer, std::span<const uint32_t> ids) {
    Utf8Stream stream;
    const std::string text = stream.push(tokenizer.decode(ids, false));
    return text + stream.flush();
}

class Ablation {
  public:
    Ablation(const AblateArguments& arguments, Setup& setup, Console& console);

    std::optional<CacheCost> measure(const Trial& trial);
    void show(const Outcome& outcome);
    // Of this cache and the reference, after places of the text; false where it was stopped.
    bool show_samples(const KvOptions& kv);

  private:
    json what(const AblateArguments& arguments) const;
    CacheCosts& costs();
    std::unique_ptr<Forward> forward(const KvOptions& kv);
    std::optional<json> make_samples(const KvOptions& kv);

    Setup& setup_;
    Console& console_;
    const uint32_t tokens_; // of a chunk
    const uint32_t chunks_;
    const MeasuredText text_;
    quality::RunLog log_;
    std::unique_ptr<SharedModel> model_; // loaded when something is to be measured
    std::optional<CacheCosts> costs_;
};

Ablation::Ablation(const AblateArguments& a, Setup& setup, Console& console)
    : setup_(setup), console_(console), tokens_(a.model.context_size.value_or(usual_context)), chunks_(a.chunks),
      text_(read_measured_text(a.file, setup.model.tokenizer, tokens_)), log_(a.output, what(a)) {
    write_output("| run | isolates | cache | B/token | perplexity | change | relative | KL | same top | verdict |\n"
                 "|---|---|---|---|---|---|---|---|---|---|\n");
}

json Ablation::what(const AblateArguments& a) const {
    return {{"schema", "tq-run-ablation"},  {"version", 1},
            {"model", setup_.model.name},   {"weight_bytes", setup_.model.weights.bytes()},
            {"text_sha", text_.hash},       {"text_tokens", text_.ids.size()},
            {"chunks", a.chunks},           {"chunk_tokens", tokens_},
            {"device", setup_.device_name}, {"build", build_description()}};
}

std::unique_ptr<Forward> Ablation::forward(const KvOptions& kv) {
    if (!model_) {
        check_memory(setup_, std::array{quality::ablation_reference, quality::ablation_reference});
        model_ = std::make_unique<SharedModel>(setup_, console_);
    }
    return model_->forward(kv);
}

CacheCosts& Ablation::costs() {
    if (!costs_)
        costs_.emplace([this](const KvOptions& kv) { return forward(kv); }, quality::ablation_reference,
                       quality::cut(text_.ids, tokens_, 0, chunks_));
    return *costs_;
}

std::optional<CacheCost> Ablation::measure(const Trial& trial) {
    for (const json& line : log_.parts())
        if (is_of(line, trial)) return quality::cost_of(line);
    const auto keep_going = [&](uint32_t done) {
        console_.status(fmt::format("{}, {}: {}, {} of {} tokens", trial.run, trial.isolates, describe(trial.kv), done,
                                    costs().chunks().ids.size()));
        return !interrupted();
    };
    std::optional<CacheCost> cost;
    if (trial.blocks)
        cost = costs().of_blocks(keep_going);
    else if (const auto found = costs().measure({&trial.kv, 1}, keep_going); !found.empty())
        cost = found[0];
    console_.clear_status();
    return cost;
}

void Ablation::show(const Outcome& o) {
    const quality::Evaluation evaluation{
        setup_.model.config, text_.hash, {{"device", setup_.device_name}, {"build", build_description()}}};
    if (std::ranges::none_of(log_.parts(), [&](const json& line) { return is_of(line, o.trial); }))
        log_.add(to_json(o, evaluation));
    const std::string begin = fmt::format("| {} | {} | {} | {} | ", o.trial.run, o.trial.isolates, describe(o.trial.kv),
                                          kv_bytes_per_token(setup_.model.config, o.trial.kv));
    if (!o.cost) return write_output(begin + fmt::format("- | - | - | - | - | {} |\n", name(o.verdict)));
    const quality::Summary& s = o.cost->summary;
    write_output(begin + fmt::format("{:.5g} | {:+.3g} +- {:.1g} | {:+.2f} % | {:.3g} | {:.2f} % | {} |\n", s.perplexity.value,
                                     o.change(), o.change_error(), o.relative_change() * 100, s.kl.value, s.same_top.value * 100,
                                     name(o.verdict)));
}

// As a line of the log; nothing when it was stopped.
std::optional<json> Ablation::make_samples(const KvOptions& kv) {
    const auto reference = forward(quality::ablation_reference), measured = forward(kv);
    json samples = json::array();
    for (uint32_t i = 0; i < sample_count; i++) {
        console_.status(fmt::format("sample {} of {}", i + 1, sample_count));
        const size_t at = (text_.ids.size() - std::min<size_t>(text_.ids.size(), sample_prompt)) * i / sample_count;
        const std::span prompt = std::span(text_.ids).subspan(at, std::min<size_t>(text_.ids.size(), sample_prompt));
        const auto sample = quality::greedy_sample(*measured, *reference, prompt, sample_tokens, setup_.model.tokenizer,
                                                   setup_.model.config.vocab_size, interrupted);
        if (!sample) return std::nullopt;
        samples.push_back({{"prompt", utf8(setup_.model.tokenizer, prompt)},
                           {"reference", utf8(setup_.model.tokenizer, sample->reference)},
                           {"measured", utf8(setup_.model.tokenizer, sample->measured)},
                           {"reference_tokens", sample->reference.size()},
                           {"measured_tokens", sample->measured.size()},
                           {"same_tokens", sample->same}});
    }
    console_.clear_status();
    return json{
        {"run", "samples"}, {"cache", describe(kv)}, {"reference", describe(quality::ablation_reference)}, {"samples", samples}};
}

bool Ablation::show_samples(const KvOptions& kv) try {
    const Trial trial{.run = "samples", .kv = kv};
    std::optional<json> line;
    for (const json& part : log_.parts())
        if (is_of(part, trial)) line = part;
    if (!line) {
        line = make_samples(kv);
        if (!line) return false;
        log_.add(*line);
    }
    for (const json& s : line->at("samples")) {
        write_output(fmt::format("\n\"{}\" goes on\nwith {}:\n{}\nwith {} ({} of {} tokens before they part):\n{}\n",
                                 harmless(s.at("prompt").get<std::string>()), describe(quality::ablation_reference),
                                 harmless(s.at("reference").get<std::string>()), describe(kv), s.at("same_tokens").get<size_t>(),
                                 s.at("reference_tokens").get<size_t>(), harmless(s.at("measured").get<std::string>())));
    }
    return true;
} catch (const json::exception&) {
    fail("the log has samples that are broken: remove it");
}

std::string conclusion(const Findings& findings, const Setup& setup) {
    std::string text = "\n";
    if (const auto& bug = findings.bug)
        text += fmt::format("There is a bug: {} ({}) fails, for {}; what comes before it is right. Look at {}.\n", bug->trial.run,
                            bug->trial.isolates, bug->reason, bug->trial.look);
    if (findings.stopped) return text;
    if (const auto& winner = findings.winner)
        text +=
            fmt::format("The winner is {}, {} B/token: perplexity {:+.3g} +- {:.1g}, KL {:.3g}. It is {}.\n",
                        describe(winner->trial.kv), kv_bytes_per_token(setup.model.config, winner->trial.kv), winner->change(),
                        winner->change_error(), winner->cost->summary.kl.value,
                        findings.confirmed ? "within both budgets by two standard errors"
                                           : "not confirmed: so few tokens cannot tell it from one beyond a budget (--chunks)");
    else if (!findings.bug)
        text += "No bug, and no winner: nothing smaller passes both budgets.\n";
    return text;
}

int run(const AblateArguments& given) {
    AblateArguments arguments = given;
    if (arguments.model.kv.names_types() || !arguments.model.kv.rotation.empty() || !arguments.model.kv.scale_rule.empty())
        throw UsageError(
            "ablate goes through the types, rotations and scale rules itself: no flag of the KV cache means anything here");
    ModelArguments& model = arguments.model;
    if (!model.context_size) model.context_size = usual_context;
    Console console = arguments.console.console();
    ModelArguments wide = model;
    if (arguments.samples && *model.context_size != 0)
        wide.context_size = std::max(*model.context_size, sample_prompt + sample_tokens);
    Setup setup = set_up(wide, console);
    if (*model.context_size == 0) model.context_size = setup.options.context_size; // all that the model allows
    Ablation ablation(arguments, setup, console);
    catch_interrupts();
    const Findings findings =
        quality::run_protocol([&](const Trial& trial) { return ablation.measure(trial); },
                              [&](const Outcome& outcome) { ablation.show(outcome); }, arguments.keep_going);
    console.clear_status();
    write_output(conclusion(findings, setup));
    const auto& shown = findings.winner ? findings.winner : findings.bug;
    if (findings.stopped || (arguments.samples && shown && !ablation.show_samples(shown->trial.kv))) return 130;
    return findings.bug ? 1 : 0;
}

} // namespace

void add_ablate(CLI::App& app, Action& action) {
    const auto flags = [](CLI::App& command, AblateArguments& a) {
        command.add_option("-f,--file", a.file, "the text to measure on")->required()->option_text("FILE");
        command.add_option("-o,--output", a.output, "keep every run here, as JSON lines; a file that is there is gone on with")
            ->option_text("FILE.jsonl");
        command.add_option("--chunks", a.chunks, "so many chunks of -c tokens (default 512); default: 2")
            ->option_text("N")
            ->check(number(1, 1 << 20));
        command.add_flag("--samples", a.samples,
                         "what the model says with the winner, and with the reference, beside each other");
        command.add_flag("--keep-going", a.keep_going, "past a stage that fails, too: numbers after it say little");
        add_flags(command, a.model);
        add_flags(command, a.console);
    };
    add_command<AblateArguments>(app, action, "ablate",
                                 "Find bugs of the cache stage by stage, then how few bits the model bears", flags, run);
}

} // namespace tq
