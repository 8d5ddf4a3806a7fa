// tq-run perplexity: what a cache type costs: perplexity of a text, and against a reference cache how the probabilities change.
#include "base/error.h"
#include "base/interrupt.h"
#include "base/printable.h"
#include "model/formats/json.h"
#include "quality/compare.h"
#include "quality/run_log.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/shared_model.h"
#include <algorithm>
#include <functional>

namespace tq {
namespace {

using nlohmann::json;
using quality::Divergence, quality::Estimate, quality::Summary;

constexpr uint64_t most_text = 1 << 30;
constexpr uint32_t usual_context = 512; // llama.cpp's, so that perplexities can be compared

struct PerplexityArguments {
    ConsoleArguments console;
    ModelArguments model;
    std::string file, reference = "f16", log;
    uint32_t chunks = 0; // 0: all
};

json to_json(uint32_t chunk, std::span<const Divergence> tokens) {
    json part = quality::to_json(tokens);
    part["chunk"] = chunk;
    return part;
}

std::vector<Divergence> from_json(const json& part, size_t chunk, size_t tokens) {
    if (!part.contains("chunk") || part["chunk"] != chunk) fail("the log has no chunk {}: it is broken; remove it", chunk);
    return quality::divergences(part, tokens);
}

std::string line(const char* what, const Estimate& e, double factor = 1, const char* unit = "") {
    return fmt::format("{:<26} {:.6g} +- {:.2g}{}\n", what, e.value * factor, e.error * factor, unit);
}

// All chunks' tokens at positions [from, to) of their chunk.
std::vector<Divergence> at_positions(const std::vector<std::vector<Divergence>>& chunks, size_t from, size_t to) {
    std::vector<Divergence> out;
    for (const auto& chunk : chunks)
        out.insert(out.end(), chunk.begin() + std::ptrdiff_t(from), chunk.begin() + std::ptrdiff_t(std::min(to, chunk.size())));
    return out;
}

std::string report(const std::vector<std::vector<Divergence>>& chunks, uint32_t context, const std::string& kv,
                   const std::string& reference) {
    const Summary s = quality::summarise(at_positions(chunks, context / 2, context));
    std::string text =
        fmt::format("{} chunks of {} tokens; the second half of each counts, {} tokens\n", chunks.size(), context, s.tokens);
    text += line(fmt::format("perplexity, {}", kv).c_str(), s.perplexity);
    text += line(fmt::format("perplexity, {}", reference).c_str(), s.reference_perplexity);
    text += line("change of log p", {-s.loss_change.value, s.loss_change.error});
    text += line("KL divergence, mean", s.kl);
    text += fmt::format("{:<26} {:.6g}, {:.6g}, {:.6g}\n", "  median, 99 %, greatest", s.kl_median, s.kl_99, s.kl_max);
    text += line("same most probable token", s.same_top, 100, " %");
    text += "\n| tokens before | KL, mean | same top | log p changes by |\n|---|---|---|---|\n";
    for (uint32_t from = 1; from < context; from *= 2) {
        if (from < 16 && from * 2 < context / 8) continue;
        const Summary part = quality::summarise(at_positions(chunks, from, 2ull * from));
        text +=
            fmt::format("| {} to {} | {:.3g} +- {:.1g} | {:.2f} % | {:+.2g} +- {:.1g} |\n", from, std::min(2 * from, context) - 1,
                        part.kl.value, part.kl.error, part.same_top.value * 100, -part.loss_change.value, part.loss_change.error);
    }
    return text;
}

int run(const PerplexityArguments& given) {
    PerplexityArguments arguments = given;
    const std::string text = read_text_file(arguments.file, most_text);
    if (!arguments.model.context_size) arguments.model.context_size = usual_context;
    Console console = arguments.console.console();
    Setup setup = set_up(arguments.model, console);
    const uint32_t context = setup.options.context_size;
    if (context < 16) fail("chunks of {} tokens say nothing: give at least 16 with -c", context);
    const std::vector<uint32_t> ids = setup.model.tokenizer.encode(text);
    const auto whole = uint32_t(std::min<size_t>(ids.size() / context, UINT32_MAX));
    if (whole == 0)
        fail("{} has {} tokens, and one chunk has {}: give a longer text, or fewer with -c", printable(arguments.file),
             ids.size(), context);
    const uint32_t count = arguments.chunks == 0 ? whole : std::min(whole, arguments.chunks);
    const KvType type = parse_kv_type(arguments.reference);
    const KvOptions reference{type, type};
    const std::string kv_name = describe(setup.options.kv), reference_name = describe(reference);
    quality::RunLog log(arguments.log, {{"schema", "tq-run-perplexity"},
                                        {"version", 1},
                                        {"model", setup.model.name},
                                        {"weight_bytes", setup.model.weights.bytes()},
                                        {"text", arguments.file},
                                        {"text_tokens", ids.size()},
                                        {"context", context},
                                        {"kv", kv_name},
                                        {"reference", reference_name},
                                        {"kv_bytes_per_token", kv_bytes_per_token(setup.model.config, setup.options.kv)},
                                        {"kv_recent_bytes", kv_recent_bytes(setup.model.config, setup.options.kv)},
                                        {"device", setup.device_name},
                                        {"build", build_description()}});
    std::vector<std::vector<Divergence>> chunks;
    for (const json& part : log.parts()) chunks.push_back(from_json(part, chunks.size(), context - 1));
    if (chunks.size() > count) chunks.resize(count);
    catch_interrupts();
    if (chunks.size() < count) {
        check_memory(setup, std::array{setup.options.kv, reference});
        const SharedModel model(setup, console);
        const auto measured = model.forward(setup.options.kv), compared = model.forward(reference);
        while (chunks.size() < count) {
            const auto chunk = uint32_t(chunks.size());
            const auto keep_going = [&](uint32_t tokens) {
                console.status(fmt::format("chunk {} of {}, {} of {} tokens", chunk + 1, count, tokens, context));
                return !interrupted();
            };
            auto tokens = quality::compare(std::array{measured.get()}, *compared,
                                           std::span(ids).subspan(size_t(chunk) * context, context), keep_going);
            if (tokens.empty()) break;
            log.add(to_json(chunk, tokens[0]));
            chunks.push_back(std::move(tokens[0]));
        }
        console.clear_status();
    }
    if (!chunks.empty()) write_output(report(chunks, context, kv_name, reference_name));
    return chunks.size() < count ? 130 : 0;
}

} // namespace

void add_perplexity(CLI::App& app, Action& action) {
    const auto flags = [](CLI::App& command, PerplexityArguments& a) {
        command.add_option("-f,--file", a.file, "the text")->required()->option_text("FILE");
        command.add_option("--chunks", a.chunks, "so many chunks of -c tokens (default 512); default: the whole text")
            ->option_text("N");
        command.add_option("--reference", a.reference, "the cache type to compare with; default: f16")->option_text("TYPE");
        command.add_option("--log", a.log, "keep what was measured here, as JSON lines; a file that is there is gone on with")
            ->option_text("FILE");
        add_flags(command, a.model);
        add_flags(command, a.console);
    };
    add_command<PerplexityArguments>(app, action, "perplexity",
                                     "What a cache type costs: perplexity, and divergence from a reference cache", flags, run);
}

} // namespace tq
