// Checks which texts a schema's grammar allows.
#pragma once
#include "base/error.h"
#include "model/text/grammar/gbnf.h"
#include "model/text/grammar/json_schema.h"
#include "model/text/grammar/state_table.h"
#include <doctest/doctest.h>
#include <string>

namespace tq::grammar {

class Schema {
  public:
    explicit Schema(std::string_view schema, bool strict = true)
        : gbnf_(json_schema_gbnf(schema, strict)), grammar_(parse_gbnf(gbnf_)), table_(grammar_) {}

    bool allows(std::string_view text) {
        StateTable::State state = table_.start();
        for (const char byte : text) state = table_.next(state, uint8_t(byte));
        return table_.has_ended(state);
    }

  private:
    std::string gbnf_;
    Grammar grammar_;
    StateTable table_;
};

inline void check(std::string_view schema, std::initializer_list<std::string_view> right,
                  std::initializer_list<std::string_view> wrong, bool strict = true) {
    Schema compiled(schema, strict);
    for (const bool is_right : {true, false}) {
        for (const std::string_view text : is_right ? right : wrong) {
            CAPTURE(std::string(schema));
            CAPTURE(std::string(text));
            CHECK(compiled.allows(text) == is_right);
        }
    }
}

inline std::string error_of(std::string_view schema) {
    try {
        const Grammar grammar(parse_gbnf(json_schema_gbnf(schema)));
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

} // namespace tq::grammar
