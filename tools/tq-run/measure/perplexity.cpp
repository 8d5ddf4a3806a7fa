// tq-run perplexity: the cost of a cache type: perplexity of a text, and changed probabilities against a reference cache. Both
// caches run over the same chunk at the same time, so only two caches are in memory and no logits are kept. As in llama.cpp the
// second half of each chunk counts, where every token has at least half a context before it. A chunk is a line of the log;
// --shard divides the chunks among machines.
#include "base/error.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/json.h"
#include "tools/check/quality/compare.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/cli/time_left.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/ranks.h"
#include "tools/tq-run/engine/setup.h"
#include "tools/tq-run/engine/shared_model.h"
#include "tools/tq-run/measure/divergence_report.h"
#include "tools/tq-run/measure/measured_text.h"
#include "tools/tq-run/measure/shard.h"
#include <algorithm>

namespace tq {
namespace {

using nlohmann::json;
using quality::Divergence, quality::Estimate, quality::Summary;

constexpr uint32_t perplexity_context = 512; // llama.cpp's, so that perplexities can be compared

struct PerplexityArguments {
    ConsoleArguments console;
    ModelArguments model{.measured = true};
    std::string file, reference = "f16";
    ShardArguments shard;
    uint32_t chunks = 0; // 0: all
    bool as_json = false;
};

json to_json(uint32_t chunk, std::span<const Divergence> tokens) {
    json part = quality::to_json(tokens);
    part["chunk"] = chunk;
    return part;
}

std::vector<Divergence> from_json(const json& part, size_t chunk, size_t tokens) {
    if (!part.contains("chunk") || part["chunk"] != chunk) fail("the log has no chunk {}, so it is damaged: delete it", chunk);
    return quality::divergences(part, tokens);
}

// The same report for programs.
std::string json_report(const Summary& s, json what) {
    const auto add = [&](const std::string& name, const Estimate& e) {
        what[name] = e.value;
        what[name + "_error"] = e.error;
    };
    what["tokens"] = s.tokens;
    add("perplexity", s.perplexity);
    add("reference_perplexity", s.reference_perplexity);
    add("perplexity_ratio", perplexity_ratio(s));
    add("log_p_change", {-s.loss_change.value, s.loss_change.error});
    add("kl", s.kl);
    add("same_top", s.same_top);
    what.update({{"kl_median", s.kl_median}, {"kl_99", s.kl_99}, {"kl_max", s.kl_max}});
    return what.dump(1) + "\n";
}

// Reads the chunks in `log` that `chunks` lacks, of `count` of all shards.
void read_chunks(const ShardLog& log, const Shard& shard, uint32_t context, uint32_t count, Chunks& chunks) {
    while (chunks.size() < std::min(log.parts().size(), shard.size(count)))
        chunks.push_back(from_json(log.parts()[chunks.size()], shard.part(chunks.size()), context - 1));
}

// Measures the chunks of this shard that `log` lacks, and adds them to it and to `chunks`; fewer after Ctrl-C.
// A chunk's result goes to the log and is read back from it: what is reported is what a resumed run would read, so that both
// print the same digits.
void measure(Setup& setup, const KvOptions& reference, std::span<const uint32_t> ids, uint32_t count, Console& console,
             const Shard& shard, ShardLog& log, Chunks& chunks) {
    const uint32_t context = setup.options.context_size;
    check_memory(setup, std::array{setup.options.kv, reference});
    const SharedModel model(setup, console);
    const auto measured = model.forward(setup.options.kv), compared = model.forward(reference);
    const TimeLeft left(double(chunks.size()) * context);
    for (const size_t all = shard.size(count); chunks.size() < all;) {
        const size_t chunk = shard.part(chunks.size());
        const auto keep_going = [&](uint32_t tokens) {
            const double done = double(chunks.size()) * context + tokens;
            console.status(fmt::format("chunk {} of {}, {} of {} tokens{}", chunk + 1, count, tokens, context,
                                       left.after(done, double(all) * context)));
            return !interrupted();
        };
        auto tokens = quality::compare(std::array{measured.get()}, *compared, ids.subspan(chunk * context, context), keep_going);
        if (tokens.empty()) break;
        log.add(to_json(uint32_t(chunk), tokens[0]));
        read_chunks(log, shard, context, count, chunks);
    }
    console.clear_status();
}

int run(const PerplexityArguments& given) {
    PerplexityArguments arguments = given;
    if (!arguments.model.context_size) arguments.model.context_size = perplexity_context;
    if (const auto status = run_as_rank(arguments.model)) return *status;
    const Shard shard = arguments.shard.shard();
    arguments.model.alone = !arguments.shard.text.empty();
    Console console = arguments.console.console();
    Setup setup = set_up(arguments.model, console);
    const uint32_t context = setup.options.context_size;
    const MeasuredText text = read_measured_text(arguments.file, setup.model.tokenizer, context);
    const auto whole = uint32_t(std::min<size_t>(text.ids.size() / context, UINT32_MAX));
    const uint32_t count = arguments.chunks == 0 ? whole : std::min(whole, arguments.chunks);
    const KvType type = parse_kv_type(arguments.reference);
    const KvOptions reference{type, type};
    const std::string kv_name = describe(setup.options.kv), reference_name = describe(reference);
    json what = measurement_of_cache("tq-run-perplexity", setup, reference_name);
    what.update({{"text", arguments.file.empty() ? "built-in" : printable(arguments.file, 1000)},
                 {"text_tokens", text.ids.size()},
                 {"context", context}});
    ShardLog log(arguments.shard, what, true);
    Chunks chunks;
    read_chunks(log, shard, context, count, chunks);
    catch_interrupts();
    if (chunks.size() < shard.size(count)) measure(setup, reference, text.ids, count, console, shard, log, chunks);
    if (!shard.is_all()) return arguments.shard.end_shard(chunks.size(), count);
    if (!chunks.empty() && arguments.as_json)
        write_output(json_report(quality::summarise(at_positions(chunks, context / 2, context)), what));
    else if (!chunks.empty())
        write_text(
            fmt::format("{}cache   {}\n\n", measurement_heading(setup, text), cache_text(setup.model.config, setup.options.kv)) +
            divergence_report(chunks, context, kv_name, reference_name));
    return arguments.shard.end_all(chunks.size(), count, "chunks");
}

} // namespace

void add_perplexity(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, PerplexityArguments& a) {
        add_option(command, "-f,--file", a.file, "FILE", "text to measure on; default: a short built-in text");
        add_option(command, "--chunks", a.chunks, "N", "number of chunks of -c tokens; default: the whole text");
        add_option(command, "--reference", a.reference, "TYPE", "cache type to compare with; default: f16")
            .check(cache_types(parse_kv_type));
        add_flags(command, a.shard, "keep the measurements in this file of JSON lines, and resume from it if it exists");
        add_flag(command, "--json", a.as_json, "print the summary as JSON");
        add_flags(command, a.model);
        command.get_option("--ctx-size")
            .description("tokens of a chunk, such as 2048 or 4k; 0: the model's maximum; default: 512");
        add_flags(command, a.console);
    };
    add_command<PerplexityArguments>(app, action, "perplexity",
                                     "Measure what a cache type costs: perplexity, and KL divergence from a reference type",
                                     flags, run);
}

} // namespace tq
