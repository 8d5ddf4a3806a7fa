// tq-run tokenize: converts text to token ids. Needs only the vocabulary of a file.
#include "base/error.h"
#include "model/files/formats/open.h"
#include "model/text/tokenizer.h"
#include "tools/tq-run/cli/json_input.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/engine.h"
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

struct TokenizeArguments {
    ModelSource model;
    std::string text;
    bool text_given = false, json = false, json_lines = false, no_nfc = false, no_parse_special = false;
};

std::string list(const std::vector<uint32_t>& ids, const char* separator) { return fmt::format("{}", fmt::join(ids, separator)); }

void run_lines(const Tokenizer& tokenizer, bool parse_special) {
    size_t number = 0;
    while (const auto line = read_line()) {
        const auto value = parse_json(*line, fmt::format("line {} of standard input", ++number));
        if (!value.is_string()) fail("line {} of standard input is not a JSON string", number);
        write_output(fmt::format("[{}]\n", list(tokenizer.prompt(value.get<std::string>(), parse_special), ", ")));
    }
}

int run(const TokenizeArguments& arguments) {
    Console console(ColorMode::automatic, false);
    const ModelFile file = open_model_file(find_model(arguments.model, console));
    const Tokenizer tokenizer(file, !arguments.no_nfc);
    const bool parse_special = !arguments.no_parse_special;
    if (arguments.json_lines) {
        run_lines(tokenizer, parse_special);
        return 0;
    }
    const auto ids = tokenizer.prompt(arguments.text_given ? arguments.text : read_input(), parse_special);
    write_output(arguments.json ? fmt::format("{{\"ids\": [{}]}}\n", list(ids, ", ")) : list(ids, " ") + "\n");
    return 0;
}

} // namespace

void add_tokenize(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, TokenizeArguments& a) {
        add_model_flags(command, a.model);
        auto text = add_option(command, "--text", a.text, "TEXT", "text to tokenize; default: standard input").may_be_empty();
        text.each([&a](const std::string&) { a.text_given = true; });
        auto json = add_flag(command, "--json", a.json, "print {\"ids\": [...]}");
        add_flag(command, "--jsonl", a.json_lines, "read one JSON string per line, print one JSON list of ids per line")
            .excludes(json)
            .excludes(text);
        add_flag(command, "--no-nfc", a.no_nfc, "do not normalise the text to NFC first");
        add_flag(command, "--no-parse-special", a.no_parse_special, "treat special tokens in the text as plain text");
    };
    add_command<TokenizeArguments>(app, action, "tokenize", "Convert text to token ids", flags, run);
}

} // namespace tq
