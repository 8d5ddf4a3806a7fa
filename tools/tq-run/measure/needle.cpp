// tq-run needle: whether a model still finds facts in a long text with a compressed cache: by length and by depth, against a
// reference cache on the same prompts.
// A text (haystack) has facts, key and value, at given depths, filler between them, and distractors that share half of a key with
// a fact. Each fact is asked for in a prompt of its own; prompts of one text share their beginning, which the session runs once.
// Found exactly means the greedy answer; log p of the right value tells more, as it changes before the answer does. A text
// depends on seed, sample and length alone, so logs of several runs and shards fit together, sample by sample.
#include "tools/check/quality/needle.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/json.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/cli/time_left.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/setup.h"
#include "tools/tq-run/engine/shared_model.h"
#include "tools/tq-run/measure/measured_text.h"
#include "tools/tq-run/measure/shard.h"
#include <algorithm>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

using nlohmann::json;
using quality::Estimate, quality::Found, quality::Haystack, quality::HaystackOptions, quality::Needle, quality::NeedleSummary;

constexpr uint64_t max_haystack = 1 << 30;
constexpr uint32_t tokens_of_distractor = 64; // one distractor for each 64 tokens,
constexpr uint32_t max_distractors = 400;     // but no more than this, if no number was given

struct NeedleArguments {
    ConsoleArguments console;
    ModelArguments model{.measured = true};
    std::vector<uint32_t> lengths{512, 1024, 2048};
    std::vector<double> depths{0, 0.25, 0.5, 0.75, 1};
    uint32_t keys = 2, digits = 4, samples = 4;
    std::optional<uint32_t> distractors;
    uint64_t seed = 1;
    std::string file, reference = "f16";
    ShardArguments shard;
};

// The results of one text of one length.
struct Part {
    uint32_t sample, length;
    std::vector<Found> found;
};

using TextPlan = std::vector<std::pair<uint32_t, uint32_t>>; // sample and length of each text

json to_json(const Part& part, const Haystack& haystack) {
    json found = json::array();
    for (size_t i = 0; i < part.found.size(); i++) found.push_back(quality::to_json(haystack.needles[i], part.found[i]));
    return {{"sample", part.sample}, {"length", part.length}, {"found", found}};
}

// A line must be the one that this place of the plan has. A log of other lengths has another header and is refused before. The
// number of samples is not in the header: more samples go on where fewer ended.
Part from_json(const json& part, uint32_t sample, uint32_t length, const NeedleArguments& arguments) {
    const size_t facts = arguments.depths.size() * arguments.keys;
    Part out{sample, length, {}};
    if (!part.is_object() || part.value("sample", json()) != sample || part.value("length", json()) != length ||
        !part.contains("found") || part["found"].size() != facts)
        fail("the log has no sample {} of {} tokens with {} facts, so it is damaged: delete it", sample, length, facts);
    for (const json& found : part["found"]) out.found.push_back(quality::found_from_json(found));
    if (!std::ranges::all_of(out.found, [&](const Found& f) { return f.depth < arguments.depths.size(); }))
        fail("the log has a depth that was not measured, so it is damaged: delete it");
    return out;
}

std::string line(const std::string& what, const Estimate& e, const char* unit) {
    return fmt::format("{:<30} {}", what, with_error(e, unit));
}

// The character whose shade shows a share of 1 on a terminal.
const char* shade(double share) {
    constexpr const char* shades[]{"  ", "░░", "▒▒", "▓▓", "██"};
    return shades[share >= 1 ? 4 : size_t(std::clamp(share, 0.0, 1.0) * 4)];
}

// A table of lengths by depths, and of all depths together; `cell` returns a cell's text.
template <class CellText> std::string table(const NeedleArguments& arguments, const std::vector<Part>& parts, CellText cell) {
    std::vector<std::vector<std::string>> rows{{"tokens"}};
    for (const double depth : arguments.depths) rows[0].push_back(fmt::format("{}", depth));
    rows[0].emplace_back("all");
    for (const uint32_t length : arguments.lengths) {
        auto& row = rows.emplace_back(std::vector{std::to_string(length)});
        for (size_t depth = 0; depth <= arguments.depths.size(); depth++) {
            std::vector<Found> found;
            for (const Part& part : parts)
                for (const Found& f : part.found)
                    if (part.length == length && (depth == arguments.depths.size() || f.depth == depth)) found.push_back(f);
            row.push_back(found.empty() ? "" : cell(quality::summarise(found)));
        }
    }
    return markdown(rows, 0);
}

