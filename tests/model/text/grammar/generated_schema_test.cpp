// Strict schemas as zod 4 and pydantic 2 write them for usual types. Only `$schema` was cut off.
#include "tests/model/text/grammar/schema_check.h"
#include "tests/support/text.h"

using namespace tq::grammar;
using tq::test::contains;

TEST_CASE("numbers of zod and pydantic") {
    // z.float32(), z.float64(): no number that a grammar writes is beyond these bounds.
    check(R"({"type":"number","minimum":-3.4028234663852886e+38,"maximum":3.4028234663852886e+38})",
          {"0", "-1.5", "9999999999999999.5", "-9999999999999999"}, {"1e39", "\"1\"", "01"});
    check(R"({"type":"number","minimum":-1.7976931348623157e+308,"maximum":1.7976931348623157e+308})", {"0.25"}, {"1e309"});
    check(R"({"type":"number","minimum":0,"maximum":1.7976931348623157e+308})", {"0", "7.5"}, {"-1"});
    check(R"({"type":"number","exclusiveMinimum":1e-20})", {"0.1", "0.000000000000001"}, {"0", "-1", "0.0"}); // Field(gt=1e-20)
    check(R"({"type":"number","maximum":0.12345678901234567})", {"0.123456789012345"}, {"0.123456789012346"});
    check(R"({"type":"integer","minimum":-2147483648,"maximum":2147483647})", {"2147483647"}, {"2147483648", "1.5"});
    check(R"({"type":"number","multipleOf":0.1})", {"0.3"}, {"0.35"});
    check(R"({"anyOf": [{"exclusiveMinimum": 0.0, "maximum": 100.0, "type": "number"}, {"type": "string"}]})", {"100", "\"1\""},
          {"0", "101"});
    // Decimal, of pydantic 2.11 to 2.13
    check(R"s({"anyOf": [{"type": "number"}, {"type": "string", "pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"}]})s",
          {"1.5", "\"-12.50\"", "\"0\"", "\".5\""}, {"\"\"", "\"-\"", "\".\"", "\"1.2.3\"", "\"a\""});
    check(
        R"s({"pattern": "^(?!^[-+.]*$)[+-]?0*(?:\\d{0,3}|(?=[\\d.]{1,6}0*$)\\d{0,3}\\.\\d{0,2}0*$)", "type": "string", "format": "date"})s",
        {"\"2024-01-31\""}, {"\"1.5\""}); // a lookahead within: the format is followed
}

