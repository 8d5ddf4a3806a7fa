// tq-run generate: continues a text, without any template.
// What needs no model (prompt, flags, grammar) is checked before one is loaded, so that a wrong command fails at once. The text
// goes to standard output in whole characters as its tokens come, and all else to standard error, so a pipe gets the text alone.
// At a terminal what the model writes is made harmless first. If the generation fails, the tokens before the failure are still
// written to the prompt cache. The exit status is 130 after Ctrl-C, and 1 if the prompt cache could not be written.
#include "base/error.h"
#include "base/interrupt.h"
#include "tools/tq-run/cli/grammar_arguments.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/engine.h"
#include "tools/tq-run/engine/generation_text.h"
#include "tools/tq-run/engine/prefix.h"
#include "tools/tq-run/engine/ranks.h"
#include "tools/tq-run/engine/speculation.h"
#include "tools/tq-run/talk/prompt_cache.h"

namespace tq {
namespace {

struct GenerateArguments {
    ConsoleArguments console;
    ModelArguments model;
    SamplingArguments sampling;
    SpeculationArguments speculation;
    GrammarArguments grammar;
    PromptArguments prompt;
    PromptCacheArguments prompt_cache;
    PrefixArguments prefix;
};

int run(const GenerateArguments& arguments) {
    if (const auto status = run_as_rank(arguments.model)) return *status;
    Console console = arguments.console.console();
    if (!arguments.prompt.given && console.input_is_terminal())
        throw UsageError("generate needs a text to continue: -p TEXT, -f FILE, or a pipe into standard input");
    const std::string text = arguments.prompt.given ? arguments.prompt.read() : read_input();
    arguments.prompt_cache.check();
    arguments.speculation.check();
    arguments.grammar.compile(arguments.sampling.ignore_end); // for its errors, before the model is loaded
    const auto engine = start_engine(arguments.model, console, arguments.speculation.drafting(arguments.prompt_cache.path));
    const auto drafts = start_speculation(arguments.speculation, *engine, arguments.model.threads, console);
    const Tokenizer& tokenizer = engine->model.tokenizer;
    const SamplerOptions options =
        arguments.sampling.options(recommended_sampling(engine->model.file, thinks_by_default(engine->model.chat)));
    Sampler sampler(options, engine->unsampled(arguments.sampling.ignore_end));
    const auto constraint = arguments.grammar.constraint(tokenizer, GrammarStart::at_once);
    sampler.constrain(constraint.get());
    if (arguments.console.verbose)
        write_error(fmt::format("{}, {}, {}\nKV: {}\n{}\n", engine->model.name, engine->device_name,
                                sampling_description(options), kv_description(*engine), load_description(*engine)));

    Utf8Stream stream;
    const auto show = [&](const std::string& piece) { write_output(console.output_is_terminal() ? harmless(piece) : piece); };
    catch_interrupts();
    const auto prefix = open_prefix_cache(arguments.prefix, *engine, console, arguments.console.verbose);
    Session session(*engine->forward, prefix.get(), arguments.prompt_cache.path.empty() ? Reuse::cold : Reuse::all);
    PromptCache prompt_cache(arguments.prompt_cache, *engine, session, console);
    GenerateOptions generate = interruptible(console);
    generate.max_tokens = arguments.sampling.max_tokens();
    generate.speculation = drafts ? drafts->speculation.get() : nullptr;
    generate.is_end = [&](uint32_t id) { return tokenizer.is_end_of_generation(id); };
    generate.on_token = [&](uint32_t id) {
        console.clear_status();
        show(stream.push(tokenizer.bytes(id)));
    };
    generate.after_prompt = [&] { prompt_cache.after_prompt(); };
    Generated result;
    try {
        result = session.generate(tokenizer.prompt(text), sampler, generate);
    } catch (const Error&) { // the tokens run so far are valid
        prompt_cache.finish();
        throw;
    }
    console.clear_status();
    show(stream.flush() + "\n");
    write_error(console.dim(generation_line(result, session.cached_ids().size(), session.context_size())) + "\n");
    report_profile(*engine);
    report(prefix.get(), arguments.console.verbose);
    const bool saved = prompt_cache.finish();
    if (result.stop == Stop::memory_full) throw OutOfMemory(result.reason);
    return result.stop == Stop::interrupted ? 130 : saved ? 0 : 1;
}

} // namespace

void add_generate(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, GenerateArguments& a) {
        add_flags(command, a.prompt);
        add_flags(command, a.prompt_cache);
        add_flags(command, a.prefix);
        add_flags(command, a.sampling);
        add_flags(command, a.speculation);
        add_flags(command, a.grammar);
        add_flags(command, a.model);
        add_flags(command, a.console);
    };
    add_command<GenerateArguments>(app, action, "generate", "Generate text from a prompt", flags, run);
}

} // namespace tq