std::string report(const NeedleArguments& arguments, const std::vector<Part>& parts, const std::string& kv,
                   const std::string& reference) {
    std::vector<Found> all;
    for (const Part& part : parts) all.insert(all.end(), part.found.begin(), part.found.end());
    const NeedleSummary s = quality::summarise(all);
    const bool compared = !reference.empty();
    std::string text = fmt::format("{} texts of {} tokens, {} facts of {} digits at each of {} depths\n\n", parts.size(),
                                   fmt::join(arguments.lengths, ", "), arguments.keys, arguments.digits, arguments.depths.size());
    const auto exact = [&](const std::string& name, const Estimate& share, uint64_t count) {
        return line("found exactly, " + name, {share.value * 100, share.error * 100}, "%") +
               fmt::format("   ({} of {})\n", count, s.facts);
    };
    text += exact(kv, s.exact_share, s.exact);
    if (compared) text += exact(reference, s.reference_exact_share, s.reference_exact);
    text += line("log p of a value, " + kv, s.log_p, "nats") + "\n";
    if (compared) {
        text += line("log p of a value, " + reference, s.reference_log_p, "nats") + "\n";
        text += line("change of log p", s.log_p_change, "nats") + "\n";
    }
    text += fmt::format("\nfound exactly, %, by the share of the text before the fact{}\n\n",
                        compared ? fmt::format("; in brackets {}", reference) : "");
    text += table(arguments, parts, [&](const NeedleSummary& cell) {
        const double share = cell.exact_share.value;
        return compared ? fmt::format("{} {:.0f} ({:.0f})", shade(share), share * 100, cell.reference_exact_share.value * 100)
                        : fmt::format("{} {:.0f}", shade(share), share * 100);
    });
    text += fmt::format("\n{} of a value, nats, by the same\n\n", compared ? "change of log p" : "log p");
    text += table(arguments, parts, [&](const NeedleSummary& cell) {
        const Estimate& e = compared ? cell.log_p_change : cell.log_p;
        return with_error(e);
    });
    return text;
}

// A session on each cache, and the questions asked in them.
class Measurement {
  public:
    Measurement(const NeedleArguments& arguments, const Setup& setup, Console& console, std::vector<std::string> sentences)
        : arguments_(arguments), setup_(setup), console_(console), sentences_(std::move(sentences)) {}

    void add(std::unique_ptr<Forward> forward) { forwards_.push_back(std::move(forward)); }
    Haystack haystack(uint32_t sample, uint32_t length) const;
    // Nothing if Ctrl-C stopped it. `left`: estimates the time left for all texts from the tokens read with each cache;
    // `before`: tokens of the earlier texts; `total`: of all texts.
    std::optional<Part> measure(uint32_t sample, uint32_t length, const Haystack& haystack, const TimeLeft& left, double before,
                                double total);
    double caches() const { return double(forwards_.size()); }

  private:
    const NeedleArguments& arguments_;
    const Setup& setup_;
    Console& console_;
    const std::vector<std::string> sentences_;
    std::vector<std::unique_ptr<Forward>> forwards_; // the measured cache, and the reference if there is one
};

// The seed is hashed twice, once for each number, so that neighbouring samples and lengths have unrelated texts.
Haystack Measurement::haystack(uint32_t sample, uint32_t length) const {
    const HaystackOptions options{.depths = arguments_.depths,
                                  .keys = arguments_.keys,
                                  .digits = arguments_.digits,
                                  .distractors =
                                      arguments_.distractors.value_or(std::min(length / tokens_of_distractor, max_distractors))};
    // A text depends only on its own numbers, not on which others are measured.
    const uint64_t seed = Random(Random(arguments_.seed).next() ^ sample).next() ^ length;
    return quality::make_haystack(setup_.model, options, length, sentences_, Random(seed));
}

