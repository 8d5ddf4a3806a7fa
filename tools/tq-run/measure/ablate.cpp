// tq-run ablate: the stages of the cache in isolation, so that a bug is attributed to its stage; then how few bits the model
// tolerates. The order of the stages and what counts as failed are quality::run_protocol's; here are the measurements, the table
// and the log. Each run is a line of the log, so a run that was stopped goes on, and the same trial is never measured twice. The
// model is loaded when the first trial is not in the log.
// The reference is f16; every trial is compared on the same chunks, so the change of perplexity has a standard error from paired
// tokens.
#include "base/error.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/engine/session.h"
#include "tools/check/quality/ablation_record.h"
#include "tools/check/quality/run_log.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/cli/time_left.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/setup.h"
#include "tools/tq-run/engine/shared_model.h"
#include "tools/tq-run/measure/measured_text.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

using nlohmann::json, nlohmann::ordered_json;
using quality::CacheCost, quality::CacheCosts, quality::Findings, quality::Outcome, quality::Trial;

constexpr uint32_t ablate_context = 512, sample_prompt = 32, sample_tokens = 200, sample_count = 3;

const std::vector<int> widths{-14, -36, -12, 7, 17, 21, 9, 8, 8, -7}; // of the table, which grows row by row

constexpr const char* stages_help =
    "Stages: each changes one thing, so that the first stage that fails names the fault.\n"
    "  identity           f32, the text run in blocks of tokens against token by token\n"
    "  store              f16: writing to the cache and reading back\n"
    "  blocks             q8_0: quantised types, not conditioned\n"
    "  conditioning       q8_0 with channel scaling and means of keys\n"
    "  rotation           rotated vectors, all read in fp16 from a full-precision window\n"
    "  TurboQuant         8 bits; least-squares, norm: its other scale rules; haar: the dense rotation\n"
    "  3-bit keys, 4-bit values, trellis, unequal bits, window\n"
    "Then the fewest bits that keep perplexity within +0.3 and within +5 % (pass):\n"
    "  keys N, values N   bits of the keys, with values of 8 bits; then of the values\n"
    "  trellis values, window 64, and for the keys a trellis (3 bits) or unequal bits (4, 5)\n"
    "The last three win only where they lower the KL divergence.";

struct AblateArguments {
    ConsoleArguments console;
    ModelArguments model{.measured = true};
    std::string file, output;
    uint32_t chunks = 2;
    bool samples = false, keep_going = false;
};

// Makes valid UTF-8 for JSON of text that a model made.
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
    std::string where_stopped() const;
    // Shows samples of this cache and the reference, after places of the text; false if it was stopped.
    bool show_samples(const KvOptions& kv);

  private:
    json what(const AblateArguments& arguments) const;
    CacheCosts& costs();
    std::unique_ptr<Forward> forward(const KvOptions& kv);
    std::optional<std::vector<uint32_t>> continuation(Forward& model, std::span<const uint32_t> prompt) const;
    std::optional<json> make_samples(const KvOptions& kv);

    Setup& setup_;
    Console& console_;
    const uint32_t tokens_; // of a chunk
    const uint32_t chunks_;
    const MeasuredText text_;
    quality::RunLog log_;
    std::unique_ptr<SharedModel> model_; // loaded when the first measurement needs it
    std::optional<CacheCosts> costs_;
    const std::string log_path_;
    size_t runs_ = 0, found_ = 0; // runs that are done, and how many of them were found in the log
    TimeLeft left_;
};

Ablation::Ablation(const AblateArguments& a, Setup& setup, Console& console)
    : setup_(setup), console_(console), tokens_(a.model.context_size.value_or(ablate_context)), chunks_(a.chunks),
      text_(read_measured_text(a.file, setup.model.tokenizer, tokens_)), log_(utf8_path(a.output), what(a)), log_path_(a.output) {
    write_text(
        measurement_heading(setup, text_) + "\n" +
        table_row({"run", "isolates", "cache", "B/token", "perplexity", "change", "change, %", "KL, nats", "top, %", "verdict"},
                  widths) +
        table_rule(widths));
}

std::string Ablation::where_stopped() const {
    return fmt::format("stopped after {} runs; {}", runs_,
                       log_path_.empty() ? "with -o FILE the same command could continue from there"
                                         : "the same command continues from there");
}

json Ablation::what(const AblateArguments& a) const {
    return {{"schema", "tq-run-ablation"},  {"version", 2},
            {"model", setup_.model.name},   {"weight_bytes", setup_.model.weights.bytes()},
            {"text_sha", text_.hash},       {"text_tokens", text_.ids.size()},
            {"chunks", a.chunks},           {"chunk_tokens", tokens_},
            {"device", setup_.device_name}, {"build", release_description()}};
}

