#include "tools/tq-run/cli/grammar_arguments.h"
#include "base/error.h"
#include "base/path_text.h"
#include "model/files/formats/json.h"
#include "model/text/grammar/gbnf.h"
#include "model/text/grammar/json_schema.h"

namespace tq {

std::string GrammarArguments::gbnf() const {
    if (schema_given || !schema_file.empty()) {
        const std::string text = schema_given ? schema : read_text_file(utf8_path(schema_file), grammar::max_gbnf_bytes);
        return grammar::json_schema_gbnf(std::string_view(text));
    }
    return grammar_given ? grammar : read_text_file(utf8_path(grammar_file), grammar::max_gbnf_bytes);
}

std::shared_ptr<const grammar::Grammar> GrammarArguments::compile(bool ignore_end) const {
    if (!given()) return nullptr;
    if (ignore_end)
        throw UsageError("--ignore-eos has no use with a grammar, where the answer ends: leave one of them out, or limit -n");
    const grammar::Syntax syntax = grammar::parse_gbnf(gbnf());
    return std::make_shared<grammar::Grammar>(syntax);
}

std::unique_ptr<GrammarConstraint> GrammarArguments::constraint(const Tokenizer& tokenizer, GrammarStart start) const {
    auto compiled = compile();
    if (!compiled) return nullptr;
    return std::make_unique<GrammarConstraint>(std::move(compiled), std::make_shared<grammar::TokenTrie>(tokenizer), tokenizer,
                                               start);
}

void add_flags(ArgumentParser& command, GrammarArguments& a) {
    ArgumentParser group = command.group("Grammar");
    auto text = add_option(group, "--grammar", a.grammar, "TEXT", "GBNF grammar that the answer must follow; default: none");
    auto file = add_option(group, "--grammar-file", a.grammar_file, "FILE", "file with the grammar");
    auto schema = add_option(group, "-j,--json-schema", a.schema, "SCHEMA",
                             "JSON schema that the answer must follow, such as {} for any JSON");
    auto schema_file = add_option(group, "--json-schema-file", a.schema_file, "FILE", "file with the JSON schema (-jf)");
    text.each([&a](const std::string&) { a.grammar_given = true; }).excludes(file).excludes(schema).excludes(schema_file);
    schema.each([&a](const std::string&) { a.schema_given = true; }).excludes(file).excludes(schema_file);
    file.excludes(schema_file);
}

} // namespace tq
