// tq-run: reads the command line, runs one command, and turns what went wrong into one line and an exit status.
#include "base/error.h"
#include "base/printable.h"
#include "base/terminal.h"
#include "hub/hub.h"
#include "model/load.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine.h"
#include <algorithm>
#include <filesystem>
#include <new>

namespace tq {
namespace {

constexpr int failed = 1, wrong_usage = 2, interrupted_by_user = 130;

int complain(std::string_view message, int status) {
    write_error(fmt::format("tq-run: {}\n", message));
    return status;
}

// CLI11's messages, in our words where its own say little.
std::string describe(const CLI::ParseError& error, const CLI::App& app) {
    const bool has_command = !app.get_subcommands().empty();
    std::string what = printable(error.what(), 300);
    const auto begins = [&](std::string_view text) { return what.starts_with(text) ? text.size() : 0; };
    if (dynamic_cast<const CLI::ExtrasError*>(&error)) {
        const auto rest = app.remaining(true);
        const std::string first = rest.empty() ? "" : printable(rest[0]);
        what = (first.starts_with('-') ? "unknown flag " : has_command ? "unexpected argument " : "unknown command ") + first;
    } else if (const size_t prefix = begins("Could not convert: ")) {
        const size_t equals = what.find(" = ");
        what = fmt::format("{}: {} is not a value it can have", what.substr(prefix, equals - prefix), what.substr(equals + 3));
    } else if (const size_t excludes = what.find(" excludes "); dynamic_cast<const CLI::ExcludesError*>(&error)) {
        what = fmt::format("{} and {} exclude each other", what.substr(0, excludes), what.substr(excludes + 10));
    } else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) && what.find("missing") != std::string::npos) {
        what = what.substr(0, what.find(':')) + " needs a value";
    }
    std::string name = "tq-run";
    for (const CLI::App* at = &app; !at->get_subcommands().empty();) name += ' ' + (at = at->get_subcommands()[0])->get_name();
    return fmt::format("{} ({} --help shows what there is)", what, name);
}

int run(const std::vector<std::string>& arguments) {
    CLI::App app("Runs Qwen3 language models on any Vulkan GPU, with a compressed KV cache.", "tq-run");
    app.set_version_flag("--version", build_description());
    app.require_subcommand(0, 1);
    const auto formatter = std::make_shared<HelpFormatter>();
    formatter->column_width(34);
    app.formatter(formatter);
    app.option_defaults()->take_last(); // of a flag that is given twice
    Action action;
    for (auto* add : {add_chat, add_generate, add_bench, add_perplexity, add_needle, add_validate, add_ablate, add_tune,
                      add_calibrate, add_plan, add_devices, add_conformance, add_codec, add_shaders, add_tokenize, add_template,
                      add_logits})
        add(app, action);
    try {
        auto expanded = expand_short_names(arguments);
        std::reverse(expanded.begin(), expanded.end()); // as CLI11 wants them
        app.parse(expanded);
    } catch (const CLI::Success& request) {
        return app.exit(request);
    } catch (const CLI::ParseError& error) {
        return complain(describe(error, app), wrong_usage);
    }
    if (!action) {
        write_error(app.help());
        return wrong_usage;
    }
    return action();
}

} // namespace
} // namespace tq

int main(int count, char** values) {
    using namespace tq;
    prepare_terminal();
    try {
        return run(std::vector<std::string>(values + std::min(count, 1), values + count));
    } catch (const UsageError& error) {
        return complain(error.what(), wrong_usage);
    } catch (const LoadStopped&) {
        return interrupted_by_user;
    } catch (const DownloadStopped& stopped) {
        return complain(stopped.what(), interrupted_by_user);
    } catch (const OutputClosed&) {
        return failed;
    } catch (const std::bad_alloc&) {
        return complain("out of memory: use a smaller model or a smaller context (-c)", failed);
    } catch (const std::exception& error) {
        return complain(error.what(), failed);
    }
}