// Weights are loaded once, and shared by all caches. The memory is asked for two caches of the reference's type, the largest.
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

// A trial is looked up by its run and cache, not by its place in the log: the protocol chooses later trials by what earlier ones
// gave. Returns nothing if interrupted.
std::optional<CacheCost> Ablation::measure(const Trial& trial) {
    for (const json& line : log_.parts())
        if (is_of(line, trial)) {
            found_++;
            return quality::cost_of(line);
        }
    const auto keep_going = [&](uint32_t done) {
        const size_t all = costs().chunks().ids.size();
        const double runs = double(runs_ - std::min(runs_, found_)) + double(done) / double(all);
        const std::string rest = left_.after(runs, double(quality::max_runs - std::min(quality::max_runs, found_)));
        console_.status(fmt::format("run {} of at most {}{}: {}, {}, {}, {} of {} tokens", runs_ + 1, quality::max_runs, rest,
                                    trial.run, trial.isolates, describe(trial.kv), done, all));
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
    runs_++;
    const quality::Evaluation evaluation{
        setup_.model.config, text_.hash, {{"device", setup_.device_name}, {"build", release_description()}}};
    if (std::ranges::none_of(log_.parts(), [&](const json& line) { return is_of(line, o.trial); }))
        log_.add(to_json(o, evaluation));
    std::vector<std::string> cells{o.trial.run, o.trial.isolates, describe(o.trial.kv),
                                   std::to_string(kv_bytes_per_token(setup_.model.config, o.trial.kv))};
    if (!o.cost)
        cells.resize(9, "-");
    else {
        const quality::Summary& s = o.cost->summary;
        cells.insert(cells.end(), {with_error(s.perplexity), with_error({o.change(), o.change_error()}),
                                   fmt::format("{:+.2f}", o.relative_change() * 100), fmt::format("{:.1e}", s.kl.value),
                                   fmt::format("{:.2f}", s.same_top.value * 100)});
    }
    cells.emplace_back(name(o.verdict));
    write_output(table_row(cells, widths));
}

// Returns what greedy sampling continues the prompt with, up to where the model ends it; nothing if it was stopped.
std::optional<std::vector<uint32_t>> Ablation::continuation(Forward& model, std::span<const uint32_t> prompt) const {
    const Tokenizer& tokenizer = setup_.model.tokenizer;
    GenerateOptions options{.max_tokens = sample_tokens};
    options.is_end = [&](uint32_t id) { return tokenizer.is_end_of_generation(id); };
    options.interrupted = interrupted;
    model.truncate(0);
    Sampler sampler({.temperature = 0}, unsampled_ids(tokenizer, setup_.model.config.vocab_size));
    const Generated generated = Session(model).generate(prompt, sampler, options);
    if (generated.stop == Stop::interrupted) return std::nullopt;
    return generated.ids;
}

// The samples as a line of the log; nothing if it was stopped.
// Samples begin at three places of the text, evenly spread. Both continuations are greedy, so the first token that differs is
// where the cache changed the answer; what follows are two texts and no longer comparable token by token.
std::optional<json> Ablation::make_samples(const KvOptions& kv) {
    const auto exact = forward(quality::ablation_reference), other = forward(kv);
    json samples = json::array();
    for (uint32_t i = 0; i < sample_count; i++) {
        console_.status(fmt::format("sample {} of {}", i + 1, sample_count));
        const size_t at = (text_.ids.size() - std::min<size_t>(text_.ids.size(), sample_prompt)) * i / sample_count;
        const std::span prompt = std::span(text_.ids).subspan(at, std::min<size_t>(text_.ids.size(), sample_prompt));
        const auto reference = continuation(*exact, prompt);
        const auto measured = reference ? continuation(*other, prompt) : std::nullopt;
        if (!measured) return std::nullopt;
        samples.push_back({{"prompt", utf8(setup_.model.tokenizer, prompt)},
                           {"reference", utf8(setup_.model.tokenizer, *reference)},
                           {"measured", utf8(setup_.model.tokenizer, *measured)},
                           {"reference_tokens", reference->size()},
                           {"measured_tokens", measured->size()},
                           {"same_tokens", std::ranges::mismatch(*reference, *measured).in1 - reference->begin()}});
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
        write_output(fmt::format("\n\"{}\" continues\nwith {}:\n{}\nwith {} ({} of {} tokens before they part):\n{}\n",
                                 harmless(s.at("prompt").get<std::string>()), describe(quality::ablation_reference),
                                 harmless(s.at("reference").get<std::string>()), describe(kv), s.at("same_tokens").get<size_t>(),
                                 s.at("reference_tokens").get<size_t>(), harmless(s.at("measured").get<std::string>())));
    }
    return true;
} catch (const json::exception&) {
    fail("the log has damaged samples: delete it");
}

// Lists the smaller caches that pass too, and why they did not win.
std::string smaller_that_pass(const Findings& findings, const Config& config) {
    const auto& winner = findings.winner->trial.kv;
    std::string text;
    for (const Outcome& o : findings.outcomes)
        if (o.verdict == quality::Verdict::pass && kv_bytes_per_token(config, o.trial.kv) < kv_bytes_per_token(config, winner))
            text += fmt::format("{}, {} B/token, passes too, but its KL divergence is larger: {} nats.\n", describe(o.trial.kv),
                                kv_bytes_per_token(config, o.trial.kv), with_error(o.cost->summary.kl));
    return text;
}

std::string conclusion(const Findings& findings, const Setup& setup) {
    std::string text = "\n";
    if (const auto& bug = findings.bug)
        text += fmt::format("There is a bug: {} ({}) fails, for {}; what comes before it is right. Look at {}.\n", bug->trial.run,
                            bug->trial.isolates, bug->reason, bug->trial.look);
    if (findings.stopped) return text;
    if (const auto& winner = findings.winner)
        text +=
            fmt::format("The winner is {}, {} B/token: perplexity changes by {}, KL divergence {} nats. It is {}.\n",
                        describe(winner->trial.kv), kv_bytes_per_token(setup.model.config, winner->trial.kv),
                        with_error({winner->change(), winner->change_error()}), with_error(winner->cost->summary.kl),
                        findings.confirmed ? "within both budgets by two standard errors"
                                           : "not confirmed: so few tokens cannot tell it from one beyond a budget (--chunks)") +
            smaller_that_pass(findings, setup.model.config);
    else if (!findings.bug)
        text += "No bug, and no winner: nothing smaller passes both budgets.\n";
    return text;
}

// The exit status is 1 for a bug only. "No winner" is a result. The context of the setup is widened for samples, but chunks keep
// their length, so the numbers do not depend on --samples.
int run(const AblateArguments& given) {
    AblateArguments arguments = given;
    const KvArguments& kv = arguments.model.kv;
    if (kv.names_types() || !kv.rotation.empty() || !kv.scale_rule.empty() || kv.window || !kv.conditioning.empty())
        throw UsageError(
            "ablate tries cache types, rotations, scale rules, windows and conditioning itself: leave the flags of the "
            "KV cache out");
    ModelArguments& model = arguments.model;
    if (!model.context_size) model.context_size = ablate_context;
    Console console = arguments.console.console();
    ModelArguments wide = model;
    if (arguments.samples && *model.context_size != 0)
        wide.context_size = std::max(*model.context_size, sample_prompt + sample_tokens);
    Setup setup = set_up(wide, console);
    if (*model.context_size == 0) model.context_size = setup.options.context_size; // all tokens that the model allows
    Ablation ablation(arguments, setup, console);
    catch_interrupts();
    const Findings findings =
        quality::run_protocol([&](const Trial& trial) { return ablation.measure(trial); },
                              [&](const Outcome& outcome) { ablation.show(outcome); }, arguments.keep_going);
    console.clear_status();
    write_text(conclusion(findings, setup));
    const auto& shown = findings.winner ? findings.winner : findings.bug;
    if (findings.stopped || (arguments.samples && shown && !ablation.show_samples(shown->trial.kv))) {
        console.say(ablation.where_stopped());
        return 130;
    }
    return findings.bug ? 1 : 0;
}

} // namespace

