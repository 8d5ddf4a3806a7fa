#include "tools/tq-run/engine/generation_text.h"
#include "base/interrupt.h"
#include "tools/tq-run/cli/progress.h"
#include <fmt/format.h>
#include <memory>

namespace tq {

GenerateOptions interruptible(Console& console) {
    GenerateOptions options;
    options.interrupted = interrupted;
    console.status("reading the prompt");
    options.on_prompt = [status = std::make_shared<WorkStatus>(console, "tokens")](uint32_t done, uint32_t total) {
        if (done < total) status->update("reading the prompt", done, total);
    };
    return options;
}

std::string describe_rate(double tokens_per_second) {
    return fmt::format("{:.{}f} t/s", tokens_per_second, tokens_per_second < 100 ? 1 : 0);
}

static std::string describe_ns(uint64_t ns) {
    const double seconds = double(ns) * 1e-9;
    return seconds < 0.9995 ? fmt::format("{:.0f} ms", seconds * 1e3) : fmt::format("{:.1f} s", seconds);
}

std::string generation_line(const Generated& result, size_t used, uint32_t context_size) {
    const Timings& t = result.timings;
    const size_t n = result.ids.size();
    std::string line = fmt::format("[ {} {}", n, n == 1 ? "token" : "tokens");
    if (n > 0) line += fmt::format(" in {}, first after {}", describe_ns(t.prompt_ns + t.decode_ns), describe_ns(t.prompt_ns));
    if (t.prompt_tokens > 0 && t.prompt_ns > 0) line += fmt::format(" | prompt {}", describe_rate(t.prompt_per_second()));
    if (t.decoded_tokens > 0 && t.decode_ns > 0) line += fmt::format(" | generation {}", describe_rate(t.decoded_per_second()));
    if (t.drafted_tokens > 0) line += fmt::format(" | {} of {} drafted accepted", t.accepted_tokens, t.drafted_tokens);
    return line + fmt::format(" | context {} of {} ]", used, context_size);
}

} // namespace tq
