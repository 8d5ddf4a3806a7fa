// Each command adds itself to the command line; parsing it sets `action` to what is to be done.
#pragma once
#include "tools/tq-run/arguments.h"

namespace tq {

void add_chat(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_devices(CLI::App& app, Action& action);
void add_conformance(CLI::App& app, Action& action);
void add_tokenize(CLI::App& app, Action& action);
void add_template(CLI::App& app, Action& action);
void add_logits(CLI::App& app, Action& action);
void add_shaders(CLI::App& app, Action& action);
void add_codec(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_perplexity(CLI::App& app, Action& action);
void add_calibrate(CLI::App& app, Action& action);
void add_ablate(CLI::App& app, Action& action);
void add_tune(CLI::App& app, Action& action);
void add_needle(CLI::App& app, Action& action);
void add_validate(CLI::App& app, Action& action);

// A command whose flags fill in an Arguments; `run(arguments)` is its action.
template <class Arguments, class AddFlags, class Run>
void add_command(CLI::App& app, Action& action, const char* name, const char* help, AddFlags add_flags_to, Run run) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* command = app.add_subcommand(name, help);
    add_flags_to(*command, *arguments);
    command->callback([&action, arguments, run] { action = [arguments, run] { return run(*arguments); }; });
}

} // namespace tq
