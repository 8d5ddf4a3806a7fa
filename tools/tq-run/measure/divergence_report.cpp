#include "tools/tq-run/measure/divergence_report.h"
#include "tools/tq-run/cli/table.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace tq {

using quality::Divergence, quality::Estimate, quality::Summary;

namespace {

std::string estimate_line(std::string_view what, const Estimate& e, const char* unit = "") {
    return fmt::format("{:<26} {}\n", what, with_error(e, unit));
}

Estimate percent(const Estimate& share) { return {share.value * 100, share.error * 100}; }
Estimate negative(const Estimate& e) { return {-e.value, e.error}; }

} // namespace

Estimate perplexity_ratio(const Summary& s) {
    const double ratio = std::exp(s.loss_change.value);
    return {ratio, ratio * s.loss_change.error};
}

std::vector<Divergence> at_positions(const Chunks& chunks, size_t from, size_t to) {
    std::vector<Divergence> out;
    for (const auto& chunk : chunks)
        out.insert(out.end(), chunk.begin() + std::ptrdiff_t(from), chunk.begin() + std::ptrdiff_t(std::min(to, chunk.size())));
    return out;
}

// Tokens are told apart by how many stand before them, in powers of two, because what a cache costs may grow with the context.
// The shortest of these ranges have few tokens, and are left out if the context is long.
std::string divergence_report(const Chunks& chunks, uint32_t context, const std::string& measured, const std::string& reference) {
    const Summary s = quality::summarise(at_positions(chunks, context / 2, context));
    std::string text =
        fmt::format("{} chunks of {} tokens; the second half of each counts, {} tokens\n\n", chunks.size(), context, s.tokens);
    text += estimate_line(fmt::format("perplexity, {}", measured), s.perplexity);
    text += estimate_line(fmt::format("perplexity, {}", reference), s.reference_perplexity);
    text += estimate_line("their ratio", perplexity_ratio(s));
    text += estimate_line("change of log p", negative(s.loss_change), "nats");
    text += estimate_line("KL divergence, mean", s.kl, "nats");
    text += fmt::format("{:<26} {:.2e}, {:.2e}, {:.2e} nats\n", "  median, 99 %, greatest", s.kl_median, s.kl_99, s.kl_max);
    text += estimate_line("same most probable token", percent(s.same_top), "%") + "\n";
    std::vector<std::vector<std::string>> rows{{"tokens before", "KL, mean, nats", "same top, %", "log p changes by, nats"}};
    for (uint32_t from = 1; from < context; from *= 2) {
        if (from < 16 && from * 2 < context / 8) continue;
        const Summary part = quality::summarise(at_positions(chunks, from, 2ull * from));
        rows.push_back({fmt::format("{} to {}", from, std::min(2 * from, context) - 1), with_error(part.kl),
                        with_error(percent(part.same_top)), with_error(negative(part.loss_change))});
    }
    return text + markdown(rows, 1);
}

} // namespace tq
