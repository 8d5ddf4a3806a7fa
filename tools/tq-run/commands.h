// Each command adds itself to the command line; parsing it sets `action` to the function to run.
#pragma once
#include "tools/tq-run/cli/arguments.h"
#include <memory>

namespace tq {

void add_chat(ArgumentParser& app, Action& action);
void add_serve(ArgumentParser& app, Action& action);
void add_launch(ArgumentParser& app, Action& action);
void add_generate(ArgumentParser& app, Action& action);
void add_doctor(ArgumentParser& app, Action& action);
void add_devices(ArgumentParser& app, Action& action);
void add_conformance(ArgumentParser& app, Action& action);
void add_tokenize(ArgumentParser& app, Action& action);
void add_template(ArgumentParser& app, Action& action);
void add_grammar(ArgumentParser& app, Action& action);
void add_logits(ArgumentParser& app, Action& action);
void add_shaders(ArgumentParser& app, Action& action);
void add_codec(ArgumentParser& app, Action& action);
void add_cache(ArgumentParser& app, Action& action);
void add_models(ArgumentParser& app, Action& action);
void add_plan(ArgumentParser& app, Action& action);
void add_bench(ArgumentParser& app, Action& action);
void add_perplexity(ArgumentParser& app, Action& action);
void add_quantize(ArgumentParser& app, Action& action);
void add_calibrate(ArgumentParser& app, Action& action);
void add_ablate(ArgumentParser& app, Action& action);
void add_mix(ArgumentParser& app, Action& action);
void add_needle(ArgumentParser& app, Action& action);
void add_validate(ArgumentParser& app, Action& action);

// The hidden commands man, completion, complete and environment, which describe all of `app`.
void add_manual(CLI::App& app, Action& action);

// The examples and exit statuses of a command, or of the program, as --help shows them (manual/examples.h).
std::string help_footer(const std::string& command);

// Adds a command whose flags fill in an Arguments; `run(arguments)` is its action.
template <class Arguments, class AddFlags> void add_command(ArgumentParser& app, Action& action, const char* name,
                                                            const char* help, AddFlags add_flags_to,
                                                            int (*run)(const Arguments&)) {
    auto arguments = std::make_shared<Arguments>();
    ArgumentParser command = app.add_command(name, help);
    add_flags_to(command, *arguments);
    command.callback([&action, arguments, run] { action = [arguments, run] { return run(*arguments); }; });
}

} // namespace tq