TEST_CASE("texts with several patterns, as zod writes startsWith, includes and endsWith") {
    check(R"({"type":"string","format":"ends_with","allOf":[{"pattern":"^a.*"},{"pattern":".*z$"}]})",
          {"\"az\"", "\"a\\\"éz\"", "\"abcz\""}, {"\"a\"", "\"z\"", "\"za\"", "\"azb\"", "\"baz\""});
    check(R"({"type":"string","format":"ends_with","allOf":[{"pattern":"^ab.*"},{"pattern":"cd"},{"pattern":".*ef$"}]})",
          {"\"abcdef\"", "\"abxcd-ef\""}, {"\"abef\"", "\"cdabef\""});
    check(R"({"type":"string","minLength":3,"maxLength":9,"format":"ends_with","allOf":[{"pattern":"^a.*"},{"pattern":".*b$"}]})",
          {"\"axb\"", "\"a1234567b\""}, {"\"ab\"", "\"a12345678b\"", "\"axc\""});
    check(R"({"type":"string","allOf":[{"pattern":"^[a-z]+$"},{"pattern":"x"}]})", {"\"x\"", "\"axb\""},
          {"\"ab\"", "\"X\"", "\"x1\""});
    check(
        R"({"type":"string","format":"starts_with","allOf":[{"pattern":"^(?:[A-Za-z0-9_'+\\-]+\\.)*[A-Za-z0-9_'+\\-]*[A-Za-z0-9_+-]@(?:[A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"},{"pattern":"^a.*"}]})",
        {"\"a.b@example.org\""}, {"\"b@example.org\"", "\"a@b\""});
    check(R"({"type":"string","format":"uppercase","pattern":"^[^a-z]*$"})", {"\"AB1\""}, {"\"Ab\""});
}

TEST_CASE("lookaheads at the beginning") {
    check(R"s({"type":"string","pattern":"^(?=.*\\d)(?=.*[a-z]).{8,}$"})s", {"\"1bcdefgh\"", "\"ABCDEF1b\""},
          {"\"abcdefgh\"", "\"1b\"", "\"12345678\""});
    check(R"s({"type":"string","pattern":"^(?!admin$)[a-z]+$"})s", {"\"adm\"", "\"admins\"", "\"a\""}, {"\"admin\"", "\"A\""});
    check(R"s({"type":"string","pattern":"^(?=a|b)\\w{2}$"})s", {"\"ab\"", "\"bz\""}, {"\"za\"", "\"a\""});
    CHECK(contains(error_of(R"s({"pattern":"^(?=a)b$"})s"), "no text was found that its patterns"));
    CHECK(contains(error_of(R"s({"pattern":"^(?!a)b|c$"})s"), "a lookahead in one of several alternatives"));
}

TEST_CASE("a lookahead, and the patterns that are its meaning, agree on every short text") {
    Schema looks(R"s({"pattern":"^(?=.*aa)(?!.*bb)[ab]*$"})s"), patterns(R"({"pattern":"^[ab]*$"})");
    for (uint32_t length = 0; length <= 9; ++length)
        for (uint32_t bits = 0; bits < 1u << length; ++bits) {
            std::string text;
            for (uint32_t i = 0; i < length; ++i) text += bits >> i & 1 ? 'b' : 'a';
            CAPTURE(text);
            CHECK(patterns.allows("\"" + text + "\""));
            CHECK(looks.allows("\"" + text + "\"") == (contains(text, "aa") && !contains(text, "bb")));
        }
}

TEST_CASE("characters of Unicode by their category, and by number") {
    check(R"({"type":"string","pattern":"^\\p{L}+$"})", {"\"aÉж字\""}, {"\"a1\"", "\"-\"", "\"\""});
    check(R"({"pattern": "^\\p{Lu}\\p{Ll}*$", "type": "string", "maxLength": 4})", {"\"Été\"", "\"Ж\""},
          {"\"été\"", "\"ABC\"", "\"Abcde\""});
    check(R"({"pattern":"^[\\p{L}\\p{N}_]+$"})", {"\"é٣_\""}, {"\"a b\""});
    check(R"({"pattern":"^\\P{L}$"})", {"\"1\"", "\"\\n\""}, {"\"a\""});
    check(R"({"type":"string","pattern":"^\\u{1F600}\\uD83D\\uDE00\\u0041$"})", {"\"😀😀A\""}, {"\"😀A\""});
    for (const char* wrong : {"\\\\p{Greek}", "\\\\p{}", "\\\\p{L", "\\\\u{110000}", "\\\\uD83D"})
        CHECK(error_of(std::string(R"({"pattern":")") + wrong + "\"}") != "no error");
}

TEST_CASE("records: names that are listed") {
    // z.record(z.enum(["a", "b"]), z.number())
    check(
        R"({"type":"object","propertyNames":{"type":"string","enum":["a","b"]},"additionalProperties":{"type":"number"},"required":["a","b"]})",
        {"{\"a\": 1, \"b\": 2.5}"}, {"{\"a\": 1}", "{\"a\": 1, \"b\": 2, \"c\": 3}", "{\"a\": true, \"b\": 1}", "{}"});
    // z.partialRecord(), dict[Literal["a", "b"], int]
    check(R"({"additionalProperties": {"type": "integer"}, "propertyNames": {"enum": ["a", "b"]}, "type": "object"})",
          {"{}", "{\"a\": 1}", "{\"b\": 2}", "{\"a\": 1, \"b\": 2}"}, {"{\"c\": 1}", "{\"a\": 1, \"a\": 2}", "{\"a\": true}"});
    check(
        R"({"type":"object","propertyNames":{"anyOf":[{"type":"string","const":"p"},{"type":"string","const":"q"}]},"additionalProperties":{"type":"string"},"required":["p","q"]})",
        {"{\"p\": \"\", \"q\": \"x\"}"}, {"{\"p\": \"\"}"});
    // dict[E, int]
    check(
        R"({"$defs": {"E": {"enum": ["x", "y"], "title": "E", "type": "string"}}, "additionalProperties": {"type": "integer"}, "propertyNames": {"$ref": "#/$defs/E"}, "type": "object"})",
        {"{}", "{\"y\": 1}"}, {"{\"z\": 1}"});
    check(R"({"type":"object","properties":{"a":{"type":"integer"},"b":{}},"propertyNames":{"enum":["a","c"]}})",
          {"{\"a\": 1}", "{\"c\": true}"}, {"{\"b\": 1}"});
    CHECK(contains(error_of(R"({"propertyNames":{"enum":["a"]},"required":["b"]})"), "'propertyNames' does not allow it"));
    CHECK(contains(error_of(R"({"propertyNames":{"pattern":"^k"},"required":["k"]})"), "'propertyNames' beside 'required'"));
    check(
        R"({"type":"object","propertyNames":{"type":"string","pattern":"^-?\\d+(?:\\.\\d+)?$"},"additionalProperties":{"type":"string"}})",
        {"{\"1.5\": \"\"}"}, {"{\"a\": \"\"}"});
}

TEST_CASE("objects and lists of zod and pydantic") {
    check(R"({"type":"object","properties":{"a":{"not":{}}},"additionalProperties":false})", {"{}"}, {"{\"a\": 1}"}); // z.never()
    check(
        R"({"anyOf":[{"type":"string"},{"type":"number"},{"type":"boolean"},{"type":"null"},{"type":"array","items":{"$ref":"#"}},{"type":"object","propertyNames":{"type":"string"},"additionalProperties":{"$ref":"#"}}]})",
        {"[{\"a\": [null]}]", "1"}, {"[}"}); // z.json()
    check(
        R"({"$defs": {"Node": {"properties": {"v": {"title": "V", "type": "integer"}, "kids": {"default": [], "items": {"$ref": "#/$defs/Node"}, "title": "Kids", "type": "array"}}, "required": ["v"], "title": "Node", "type": "object"}}, "$ref": "#/$defs/Node"})",
        {"{\"v\": 1, \"kids\": [{\"v\": 2}]}"}, {"{}", "{\"v\": 1, \"kids\": [1]}"});
    check(R"({"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"number"},"minItems":1})", {"[\"a\", 1]"}, {"[]"});
    check(R"({"additionalProperties": {"type": "integer"}, "maxProperties": 2, "minProperties": 1, "type": "object"})",
          {"{\"a\": 1}"}, {"{}"});
    check(R"({"patternProperties": {"^(.*)$": {"type": "integer"}}, "type": "object"})", {"{}", "{\"a\": 1}"},
          {"{\"a\": true}"}); // TypeBox
    check(R"({"type":"string","pattern":"^id--?\\d+(?:\\.\\d+)?(px|em)$"})", {"\"id-1.5px\""}, {"\"id-px\""});
    for (const auto& [schema, wanted] :
         {std::pair(R"({"items": {"type": "integer"}, "type": "array", "uniqueItems": true})", "uniqueItems"),
          {R"({"dependentRequired": {"a": ["b"]}, "type": "object"})", "dependentRequired"},
          {R"({"type":"string","pattern":"\\bfoo\\b"})", "\\b is not supported"}})
        CHECK(contains(error_of(schema), wanted));
}
