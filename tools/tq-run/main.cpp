// tq-run: reads the command line, runs one command, and turns errors into one line and an exit status.
#include "base/error.h"
#include "base/error_text.h"
#include "base/executable.h"
#include "base/mapped_file.h"
#include "base/printable.h"
#include "base/standard_streams.h"
#include "base/terminal.h"
#include "model/cpu/instruction_sets.h"
#include "model/hub/hub.h"
#include "model/load.h"
#include "model/text/unicode.h"
#include "runtime/wrong_device.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/cli/command_line.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/engine.h"
#include "tools/tq-run/engine/ranks.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <new>
#include <sstream>

namespace tq {
namespace {

constexpr int failed = 1, wrong_usage = 2, interrupted_by_user = 130;

// True for characters that steer a terminal or change the direction of text: a message may quote paths and drivers.
bool is_hidden(char32_t c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

// An error's text may have come from anywhere: paths, drivers, files. Characters that steer a terminal become \xNN, others stay,
// so that names in any script can be read.
std::string one_line(std::string_view message) {
    std::string line;
    for (size_t at = 0; at < message.size();) {
        const Utf8Step step = step_utf8(message, at);
        const std::string_view bytes = message.substr(at, step.length);
        const bool is_plain = step.kind == Utf8Step::Kind::character && !is_hidden(step.code_point);
        line += is_plain ? std::string(bytes) : printable(bytes);
        at += step.length;
    }
    return line;
}

int complain(std::string_view message, int status) {
    write_error(fmt::format("tq-run: {}\n", one_line(message)));
    return status;
}

// Shows llama.cpp's short names among the names of an option, and of its value only the text of option_text.
class HelpFormatter : public CLI::Formatter {
    std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
        std::string names = Formatter::make_option_name(option, is_positional);
        names.erase(std::min(names.find('{'), names.size())); // the value that a flag stands for
        for (const OtherName& other : other_names())
            if (!other.name.starts_with("--") && option->check_lname(std::string(other.flag.substr(2))))
                return fmt::format("{},{}", other.name, names);
        return names;
    }
    std::string make_option_opts(const CLI::Option* option) const override {
        return option->get_option_text().empty() ? "" : " " + option->get_option_text();
    }
    // A command's own notes, its examples, and its exit statuses; a command of a command has the examples and statuses of the
    // outer one.
    std::string make_footer(const CLI::App* app) const override {
        const CLI::App* command = app;
        while (command->get_parent() != nullptr && command->get_parent()->get_parent() != nullptr)
            command = command->get_parent();
        const std::string name = command->get_parent() == nullptr ? "" : command->get_name(), own = app->get_footer();
        return (own.empty() ? "" : own + "\n\n") + help_footer(name);
    }
    // Puts an empty line before the footer, as only some versions of CLI11 do.
    std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
        std::string text = Formatter::make_help(app, std::move(name), mode);
        const std::string footer = make_footer(app);
        const size_t begin = text.rfind(footer);
        if (begin == 0 || begin == std::string::npos) return text;
        const size_t end = text.find_last_not_of('\n', begin - 1) + 1;
        return text.replace(end, begin - end, "\n\n");
    }
};

// CLI11's messages, replaced if they say too little.
std::string describe(const CLI::ParseError& error, const CLI::App& app) {
    const bool has_command = !app.get_subcommands().empty();
    std::string what = printable(error.what(), 300);
    const auto begins = [&](std::string_view text) { return what.starts_with(text) ? text.size() : 0; };
    if (dynamic_cast<const CLI::ExtrasError*>(&error)) {
        const auto rest = app.remaining(true);
        what = "unexpected argument " + (rest.empty() ? "" : printable(rest[0]));
    } else if (has_command && what.starts_with("A subcommand is required")) {
        what = "a command is missing";
    } else if (const size_t prefix = begins("Could not convert: ")) {
        const size_t equals = what.find(" = ");
        what = fmt::format("{}: {} is not a valid value", what.substr(prefix, equals - prefix), what.substr(equals + 3));
    } else if (const size_t excludes = what.find(" excludes "); dynamic_cast<const CLI::ExcludesError*>(&error)) {
        what = fmt::format("{} and {} cannot be used together", what.substr(0, excludes), what.substr(excludes + 10));
    } else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) && what.find("missing") != std::string::npos) {
        what = what.substr(0, what.find(':')) + " needs a value";
    }
    std::string name = "tq-run";
    for (const CLI::App* at = &app; !at->get_subcommands().empty();) name += ' ' + (at = at->get_subcommands()[0])->get_name();
    return fmt::format("{} (see {} --help)", what, name);
}

// The order: all commands describe their flags; read_command_line turns the words into CLI11's; CLI11 parses, and the chosen
// command's callback sets `action`; the action runs after CLI11 is done, so that its exceptions are not taken for errors of the
// command line. At the end check_mapped_files() looks whether a mapped file was cut short while it was read, in which case the
// results are not to be trusted.
int run(const std::vector<std::string>& arguments) {
    CLI::App app("Runs Qwen and Llama language models on any Vulkan GPU, with a compressed KV cache.", "tq-run");
    app.set_version_flag("-V,--version", build_description());
    app.require_subcommand(0, 1);
    const auto formatter = std::make_shared<HelpFormatter>();
    formatter->column_width(34);
    formatter->label("SUBCOMMAND", "COMMAND");
    app.formatter(formatter);
    app.option_defaults()->take_last(); // for a flag that is given twice
    ArgumentParser parser(app);
    Action action;
    for (auto* add :
         {add_chat,   add_serve,       add_launch,    add_generate, add_bench,    add_perplexity, add_needle,  add_validate,
          add_ablate, add_mix,         add_calibrate, add_quantize, add_plan,     add_cache,      add_models,  add_devices,
          add_doctor, add_conformance, add_codec,     add_shaders,  add_tokenize, add_template,   add_grammar, add_logits})
        add(parser, action);
    add_manual(app, action);
    const CommandLine line = read_command_line(app, arguments);
    try {
        std::vector<std::string> backwards(line.arguments.rbegin(), line.arguments.rend()); // the order that CLI11 requires
        app.parse(backwards);
    } catch (const CLI::Success& request) {
        std::ostringstream answer;
        app.exit(request, answer, answer);
        write_text(answer.str());
        return 0;
    } catch (const CLI::ParseError& error) {
        return complain(describe(error, app), wrong_usage);
    }
    if (!action) {
        write_error(app.help());
        return wrong_usage;
    }
    write_error(describe_without_effect(line));
    const int status = action();
    check_mapped_files();
    return status;
}

} // namespace
} // namespace tq

// The streams come first, since a file that is opened before would take the number of a closed one. A process of an MPI job
// leaves the job in each case, so LeaveJob stands outside `try`. WrongDevice is an error of usage like a wrong flag, but only the
// runtime can find it, which does not know of command lines.
int main(int count, char** values) {
    using namespace tq;
    occupy_closed_streams();
    ignore_file_size_signal();
    prepare_terminal();
    struct LeaveJob {
        ~LeaveJob() { leave_job(); }
    } const at_end;
    try {
        cpu::limit_instruction_sets();
        return run(program_arguments(count, values));
    } catch (const UsageError& error) {
        return complain(error.what(), wrong_usage);
    } catch (const WrongDevice& error) {
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
        return complain(lost_mapped_file().value_or(error_text(error)), failed); // other errors follow from that one
    }
}
