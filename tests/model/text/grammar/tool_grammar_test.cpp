// Grammars of tool calls: what they allow, and that the parser of answers reads it back.
#include "base/error.h"
#include "model/text/grammar/constraint.h"
#include "model/text/grammar/gbnf.h"
#include "model/text/grammar/tool_grammar.h"
#include "model/text/tokenizer.h"
#include "model/text/tool_calls.h"
#include "tests/support/parsed_answer.h"
#include "tests/support/vocabulary_file.h"
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <random>

using namespace tq;
using namespace tq::grammar;
using namespace tq::test;
using Json = nlohmann::ordered_json;

namespace {

const Json tools =
    Json::parse(R"([{"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {
    "text": {"type": "string"}, "n": {"type": "integer", "minimum": 1, "maximum": 20}, "kind": {"enum": ["a", "b"]},
    "tree": {"$ref": "#/$defs/t"}}, "required": ["text"], "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}}}, {"name": "now"}])");

struct Calls {
    Tokenizer tokenizer{small_vocabulary().open()};
    std::shared_ptr<const TokenTrie> tokens = std::make_shared<TokenTrie>(tokenizer);

    bool allows(const std::string& gbnf, std::string_view text) const {
        Matcher matcher(std::make_shared<Grammar>(parse_gbnf(gbnf)), tokens);
        for (const uint32_t id : tokenizer.encode(text))
            if (!matcher.accept(id)) return false;
        return matcher.can_end();
    }
};

} // namespace

TEST_CASE("calls without tags") {
    const Calls calls;
    const std::string gbnf = tool_calls_gbnf(tools, ToolCallForm::bare), now = R"({"name": "now", "parameters": {}})",
                      find = R"({"name": "find", "parameters": {"text": "x", "n": 20}})";
    CHECK(calls.allows(gbnf, now));
    CHECK(calls.allows(gbnf, find));
    CHECK(calls.allows(gbnf, now + "; " + find));
    CHECK(!calls.allows(gbnf, R"({"name": "find", "parameters": {}})"));
    CHECK(!calls.allows(gbnf, "<tool_call>" + now + "</tool_call>"));
    CHECK(!calls.allows(tool_calls_gbnf(tools, ToolCallForm::bare, "now", false), now + "; " + now));
    const ParsedAnswer parsed = parse_answer(now + "; " + find, false, ToolTypes(tools), UntaggedCalls::several);
    REQUIRE(parsed.calls.size() == 2);
    CHECK(parsed.calls[1].name == "find");
}