void add_ablate(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, AblateArguments& a) {
        command.footer(stages_help);
        add_option(command, "-f,--file", a.file, "FILE", "text to measure on; default: a short built-in text");
        add_option(command, "-o,--output", a.output, "FILE.jsonl",
                   "keep every run in this file of JSON lines, and resume from it if it exists");
        add_option(command, "--chunks", a.chunks, "N", "number of chunks of -c tokens; default: 2").check(number(1, 1 << 20));
        add_flag(command, "--samples", a.samples, "print what the model generates with the winner and with the reference");
        add_flag(command, "--keep-going", a.keep_going,
                 "continue after a stage that fails, although later stages then mean little");
        add_option(command, "--log", a.output, "", "").group(""); // as the other commands call it
        add_flags(command, a.model);
        command.get_option("--ctx-size")
            .description("tokens of a chunk, such as 2048 or 4k; 0: the model's maximum; default: 512");
        hide_flags(command, {"--kv", "--cache-type-k", "--cache-type-v", "--kv-layers", "--kv-rotation", "--kv-scale",
                             "--kv-window", "--kv-condition"});
        add_flags(command, a.console);
    };
    add_command<AblateArguments>(app, action, "ablate",
                                 "Find faults of the cache stage by stage, then the fewest bits that the model tolerates", flags,
                                 run);
}

} // namespace tq
