// A JSON schema: it is refused, or its grammar compiles; also as the parameters of a tool.
#include "base/json.h"
#include "model/text/grammar/gbnf.h"
#include "model/text/grammar/grammar.h"
#include "model/text/grammar/json_schema.h"
#include "model/text/grammar/tool_grammar.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text = tq::fuzz::text(data, size);
    tq::fuzz::run([&] { const tq::grammar::Grammar grammar(tq::grammar::parse_gbnf(tq::grammar::json_schema_gbnf(text))); });
    return tq::fuzz::run([&] {
        const auto schema = tq::build_json<nlohmann::ordered_json>(text, "it", {.max_depth = 100});
        const nlohmann::ordered_json tools = nlohmann::ordered_json::array({{{"name", "f"}, {"parameters", schema}}});
        for (const auto form : {tq::grammar::ToolCallForm::json, tq::grammar::ToolCallForm::bare, tq::grammar::ToolCallForm::xml})
            const tq::grammar::Grammar grammar(tq::grammar::parse_gbnf(tq::grammar::tool_calls_gbnf(tools, form)));
    });
}