TEST_CASE("calls as JSON") {
    const Calls calls;
    const std::string gbnf = tool_calls_gbnf(tools, ToolCallForm::json);
    CHECK(calls.allows(
        gbnf,
        "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"text\": \"x\", \"n\": 20, \"tree\": [[], []]}}\n</tool_call>"));
    CHECK(calls.allows(gbnf, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": "
                             "\"now\", \"arguments\": {}}\n</tool_call>"));
    CHECK(!calls.allows(gbnf, "<tool_call>\n{\"name\": \"find\", \"arguments\": {}}\n</tool_call>"));
    CHECK(!calls.allows(gbnf, "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"text\": \"x\", \"n\": 21}}\n</tool_call>"));
    CHECK(!calls.allows(gbnf, "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>"));
    CHECK(!calls.allows(gbnf, "now"));
    const std::string one = tool_calls_gbnf(tools, ToolCallForm::json, "now", false);
    CHECK(calls.allows(one, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
    CHECK(!calls.allows(one, "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"text\": \"x\"}}\n</tool_call>"));
    CHECK(!calls.allows(one, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": "
                             "\"now\", \"arguments\": {}}\n</tool_call>"));
}

TEST_CASE("calls as XML") {
    const Calls calls;
    const std::string gbnf = tool_calls_gbnf(tools, ToolCallForm::xml);
    const auto call = [](const std::string& parameters) {
        return "<tool_call>\n<function=find>\n" + parameters + "</function>\n</tool_call>";
    };
    const std::string text = "<parameter=text>\n<div>a</div></param\n</parameter>\n";
    CHECK(calls.allows(gbnf, call(text)));
    CHECK(calls.allows(
        gbnf, call(text +
                   "<parameter=n>\n7\n</parameter>\n<parameter=kind>\nb\n</parameter>\n<parameter=tree>\n[[]]\n</parameter>\n")));
    CHECK(!calls.allows(gbnf, call("")));
    CHECK(!calls.allows(gbnf, call(text + "<parameter=n>\n21\n</parameter>\n")));
    CHECK(!calls.allows(gbnf, call(text + "<parameter=kind>\nc\n</parameter>\n")));
    CHECK(!calls.allows(gbnf, call("<parameter=text>\na</parameter>b\n</parameter>\n")));
    CHECK(calls.allows(gbnf, "<tool_call>\n<function=now>\n</function>\n</tool_call>"));
}

TEST_CASE("parameters of a schema without properties at its root") {
    const Calls calls;
    const auto call = [](std::initializer_list<std::pair<const char*, const char*>> parameters) {
        std::string out = "<tool_call>\n<function=f>\n";
        for (const auto& [name, value] : parameters) out += fmt::format("<parameter={}>\n{}\n</parameter>\n", name, value);
        return out + "</function>\n</tool_call>";
    };
    const auto check = [&](const char* schema, const std::string& text, bool allowed, const char* arguments = "") {
        CAPTURE(schema);
        CAPTURE(text);
        const Json tool = {{{"name", "f"}, {"parameters", Json::parse(schema)}}};
        CHECK(calls.allows(tool_calls_gbnf(tool, ToolCallForm::xml), text) == allowed);
        if (!allowed) return;
        const ParsedAnswer parsed = parse_answer(text, false, ToolTypes(tool));
        REQUIRE(parsed.calls.size() == 1);
        CHECK(parsed.calls[0].arguments == arguments);
    };
    const std::string one = call({{"n", "5"}}), none = call({}), word = call({{"n", "five"}}),
                      both = call({{"n", "5"}, {"s", "5"}});
    for (
        const char* schema :
        {R"({"$ref": "#/$defs/P", "$defs": {"P": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}})",
         R"({"allOf": [{"type": "object", "properties": {"n": {"type": "integer"}}}, {"required": ["n"]}]})",
         R"({"allOf": [{"$ref": "#/$defs/P"}], "$defs": {"P": {"properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["n"]},
             "N": {"type": "integer"}}})"}) {
        check(schema, one, true, R"({"n": 5})");
        for (const std::string& wrong : {none, word, both}) check(schema, wrong, false);
    }
    for (const char* keyword : {"anyOf", "oneOf"}) {
        const std::string schema = fmt::format(
            R"({{"{}": [{{"properties": {{"n": {{"type": "integer"}}}}, "required": ["n"]}}, {{"type": "null"}},
             {{"properties": {{"s": {{"type": "string"}}}}}}], "type": ["object", "null"]}})",
            keyword);
        check(schema.c_str(), one, true, R"({"n": 5})");
        check(schema.c_str(), call({{"s", "5"}}), true, R"({"s": "5"})");
        check(schema.c_str(), none, true, "{}");
        check(schema.c_str(), both, false);
        check(schema.c_str(), word, false);
    }
    for (const char* schema : {R"({"type": "object"})", R"({"type": "object", "additionalProperties": true})"}) {
        check(schema, none, true, "{}");
        check(schema, both, true, R"({"n": 5, "s": 5})");
        check(schema, call({{"a b", "x\ny"}, {"l", "[1, {}]"}}), true, R"({"a b": "x\ny", "l": [1, {}]})");
        check(schema, call({{"a<b", "x"}}), false);
        check(schema, call({{"", "x"}}), false);
    }
    check(R"({"type": "object", "additionalProperties": {"type": "string"}})", both, true, R"({"n": "5", "s": "5"})");
    check(R"({"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 1})", one, true, R"({"n": 5})");
    check(R"({"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 1})", both, false);
    check(R"({"type": "object", "additionalProperties": {"type": "integer"}})", word, false);
    check(R"({"patternProperties": {"^n": {"type": "integer"}}})", one, true, R"({"n": 5})");
    check(R"({"patternProperties": {"^n": {"type": "integer"}}})", both, false);
    const char* open = R"({"properties": {"n": {"type": "integer"}}, "additionalProperties": {"type": "string"}})";
    check(open, both, true, R"({"n": 5, "s": "5"})");
    check(open, call({{"nn", "5"}}), true, R"({"nn": "5"})");
    check(open, word, false);
    check(R"({"properties": {}})", none, true, "{}");
    check(R"({"properties": {}})", one, false);
}

