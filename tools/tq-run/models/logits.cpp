// tq-run logits: the model's logits after the last token, in full precision.
#include "base/error.h"
#include "base/interrupt.h"
#include "base/printable.h"
#include "tools/tq-run/cli/progress.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/engine.h"
#include "tools/tq-run/engine/generation_text.h"
#include <charconv>
#include <fmt/ranges.h>
#include <optional>

namespace tq {
namespace {

struct LogitsArguments {
    ConsoleArguments console;
    ModelArguments model;
    std::string prompt, ids; // ids: 1,2,3
    bool json = false;
};

// Parses "1,2,3". Throws Error if the text is no list of numbers.
std::vector<uint32_t> parse_ids(std::string_view text) {
    std::vector<uint32_t> ids;
    const char *at = text.data(), *const end = at + text.size();
    while (true) {
        const auto [after, error] = std::from_chars(at, end, ids.emplace_back());
        if (error != std::errc() || (after != end && *after != ','))
            fail("it must be token ids such as 1,2,3, not {}", printable(text));
        if (after == end) return ids;
        at = after + 1;
    }
}

int run(const LogitsArguments& arguments) {
    if (arguments.ids.empty() && arguments.prompt.empty())
        throw UsageError("logits needs token ids (--ids 1,2,3) or a prompt (-p)");
    Console console = arguments.console.console();
    const auto engine = start_engine(arguments.model, console);
    const uint32_t vocab_size = engine->model.config.vocab_size;
    const auto ids = arguments.ids.empty() ? engine->model.tokenizer.prompt(arguments.prompt) : parse_ids(arguments.ids);
    for (const uint32_t id : ids)
        if (id >= vocab_size)
            fail("token id {} is out of range: the model has {} tokens, 0 to {}", id, vocab_size, vocab_size - 1);
    Session session(*engine->forward);
    std::optional<WorkStatus> status(std::in_place, console, "tokens");
    const auto logits = session.prefill(ids, [&](uint32_t done, uint32_t total) {
        status->update("reading the prompt", done, total);
        return !interrupted();
    });
    status.reset();
    if (logits.empty()) return 130;
    // Nine digits distinguish every float from its neighbours.
    if (arguments.json)
        write_output(fmt::format("{{\"logits\": [{:.9g}]}}\n", fmt::join(logits, ", ")));
    else
        write_output(fmt::format("{:.9g}\n", fmt::join(logits, "\n")));
    if (arguments.console.verbose) write_error(fmt::format("prompt: {}\n", describe_rate(session.timings().prompt_per_second())));
    report_profile(*engine);
    return 0;
}

} // namespace

void add_logits(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, LogitsArguments& a) {
        auto ids = add_option(command, "--ids", a.ids, "IDS", "token ids, separated by commas").check(parsed_by(parse_ids));
        add_option(command, "-p,--prompt", a.prompt, "TEXT", "text instead of token ids").excludes(ids).may_be_empty();
        add_flag(command, "--json", a.json, "print {\"logits\": [...]}; default: one logit per line");
        add_flags(command, a.model);
        add_flags(command, a.console);
    };
    add_command<LogitsArguments>(app, action, "logits", "Print the logits after the last token of a prompt", flags, run);
}

} // namespace tq
