// The flags that constrain an answer by a grammar, with llama.cpp's names.
#pragma once
#include "model/text/grammar/constraint.h"
#include "tools/tq-run/cli/argument_parser.h"
#include <memory>
#include <optional>
#include <string>

namespace tq {

class Tokenizer;

struct GrammarArguments {
    std::string grammar, grammar_file, schema, schema_file;
    bool grammar_given = false, schema_given = false;

    bool given() const { return grammar_given || schema_given || !grammar_file.empty() || !schema_file.empty(); }
    // The grammar in GBNF. Throws Error if a file cannot be read, or a schema is not supported.
    std::string gbnf() const;
    // Throws Error with the place of what is wrong; UsageError if `ignore_end`, since an answer ends where its grammar ends.
    // Null if none is given.
    std::shared_ptr<const grammar::Grammar> compile(bool ignore_end = false) const;
    // The same as a sampler's constraint; null if no grammar is given.
    std::unique_ptr<GrammarConstraint> constraint(const Tokenizer& tokenizer, GrammarStart start) const;
};

void add_flags(ArgumentParser& command, GrammarArguments& arguments);

} // namespace tq
