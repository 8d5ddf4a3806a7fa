// tq-run grammar: prints a grammar, checks a text against it, and measures what it costs per token. A mask of the whole
// vocabulary is computed before each token, as in sampling, and the text's token must be allowed by it and be accepted. The two
// are compared on purpose: a difference between them would be a bug of the matcher.
#include "base/error.h"
#include "base/stopwatch.h"
#include "model/files/formats/open.h"
#include "model/text/grammar/matcher.h"
#include "model/text/tokenizer.h"
#include "tools/tq-run/cli/grammar_arguments.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/engine.h"
#include <algorithm>

namespace tq {
namespace {

struct CheckArguments {
    ModelSource model;
    GrammarArguments grammar;
    PromptArguments text;
    bool json = false;
};

struct Checked {
    size_t tokens = 0, offset = 0; // that follow the grammar, and their bytes
    bool allowed = true, can_end = false;
    std::vector<double> mask_ms; // before each token, and before the end
};

// Makes one mask more than there are tokens: the last mask is the one before the end. Bit id % 64 of word id / 64 of a mask says
// that the token is allowed.
Checked check(grammar::Matcher& matcher, const Tokenizer& tokenizer, const std::vector<uint32_t>& ids) {
    Checked result;
    for (size_t i = 0; i <= ids.size(); ++i) {
        const Stopwatch stopwatch;
        const auto mask = matcher.mask();
        result.mask_ms.push_back(1e3 * stopwatch.seconds());
        if (i == ids.size()) break;
        const bool allowed = mask[ids[i] / 64] >> ids[i] % 64 & 1;
        if (!matcher.accept(ids[i]) || !allowed) {
            result.allowed = false;
            break;
        }
        result.tokens += 1;
        result.offset += tokenizer.bytes(ids[i]).size();
    }
    result.can_end = result.allowed && matcher.can_end();
    return result;
}

std::string verdict(const Checked& checked) {
    if (!checked.allowed)
        return fmt::format("the text does not follow the grammar: {} tokens do, up to byte {}", checked.tokens, checked.offset);
    if (!checked.can_end)
        return fmt::format("the text is not complete: all {} tokens follow the grammar, but it cannot end here", checked.tokens);
    return fmt::format("the text follows the grammar: {} tokens", checked.tokens);
}

int run(const CheckArguments& arguments) {
    if (!arguments.grammar.given())
        throw UsageError("grammar needs one: --grammar TEXT, --grammar-file FILE, -j SCHEMA or -jf FILE");
    const Stopwatch compiling;
    const auto compiled = arguments.grammar.compile();
    const double compile_ms = 1e3 * compiling.seconds();
    if (!arguments.text.given) {
        const std::string gbnf = arguments.grammar.gbnf();
        write_output(gbnf.ends_with('\n') ? gbnf : gbnf + "\n");
        return 0;
    }
    Console console(ColorMode::automatic, false);
    const Tokenizer tokenizer(open_model_file(find_model(arguments.model, console)));
    const Stopwatch reading;
    const auto tokens = std::make_shared<grammar::TokenTrie>(tokenizer);
    const double tokens_ms = 1e3 * reading.seconds();
    grammar::Matcher matcher(compiled, tokens);
    Checked checked = check(matcher, tokenizer, tokenizer.encode(arguments.text.read(), false));
    auto& ms = checked.mask_ms;
    double sum = 0;
    for (const double one : ms) sum += one;
    std::ranges::sort(ms);
    const double mean = sum / double(ms.size()), median = ms[ms.size() / 2], max = ms.back();
    if (arguments.json)
        write_output(fmt::format(
            "{{\"follows\": {}, \"complete\": {}, \"tokens\": {}, \"bytes\": {}, \"vocabulary\": {}, \"compile_ms\": {:.3f}, "
            "\"vocabulary_ms\": {:.3f}, \"mask_ms\": {{\"mean\": {:.4f}, \"median\": {:.4f}, \"max\": {:.4f}}}}}\n",
            checked.allowed, checked.can_end, checked.tokens, checked.offset, tokens->vocab_size(), compile_ms, tokens_ms, mean,
            median, max));
    else
        write_text(
            fmt::format("{}\nmasks of {} tokens: mean {:.3f} ms, median {:.3f}, max {:.3f}; before that once: grammar {:.1f} ms, "
                        "vocabulary {:.0f} ms\n",
                        verdict(checked), tokens->vocab_size(), mean, median, max, compile_ms, tokens_ms));
    return checked.can_end ? 0 : 1;
}

} // namespace

void add_grammar(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, CheckArguments& a) {
        add_flags(command, a.grammar);
        auto prompt = add_option(command, "-p,--prompt", a.text.prompt, "TEXT",
                                 "text to check; -: standard input; default: print the grammar");
        prompt.each([&a](const std::string&) { a.text.given = true; });
        auto file =
            add_option(command, "-f,--file", a.text.file, "FILE", "file with the text; -: standard input").excludes(prompt);
        file.each([&a](const std::string&) { a.text.given = true; });
        add_model_flags(command, a.model);
        command.get_option("--model").description("model whose vocabulary reads the text; default: the demo model");
        add_flag(command, "--json", a.json, "print the result as JSON");
    };
    add_command<CheckArguments>(app, action, "grammar", "Print a grammar or JSON schema as GBNF, or check a text against it",
                                flags, run);
}

} // namespace tq