TEST_CASE("a parameter's type is found behind references and choices") {
    const Calls calls;
    const auto check = [&](const char* schema, const char* value, bool allowed, const char* wanted = "") {
        CAPTURE(schema);
        CAPTURE(value);
        const Json parameters = {
            {"properties", {{"x", Json::parse(schema)}}},
            {"required", {"x"}},
            {"$defs", {{"int", {{"type", "integer"}}}, {"hue", {{"type", "string"}, {"enum", {"red", "blue"}}}}}}};
        const Json tool = {{{"name", "f"}, {"parameters", parameters}}};
        const std::string text =
            fmt::format("<tool_call>\n<function=f>\n<parameter=x>\n{}\n</parameter>\n</function>\n</tool_call>", value);
        CHECK(calls.allows(tool_calls_gbnf(tool, ToolCallForm::xml), text) == allowed);
        if (allowed) CHECK(parse_answer(text, false, ToolTypes(tool)).calls.at(0).arguments == wanted);
    };
    for (const char* schema : {R"({"$ref": "#/$defs/int"})", R"({"anyOf": [{"type": "integer"}, {"type": "null"}]})",
                               R"({"allOf": [{"$ref": "#/$defs/int"}], "description": "d"})", R"({"enum": [5, 7]})"}) {
        check(schema, "5", true, R"({"x": 5})");
        check(schema, "five", false);
    }
    for (const char* schema : {R"({"$ref": "#/$defs/hue"})", R"({"anyOf": [{"$ref": "#/$defs/hue"}, {"const": "5"}]})"}) {
        check(schema, "red", true, R"({"x": "red"})");
        check(schema, "\"red\"", false);
        check(schema, "green", false);
    }
    check(R"({"anyOf": [{"$ref": "#/$defs/hue"}, {"const": "5"}]})", "5", true, R"({"x": "5"})");
    check(R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", "null", true, R"({"x": null})");
    check(R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", "five", true, R"({"x": "five"})");
}

TEST_CASE("what the grammars allow is read back as calls") {
    const Calls calls;
    std::mt19937 random(11);
    for (const ToolCallForm form : {ToolCallForm::json, ToolCallForm::xml}) {
        const auto grammar = std::make_shared<Grammar>(parse_gbnf(tool_calls_gbnf(tools, form)));
        for (int round = 0; round < 60; ++round) {
            Matcher matcher(grammar, calls.tokens);
            std::string text;
            while (!(matcher.can_end() && random() % 4 == 0) && matcher.accepted() < 4000) {
                std::vector<uint32_t> ids;
                const auto mask = matcher.mask();
                for (uint32_t id = 0; id < calls.tokenizer.size(); ++id)
                    if ((mask[id / 64] >> id % 64 & 1) && !calls.tokenizer.is_end_of_generation(id)) ids.push_back(id);
                if (ids.empty()) break;
                uint32_t id = ids[random() % ids.size()];
                for (const uint32_t closing : ids) // so that texts and lists end
                    if (random() % 3 == 0 && (calls.tokenizer.bytes(closing) == "\"" || calls.tokenizer.bytes(closing) == "]"))
                        id = closing;
                REQUIRE(matcher.accept(id));
                text += calls.tokenizer.bytes(id);
            }
            CAPTURE(text);
            const ParsedAnswer answer = parse_answer(text, false, ToolTypes(tools));
            if (!matcher.can_end()) continue; // it did not end by chance
            CHECK(!answer.calls.empty());
            CHECK(answer.content.find_first_not_of('\n') == std::string::npos);
        }
    }
}

TEST_CASE("wrong tools are named") {
    CHECK_THROWS_WITH_AS(tool_calls_gbnf(Json::array(), ToolCallForm::json), "there is no tool that could be called", Error);
    CHECK_THROWS_WITH_AS(tool_calls_gbnf(tools, ToolCallForm::json, "other"), "no tool is named other", Error);
    CHECK_THROWS_WITH_AS(tool_calls_gbnf(Json::parse("[{}]"), ToolCallForm::xml), "tool 0 has no name", Error);
    CHECK_THROWS_AS(tool_calls_gbnf(Json::parse(R"([{"name": "f", "parameters": {"not": {}}}])"), ToolCallForm::json), Error);
}