// Measures one cache after the other, each in its own session. The text is run for the first fact; the session finds it again for
// the others, whose prompts differ only in the question at the end. So a text costs its length once for each cache, and that is
// what the estimate of the time counts.
std::optional<Part> Measurement::measure(uint32_t sample, uint32_t length, const Haystack& haystack, const TimeLeft& left,
                                         double before, double total) {
    Part part{sample, length, std::vector<Found>(haystack.needles.size())};
    for (size_t i = 0; i < part.found.size(); i++) part.found[i].depth = haystack.needles[i].depth;
    for (size_t cache = 0; cache < forwards_.size(); cache++) {
        Session session(*forwards_[cache]);
        forwards_[cache]->truncate(0);
        for (size_t i = 0; i < part.found.size(); i++) {
            const auto where = fmt::format("text {} of {}, {} tokens, {}", sample + 1, arguments_.samples, length,
                                           describe(forwards_[cache]->kv()));
            const Progress progress = [&](uint32_t done, uint32_t all) {
                const double read = i > 0 ? length : std::min(done, length); // later facts share the text
                const std::string rest = left.after(before + double(cache) * length + read, total);
                console_.status(done < all ? fmt::format("{}: {} of {} tokens read{}", where, done, all, rest)
                                           : fmt::format("{}: fact {} of {}{}", where, i + 1, part.found.size(), rest));
                return !interrupted();
            };
            const Needle& needle = haystack.needles[i];
            const std::vector<uint32_t> prompt = quality::needle_prompt(setup_.model, haystack.text, needle.fact);
            auto recalled = quality::recall(session, setup_.model, prompt, needle.fact.value, progress);
            if (!recalled) return std::nullopt;
            if (cache == 0)
                part.found[i].measured = std::move(*recalled);
            else
                part.found[i].reference = std::move(*recalled);
        }
    }
    return part;
}

template <class T> void sort_out(std::vector<T>& values) {
    std::ranges::sort(values);
    const auto same = std::ranges::unique(values);
    values.erase(same.begin(), same.end());
}

void check(const NeedleArguments& arguments, uint32_t max) {
    for (const uint32_t length : arguments.lengths)
        if (length > max)
            fail("texts of {} tokens exceed the context of {}: choose shorter ones with --lengths, or a larger context with -c "
                 "or --rope-scaling",
                 length, max);
}

json log_header(const NeedleArguments& arguments, const Setup& setup, const std::string& reference) {
    json what = measurement_of_cache("tq-run-needle", setup, reference.empty() ? json() : json(reference));
    what.update({{"lengths", arguments.lengths},
                 {"depths", arguments.depths},
                 {"keys", arguments.keys},
                 {"digits", arguments.digits},
                 {"distractors", arguments.distractors ? json(*arguments.distractors) : json("by length")},
                 {"seed", arguments.seed},
                 {"text", arguments.file}});
    return what;
}

// Reads the parts in `log` that `parts` lacks.
void read_parts(const NeedleArguments& arguments, const TextPlan& plan, const ShardLog& log, std::vector<Part>& parts) {
    while (parts.size() < std::min(log.parts().size(), plan.size())) {
        const auto& [sample, length] = plan[parts.size()];
        parts.push_back(from_json(log.parts()[parts.size()], sample, length, arguments));
    }
}

// Measures the texts of this shard that `log` lacks, and adds them to it and to `parts`; fewer after Ctrl-C.
void measure_all(Setup& setup, const KvOptions* reference, const TextPlan& plan, Measurement& measurement, Console& console,
                 const NeedleArguments& arguments, ShardLog& log, std::vector<Part>& parts) {
    std::vector<KvOptions> caches{setup.options.kv};
    if (reference) caches.push_back(*reference);
    check_memory(setup, caches);
    const SharedModel model(setup, console);
    for (const KvOptions& kv : caches) measurement.add(model.forward(kv));
    std::vector<double> before{0}; // tokens of the texts before each
    for (const auto& [sample, length] : plan) before.push_back(before.back() + measurement.caches() * length);
    const TimeLeft left(before[parts.size()]);
    while (parts.size() < plan.size()) {
        const auto [sample, length] = plan[parts.size()];
        const Haystack haystack = measurement.haystack(sample, length);
        auto part = measurement.measure(sample, length, haystack, left, before[parts.size()], before.back());
        if (!part) break;
        log.add(to_json(*part, haystack));
        read_parts(arguments, plan, log, parts);
    }
    console.clear_status();
}

// A haystack of each length is made before the weights are loaded, because a length may be too short for its facts. The log is
// read before, too: if it has all parts of this shard, nothing is loaded.
int run(const NeedleArguments& given) {
    NeedleArguments arguments = given;
    const Shard shard = arguments.shard.shard();
    arguments.model.alone = !arguments.shard.text.empty();
    sort_out(arguments.lengths);
    sort_out(arguments.depths);
    std::vector<std::string> sentences;
    if (!arguments.file.empty()) {
        sentences = quality::split_sentences(read_text_file(utf8_path(arguments.file), max_haystack));
        if (sentences.empty()) fail("{} has no sentences: name another file with -f", printable(arguments.file));
    }
    const bool asked = arguments.model.context_size.has_value();
    if (!asked) arguments.model.context_size = std::ranges::max(arguments.lengths);
    Console console = arguments.console.console();
    Setup setup = set_up(arguments.model, console);
    check(arguments, asked ? setup.options.context_size : setup.model.config.max_position_embeddings);
    const KvType type = arguments.reference == "none" ? KvType::f16 : parse_kv_type(arguments.reference);
    const KvOptions reference{type, type};
    const std::string kv_name = describe(setup.options.kv),
                      reference_name = arguments.reference == "none" ? "" : describe(reference);
    TextPlan all, plan; // sample by sample: more samples continue where fewer ended; plan: of this shard
    for (uint32_t sample = 0; sample < arguments.samples; sample++)
        for (const uint32_t length : arguments.lengths) all.emplace_back(sample, length);
    for (size_t i = 0; i < shard.size(all.size()); i++) plan.push_back(all[shard.part(i)]);

    Measurement measurement(arguments, setup, console, std::move(sentences));
    for (const uint32_t length : arguments.lengths) measurement.haystack(0, length); // fails before anything is loaded
    ShardLog log(arguments.shard, log_header(arguments, setup, reference_name), true);
    std::vector<Part> parts;
    read_parts(arguments, plan, log, parts);
    catch_interrupts();
    if (parts.size() < plan.size())
        measure_all(setup, reference_name.empty() ? nullptr : &reference, plan, measurement, console, arguments, log, parts);
    if (!shard.is_all()) return arguments.shard.end_shard(parts.size(), all.size());
    if (!parts.empty())
        write_text(fmt::format("{}cache   {}\n\n", measurement_heading(setup), cache_text(setup.model.config, setup.options.kv)) +
                   report(arguments, parts, kv_name, reference_name));
    return arguments.shard.end_all(parts.size(), plan.size(), "texts");
}

void add_needle_flags(ArgumentParser& command, NeedleArguments& a) {
    const auto add = [&](const char* name, auto& value, const char* help, double min, double max, const char* type) {
        return add_option(command, name, value, type, help).check(number(min, max));
    };
    add("--lengths", a.lengths, "lengths of the prompts in tokens; default: 512,1024,2048", 64, max_context, "LIST")
        .delimiter(',');
    add("--depths", a.depths, "positions of the facts, as fractions of the text; default: 0,0.25,0.5,0.75,1", 0, 1, "LIST")
        .delimiter(',');
    add("--keys", a.keys, "facts at each depth, asked for one by one; default: 2", 1, quality::max_facts, "N");
    add("--digits", a.digits, "digits of each value; default: 4", 1, quality::max_digits, "N");
    add("--distractors", a.distractors,
        "facts that are not asked for, each with half of a key that is; default: one per 64 tokens, at most 400", 0,
        quality::max_facts, "N");
    add("--samples", a.samples, "number of texts of each length; default: 4", 1, 1'000'000, "N");
    add("-s,--seed", a.seed, "seed of the texts; default: 1", 0, 9'000'000'000'000'000'000.0, "N");
    add_option(command, "-f,--file", a.file, "FILE", "text whose sentences are the filler; default: made of simple words");
    add_option(command, "--reference", a.reference, "TYPE", "cache type to compare with, or none; default: f16")
        .check(cache_types([](const std::string& text) {
            if (text != "none") parse_kv_type(text);
        }));
    add_flags(command, a.shard, "keep the measurements in this file of JSON lines, and resume from it if it exists");
}

} // namespace

void add_needle(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, NeedleArguments& a) {
        add_needle_flags(command, a);
        add_flags(command, a.model);
        add_flags(command, a.console);
    };
    add_command<NeedleArguments>(app, action, "needle", "Test whether facts in long texts are still found, by length and depth",
                                 flags, run);
}

} // namespace tq
