// JSON schemas as grammars: texts that follow them and texts that do not, the numbers of ranges one by one, and what is refused.
#include "tests/model/text/grammar/schema_check.h"
#include "tests/support/text.h"
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace tq;
using namespace tq::grammar;
using tq::test::contains;

using Json = nlohmann::ordered_json;

TEST_CASE("any JSON, and types") {
    check("{}", {"1", "\"a\"", "{\"a\": [1, {\"b\": null}]}", "[ ]", "true", "-1.5e+10"},
          {"", "01", "a", "{a: 1}", "[1,]", "\"\n\"", "nul"});
    check("true", {"{}", "[1,2]"}, {"]"});
    check(R"({"type": "boolean"})", {"true", "false"}, {"null", "1"});
    check(R"({"type": ["integer", "null"]})", {"12", "null", "-3"}, {"1.5", "\"1\""});
    check(R"({"type": "string", "nullable": true})", {"\"a\"", "null"}, {"1"});
    check(R"({"type": "number"})", {"0", "-0.5", "1e5", "12.25"}, {"+1", ".5", "1.", "0x1"});
    check(R"({"type": "string"})", {"\"\"", "\"é😀\\n\\u00e9\\ud83d\\ude00\""},
          {"\"\\ud83d\"", "\"\\ude00\"", "\"\\x\"", "\"\t\"", "\"a"});
    check(R"({"enum": ["a", 1, null, {"b": [true]}]})", {"\"a\"", "1", "null", "{\"b\":[true]}"}, {"\"b\"", "2"});
    check(R"({"const": "x\"y"})", {"\"x\\\"y\""}, {"\"x\""});
    check(R"({"type": "string", "enum": ["a", 1]})", {"\"a\""}, {"1"});
}

TEST_CASE("objects") {
    const char* schema =
        R"({"type": "object", "title": "T", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}, "c": {"type": "null"}},
        "required": ["b"]})";
    check(schema,
          {"{\"b\":true}", "{ \"b\": true }", "{\"a\": 1, \"b\": false, \"c\": null}", "{\n  \"b\": true,\n  \"c\": null\n}"},
          {"{}", "{\"a\": 1}", "{\"b\": true, \"a\": 1}", "{\"b\": true, \"d\": 1}", "{\"b\": true,}", "{, \"b\": true}"});
    check(R"({"properties": {"a": {"const": 1}, "b": {"const": 2}}})", {"{}", "{\"a\": 1}", "{\"b\": 2}", "{\"a\": 1, \"b\": 2}"},
          {"{\"b\": 2, \"a\": 1}", "{\"a\": 2}"});
    check(
        R"({"type": "object", "properties": {"ab": {"const": 1}, "a\"": {"const": 2}}, "additionalProperties": {"type": "boolean"}})",
        {"{\"ab\": 1, \"abc\": true}", "{\"a\": true}", "{\"\": true, \"b\": false}", "{\"a\\\"\": 2}", "{\"a\\n\": true}",
         "{\"x\\u0041\": true}"},
        {"{\"ab\": true}", "{\"c\": 1}", "{\"a\\\"\": true}", "{\"\\u0061b\": true}"});
    check(R"({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2})",
          {"{\"a\": 1}", "{\"a\": 1, \"b\": 2}"}, {"{}", "{\"a\": 1, \"b\": 2, \"c\": 3}", "{\"a\": true}"});
    check(R"({"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}})", {"{}", "{\"ab\": 1}"}, {"{\"A\": 1}"});
    check(R"({"type": "object", "additionalProperties": false})", {"{}", "{ }"}, {"{\"a\": 1}"});
    check(R"({"type": "object", "required": ["z"], "additionalProperties": {"const": 1}})",
          {"{\"z\": 1}", "{\"z\": 1, \"a\": 1}"}, {"{}", "{\"a\": 1}"});
}

TEST_CASE("arrays") {
    check(R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})", {"[1, 2]", "[1,2,3]"},
          {"[]", "[1]", "[1,2,3,4]", "[1 2]"});
    check(R"({"items": {"const": 0}})", {"[]", "[0]", "[0,0,0,0,0]"}, {"[1]"});
    check(R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"});
    check(R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}]})", {"[]", "[1]", "[1, 2]"}, {"[2]", "[1, 2, 3]"});
    check(R"({"type": "array", "prefixItems": [{"const": 1}], "items": {"const": 9}, "minItems": 2, "maxItems": 3})",
          {"[1, 9]", "[1, 9, 9]"}, {"[1]", "[1, 9, 9, 9]", "[9, 9]"});
    check(R"({"items": [{"const": 1}], "additionalItems": false})", {"[]", "[1]"}, {"[1, 1]"});
}

TEST_CASE("combinations and references") {
    check(R"({"anyOf": [{"const": 1}, {"type": "object", "properties": {"a": {"const": 2}}, "required": ["a"]}]})",
          {"1", "{\"a\": 2}"}, {"2", "{}"});
    check(
        R"({"type": "object", "properties": {"k": {"type": "string"}, "v": {}}, "oneOf": [{"required": ["k"]}, {"required": ["v"]}]})",
        {"{\"k\": \"x\"}", "{\"v\": 1}"}, {"{}"});
    check(
        R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"$ref": "#/$defs/b"}], "$defs": {"b": {"properties":
        {"a": {"minimum": 5}, "b": {"const": 1}}, "required": ["b"]}}})",
        {"{\"a\": 5, \"b\": 1}"}, {"{\"a\": 4, \"b\": 1}", "{\"a\": 5}"});
    check(R"({"$ref": "#/definitions/node", "definitions": {"node": {"type": "object", "properties": {"v": {"type": "integer"},
        "next": {"anyOf": [{"$ref": "#/definitions/node"}, {"type": "null"}]}}, "required": ["v", "next"]}}})",
          {"{\"v\": 1, \"next\": null}", "{\"v\": 1, \"next\": {\"v\": 2, \"next\": null}}"},
          {"{\"v\": 1, \"next\": {}}", "{\"v\": 1}"});
    check(R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[], [[]]]"}, {"[1]"});
    check(
        R"({"$defs": {"root": {"const": 1}, "string": {"const": 2}}, "prefixItems": [{"$ref": "#/$defs/root"}, {"$ref": "#/$defs/string"}, {"type": "string"}]})",
        {"[1, 2, \"a\"]"}, {"[1, \"a\"]"});
}

TEST_CASE("strings: lengths, patterns, formats") {
    check(R"({"type": "string", "minLength": 2, "maxLength": 3})", {"\"ab\"", "\"éé\"", "\"a\\n\\u00e9\"", "\"😀😀\""},
          {"\"a\"", "\"abcd\""});
    check(R"({"pattern": "^[A-Z]{2}-\\d+$"})", {"\"AB-1\"", "\"XY-123\""}, {"\"AB-\"", "\"ab-1\"", "\"AB-1x\""});
    check(R"({"pattern": "b+"})", {"\"abc\"", "\"b\""}, {"\"ac\"", "\"\""});
    check(R"({"pattern": "^(?:a|b(c|d)?)*?$"})", {"\"\"", "\"abcbda\""}, {"\"c\""});
    check(R"({"pattern": "^[^\"]\\\\\\n.$"})", {"\"a\\\\\\nb\""}, {"\"\\\"\\\\\\nb\""});
    check(R"({"pattern": "^x$|^y"})", {"\"x\"", "\"yz\""}, {"\"xz\""});
    check(R"({"pattern": "^[\\w.]+\\.txt$"})", {"\"a_b.txt\"", "\"..txt\""}, {"\"a-b.txt\"", "\".txt\""});
    check(R"({"format": "date"})", {"\"2024-02-29\""}, {"\"2024-13-01\"", "\"24-01-01\""});
    check(R"({"format": "date-time"})", {"\"2024-02-29T23:59:59.5Z\"", "\"2024-02-29T00:00:00+02:00\""},
          {"\"2024-02-29\"", "\"2024-02-29T24:00:00Z\"", "\"2024-02-29t23:59:59Z\""});
    check(R"({"format": "time"})", {"\"12:00:00Z\""}, {"\"12:00\""});
    check(R"({"format": "uuid"})", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567\""});
    for (const char version : {'1', '3', '4', '5', '6', '7', '8'}) // pydantic's UUID4 and others
        check(fmt::format(R"({{"format": "uuid{}"}})", version),
              {fmt::format("\"123e4567-e89b-{}2d3-a456-426614174000\"", version)},
              {"\"123e4567-e89b-22d3-a456-426614174000\"", "\"123e4567\""});
    check(R"({"format": "email"})", {"\"a.b@example.org\""}, {"\"a@b\"", "\"@b.c\""});
    check(R"({"format": "ipv4"})", {"\"255.0.10.1\""}, {"\"256.0.0.1\"", "\"01.0.0.1\""});
    check(R"({"format": "ipv6"})", {"\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::1:2\"", "\"::\""}, {"\"1:2\"", "\"1::2::3\""});
    check(R"({"format": "uri"})", {"\"https://a.b/c?d=%20#e\""}, {"\"a b\""});
    check(R"({"format": "duration"})", {"\"P1DT2H\"", "\"PT5M\"", "\"P3W\""}, {"\"P\"", "\"PT\""});
    check(R"({"format": "hostname"})", {"\"a-b.example\""}, {"\"-a\""});
    // Other formats say nothing about the text.
    for (const char* format : {"byte", "binary", "password", "uri-reference", "color"})
        check(fmt::format(R"({{"type": "string", "format": "{}"}})", format), {"\"any text\"", "\"\""}, {"1"});
    check(R"({"format": "password", "minLength": 2})", {"\"ab\""}, {"\"a\""});
    check(R"({"format": "byte", "pattern": "^[a-z]+$"})", {"\"ab\""}, {"\"A\""});
}

// Formats as zod 4 and pydantic write them, in strict mode too.
TEST_CASE("a format beside a pattern: the pattern where it can be read, else the format") {
    check(R"({"format": "date", "pattern": "^\\d{4}-\\d{2}-\\d{2}$"})", {"\"2024-99-99\""}, {"\"24-01-01\""});
    check(
        R"({"format": "uuid", "pattern": "^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000)$"})",
        {"\"123e4567-e89b-12d3-a456-426614174000\"", "\"00000000-0000-0000-0000-000000000000\""},
        {"\"123e4567-e89b-92d3-a456-426614174000\""});
    check(
        R"({"format": "email", "pattern": "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"})",
        {"\"a.b@example.org\""}, {"\"a..b@example.org\"", "\".a@example.org\"", "\"a@example.1\""});
    check(R"({"format": "duration", "pattern": "^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?)$"})", {"\"P1Y\"", "\"P3W\""},
          {"\"P\""});
    check(
        R"({"format": "date-time", "pattern": "^(?:\\d{4}-(?:0[1-9]|1[0-2])-\\d\\d)T(?:(?:[01]\\d|2[0-3]):[0-5]\\d(?::[0-5]\\d(?:\\.\\d+)?)?(?:Z))$"})",
        {"\"2024-02-29T23:59Z\"", "\"2024-02-29T23:59:01.5Z\""}, {"\"2024-02-29t23:59Z\""});
    check(
        R"({"format": "base64", "contentEncoding": "base64", "pattern": "^$|^(?:[0-9a-zA-Z+/]{4})*(?:(?:[0-9a-zA-Z+/]{2}==)|(?:[0-9a-zA-Z+/]{3}=))?$"})",
        {"\"\"", "\"QUJD\"", "\"QUI=\""}, {"\"QUI\""});
    check(R"({"format": "emoji", "pattern": "^(\\p{Extended_Pictographic}|\\p{Emoji_Component})+$"})", {"\"😀🙏\""},
          {"\"a\"", "\"\""});
    check(R"({"format": "e164", "pattern": "^\\+[1-9]\\d{6,14}$"})", {"\"+4712345678\""}, {"\"4712345678\""});
    check(R"({"pattern": "^(?<year>\\d{4})$"})", {"\"2024\""}, {"\"24\""});
}

TEST_CASE("an unknown format is an annotation") {
    for (const char* format : {"binary", "password", "jwt", "path", "json-string", "regex", "color"}) {
        check(fmt::format(R"({{"type": "string", "format": "{}"}})", format), {"\"any\"", "\"\""}, {"1"});
        check(fmt::format(R"({{"type": "string", "format": "{}", "maxLength": 3}})", format), {"\"any\""}, {"\"four\""});
    }
}

TEST_CASE("lengths beside patterns and formats hold") {
    check(R"({"pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4})", {"\"ab\"", "\"abcd\""}, {"\"a\"", "\"abcde\"", "\"AB\""});
    check(R"({"pattern": "^abc.*", "maxLength": 6})", {"\"abc\"", "\"abcdef\""}, {"\"abcdefg\"", "\"xabc\""});
    check(R"({"pattern": "^(ab|c)*$", "maxLength": 4})", {"\"\"", "\"ab\"", "\"cc\""}, {"\"ababab\"", "\"ccccc\""});
    check(R"({"pattern": "^[A-Z]{2}-\\d+$", "minLength": 6})", {"\"AB-123\"", "\"AB-1234567\""}, {"\"AB-12\""});
    check(R"({"pattern": "^(x|[a-z]{3}|[0-9]{7})$", "minLength": 2, "maxLength": 5})", {"\"abc\""}, {"\"x\"", "\"1234567\""});
    check(R"({"format": "email", "maxLength": 20})", {"\"a@b.no\""}, {"\"aaaaaaaaaaaaaaaaaa@b.no\"", "\"a@b\""});
    check(R"({"format": "uri", "minLength": 1, "maxLength": 2083})", {"\"https://a.example/b?c=d\""}, {"\"\"", "\"a b\""});
    check(R"({"format": "date", "minLength": 10, "maxLength": 10})", {"\"2024-01-31\""}, {"\"2024-1-31\""});
}

TEST_CASE("no text of a pattern with lengths is longer or shorter") {
    for (const char* pattern : {"^[ab]*$", "^a[ab]?b*$", "^(ab|b)*a$", "^(a+b?)+$", "^(a|bb){1,3}b{0,2}$", "a", "^(a*b*)*$"})
        for (uint32_t min = 0; min <= 4; ++min)
            for (uint32_t max = min; max <= 5; ++max) {
                const std::string schema =
                    fmt::format(R"({{"pattern": "{}", "minLength": {}, "maxLength": {}}})", pattern, min, max);
                if (error_of(schema) != "no error") continue;
                Schema limited(schema), all(fmt::format(R"({{"pattern": "{}"}})", pattern));
                size_t found = 0;
                for (uint32_t length = 0; length <= 7; ++length)
                    for (uint32_t bits = 0; bits < 1u << length; ++bits) {
                        std::string text = "\"";
                        for (uint32_t i = 0; i < length; ++i) text += bits >> i & 1 ? 'b' : 'a';
                        if (!limited.allows(text + "\"")) continue;
                        CAPTURE(schema);
                        CAPTURE(text);
                        CHECK(length >= min);
                        CHECK(length <= max);
                        CHECK(all.allows(text + "\""));
                        ++found;
                    }
                CAPTURE(schema);
                CHECK(found > 0);
            }
}

TEST_CASE("multiples, each of them") {
    for (const auto& [of, min, max] :
         {std::tuple(5, -40, 40), {7, 0, 200}, {10, -100, 1000}, {3, 10, 101}, {25, -30, -20}, {100, 0, 1000}, {1, 3, 9}}) {
        Schema schema(fmt::format(R"({{"type": "integer", "multipleOf": {}, "minimum": {}, "maximum": {}}})", of, min, max));
        for (int i = -1100; i <= 1100; ++i) {
            CAPTURE(of);
            CAPTURE(i);
            CHECK(schema.allows(std::to_string(i)) == (i % of == 0 && min <= i && i <= max));
        }
        for (const char* wrong : {"00", "-0", "050", ""}) CHECK(!schema.allows(wrong));
    }
    check(R"({"type": "integer", "multipleOf": 5})", {"0", "5", "-10", "123456789012345"}, {"1", "12", "5.0", "-7"});
    check(R"({"type": "number", "multipleOf": 0.01})", {"0", "0.25", "-12.50", "3.00"}, {"0.125", "1.2", "-0.00"});
    check(R"({"type": "number", "multipleOf": 0.01, "minimum": 0, "exclusiveMaximum": 1})", {"0.07", "0.99"}, {"1.00", "-0.01"});
    check(R"({"type": "number", "multipleOf": 0.5, "minimum": -1})", {"0.5", "-1.0", "-0.5", "1234.5"}, {"0.3", "-1.5"});
    check(R"({"type": "integer", "multipleOf": 0.5})", {"0", "7", "-3"}, {"0.5"});
    check(R"({"type": "number", "multipleOf": 1})", {"0", "7", "-3"}, {"0.5"});
    check(R"({"type": "integer", "multipleOf": 1000})", {"0", "1000", "-25000"}, {"500", "1001"});
    check(R"({"type": "integer", "multipleOf": 137, "minimum": 0, "maximum": 1000})", {"0", "137", "274"}, {"1", "136"});
}

TEST_CASE("what a grammar cannot say is an annotation where the schema is not strict, and the rest holds") {
    for (const char* keyword : {R"("not": {})", R"("if": {}, "then": {})", R"("dependentRequired": {"a": ["b"]})",
                                R"("patternProperties": {"\\bx": {"type": "string"}})", R"("contains": {})"}) {
        CAPTURE(keyword);
        const std::string schema =
            fmt::format(R"({{"type": "object", "properties": {{"a": {{"type": "integer"}}}}, {}}})", keyword);
        check(schema, {"{\"a\": 1}", "{}"}, {"{\"a\": true}"}, false);
        CHECK(error_of(schema) != "no error");
    }
    check(R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true})", {"[\"a\", \"a\"]"}, {"[1]"}, false);
    check(R"s({"type": "string", "pattern": "^b(?=a)", "maxLength": 3})s", {"\"abc\""}, {"\"abcd\""}, false);
    check(R"({"pattern": "a\\b", "format": "date"})", {"\"2024-01-01\""}, {"\"a\""}, false);
    check(R"({"type": "number", "multipleOf": 1234567})", {"3"}, {"\"3\""}, false);
    check(R"s({"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "b(?=c)"}]})s", {"\"ax\""}, {"\"x\""}, false);
    check(R"({"type": "string", "allOf": [{"pattern": "^a$"}, {"pattern": "^b$"}]})", {"\"a\""}, {"\"x\""}, false);
    check(R"({"type": "object", "properties": {"a": {"$ref": "other.json#/x"}, "b": false}})", {"{\"a\": [1]}"}, {"[]"}, false);
    check(R"({"properties": {"a": {"const": 1}}, "minProperties": 1, "propertyNames": {"pattern": "a"}})", {"{}", "{\"a\": 1}"},
          {"{\"b\": 1}"}, false);
    check(R"({"required": ["a"], "additionalProperties": false})", {"{\"a\": 1}"}, {"{}"}, false);
    for (const char* wrong : {R"({"type": "text"})", R"({"minLength": 3, "maxLength": 2})", R"({"$ref": "#/nowhere"})", "1"})
        CHECK_THROWS_AS(json_schema_gbnf(std::string_view(wrong), false), Error);
    // A value within others whose schema is wrong may be any.
    for (const char* part :
         {R"({"type": "any"})", R"({"minLength": 3, "maxLength": 2})", R"({"$ref": "#/nowhere"})", R"({"enum": []})",
          R"({"minItems": 1000000})", "1", R"({"type": "number", "minimum": 3, "maximum": 2})"}) {
        const std::string schema =
            fmt::format(R"({{"properties": {{"a": {}, "b": {{"type": "integer"}}}}, "required": ["a", "b"]}})", part);
        CHECK(error_of(schema) != "no error");
        std::set<std::string> left_out;
        json_schema_gbnf(Json::parse(schema), false, &left_out);
        REQUIRE(left_out.size() == 1);
        CHECK(contains(*left_out.begin(), "/properties/a"));
        if (!contains(part, "minItems")) check(schema, {"{\"a\": [true], \"b\": 1}"}, {"{\"a\": 1, \"b\": []}"}, false);
    }
    check(R"({"type": "array", "items": {"type": "integer"}, "maxItems": 1000000})", {"[]", "[1, 2]"}, {"[true]"});
}

TEST_CASE("a reference is a URI's fragment") {
    check(R"({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"const": 1}}})", {"1"}, {"2"});
}

TEST_CASE("a great maxLength costs no states") {
    check(R"({"type": "string", "maxLength": 524288})", {"\"\"", "\"long\""}, {"1"});
    check(R"({"type": "string", "minLength": 2, "maxLength": 100000000})", {"\"ab\""}, {"\"a\""});
}

TEST_CASE("integers between bounds, each of them") {
    for (const auto& [min, max] :
         {std::pair(0, 9), {0, 10}, {5, 5}, {7, 123}, {99, 1001}, {-5, 5}, {-120, -7}, {-1, 0}, {100, 999}, {-1000, 1000}}) {
        Schema schema(fmt::format(R"({{"type": "integer", "minimum": {}, "maximum": {}}})", min, max));
        for (int i = -1300; i <= 1300; ++i) {
            CAPTURE(min);
            CAPTURE(max);
            CAPTURE(i);
            CHECK(schema.allows(std::to_string(i)) == (min <= i && i <= max));
        }
        CHECK(!schema.allows("00"));
    }
    check(R"({"type": "integer", "exclusiveMinimum": 3})", {"4", "10", "123456789"}, {"3", "0", "-4"});
    check(R"({"type": "integer", "maximum": -3})", {"-3", "-10", "-123456789"}, {"-2", "0", "4"});
    check(R"({"type": "integer", "minimum": 0.5, "exclusiveMaximum": 3})", {"1", "2"}, {"0", "3"});
    check(R"({"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991})",
          {"36", "-36", "0", "9007199254740991", "-9007199254740991"}, {"9007199254740992", "-9007199254740992", "1.5"});
    check(R"({"type": "integer", "minimum": 0, "maximum": 9223372036854775807})", {"0", "9999999999999999"}, {"-1"});
}

TEST_CASE("numbers between bounds, each of a fine grid") {
    for (const auto& [min, max, exclusive] : {std::tuple(0.0, 1.0, false),
                                              {0.0, 1.0, true},
                                              {-0.5, 0.25, false},
                                              {0.05, 0.5, true},
                                              {1.25, 1.27, false},
                                              {1.25, 1.3, true},
                                              {-2.5, -1.0, false},
                                              {0.3, 12.75, false},
                                              {2.0, 2.05, true},
                                              {-1.0, -0.125, true},
                                              {0.0, 0.0, false},
                                              {-3.0, 3.5, true},
                                              {0.101, 0.2, true}}) {
        const char* low = exclusive ? "exclusiveMinimum" : "minimum";
        const char* high = exclusive ? "exclusiveMaximum" : "maximum";
        Schema schema(fmt::format(R"({{"type": "number", "{}": {}, "{}": {}}})", low, min, high, max));
        for (int i = -4000; i <= 13000; ++i) {
            const double value = i / 1000.0;
            for (const std::string& text : {fmt::format("{:.3f}", value), fmt::format("{}", value)}) {
                if (text.starts_with("-0") && i == 0) continue;
                const bool wanted = exclusive ? min < value && value < max : min <= value && value <= max;
                if (schema.allows(text) != wanted) {
                    CAPTURE(min);
                    CAPTURE(max);
                    CAPTURE(exclusive);
                    CAPTURE(text);
                    CHECK(schema.allows(text) == wanted);
                }
            }
        }
    }
    check(R"({"type": "number", "minimum": 10})", {"10", "10.5", "123.25"}, {"9.99", "-11"});
    check(R"({"type": "number", "exclusiveMaximum": 0})", {"-1", "-0.001"}, {"0", "0.5"});
}

TEST_CASE("keywords that JSON Schema does not know are ignored") {
    for (const char* keyword : {"label", "placeholder", "propertyOrdering", "enumNames", "markdownDescription", "optional"})
        for (const char* value : {"true", "\"Name\"", "[\"a\"]", "null", "{\"properties\": {}}"})
            check(fmt::format(R"({{"type": "string", "maxLength": 1, "{}": {}}})", keyword, value), {"\"a\""}, {"\"ab\"", "1"});
}

TEST_CASE("members by the patterns of their names") {
    check(R"({"type": "object", "patternProperties": {"^(.*)$": {"type": "number"}}, "additionalProperties": false})",
          {"{}", R"({"x": 1.5})", R"({"x": 1, "y z": 2})"}, {R"({"x": "1"})", R"({"x": 1)"});
    check(R"({"patternProperties": {"^k": {"type": "integer"}, "\\d$": {"type": "boolean"}}})",
          {R"({"key": 1})", R"({"n1": true})", R"({"n1": false, "k": 2})"}, {R"({"k1": 1})", R"({"n1": 1})", R"({"other": 1})"});
    check(R"({"patternProperties": {"^k": {"type": "integer"}}, "additionalProperties": {"type": "string"}})",
          {R"({"k": 1})", R"({"x": "a", "k": 1})"}, {R"({"k": "a"})", R"({"x": 1})"});
    check(R"({"properties": {"kind": {"const": "a"}}, "required": ["kind"], "patternProperties": {"^k": {"type": "integer"}}})",
          {R"({"kind": "a"})", R"({"kind": "a", "kin": 1, "kinds": 2})"}, {R"({"kind": "a", "kind": 1})", R"({"kin": 1})"});
    check(R"({"type": "object", "patternProperties": {"^x": {}}, "minProperties": 1, "maxProperties": 2})",
          {R"({"x": null})", R"({"x": 1, "xy": 2})"}, {"{}", R"({"x": 1, "x": 2, "x": 3})"});
    check(
        R"({"allOf": [{"patternProperties": {"^a": {"minimum": 1}}}, {"patternProperties": {"^a": {"maximum": 3}, "^b": true}}]})",
        {R"({"a": 2})", R"({"b": "x"})"}, {R"({"a": 4})", R"({"c": 1})"});
    check(R"({"properties": {"a": {"type": "integer"}}, "unevaluatedProperties": {"type": "string"}})", {R"({"a": 1, "b": "x"})"},
          {R"({"b": 1})"});
    check(R"({"type": "array", "prefixItems": [{"type": "string"}], "unevaluatedItems": {"type": "number"}})", {R"(["a", 1])"},
          {R"(["a", "b"])"});
}

TEST_CASE("members that only a keyword describes which was left out are allowed") {
    for (const char* keyword : {R"("if": {}, "then": {"properties": {"x": {"type": "integer"}}})",
                                R"("if": {}, "else": {"$ref": "#/$defs/x"}, "$defs": {"x": {}})",
                                R"("dependentSchemas": {"a": {"properties": {"x": {}}}})",
                                R"("dependencies": {"a": {"oneOf": [{"properties": {"x": {}}}]}})", R"("$ref": "https://a.b/c")",
                                R"("allOf": [{"if": {}, "then": {}}, {"if": {}, "then": {"properties": {"x": {}}}}])",
                                R"("allOf": [{"$ref": "https://a.b/c"}, {"maxProperties": 9}])",
                                R"("patternProperties": {"\\bx": {}}, "additionalProperties": false)",
                                R"("patternProperties": {"\\bx": {}}, "additionalProperties": {"type": "boolean"})"}) {
        CAPTURE(keyword);
        const std::string schema =
            fmt::format(R"({{"type": "object", "properties": {{"a": {{"type": "integer"}}}}, {}}})", keyword);
        check(schema, {"{}", R"({"a": 1})", R"({"x": 1})", R"({"a": 1, "x": 2})"}, {R"({"a": "1"})", R"({"x": 1, "a": "1"})"},
              false);
        CHECK(error_of(schema) != "no error");
    }
    for (const char* keyword : {R"("if": {"properties": {"x": {}}}, "then": {"required": ["a"]})",
                                R"("if": {}, "then": {"properties": {"a": {"const": 1}}})", R"("dependencies": {"a": ["b"]})",
                                R"("if": {}, "then": {"properties": {"x": {}}}, "additionalProperties": false)"})
        check(fmt::format(R"({{"type": "object", "properties": {{"a": {{"type": "integer"}}}}, {}}})", keyword), {R"({"a": 1})"},
              {R"({"x": 1})"}, false);
}

TEST_CASE("what is not supported is named, with its place") {
    for (const auto& [schema, wanted] : {
             std::pair<std::string, std::string>{"{", "it is not JSON"},
             {"1", "at its root: a schema must be an object"},
             {"false", "false allows no value"},
             {R"({"not": {}})", "at its root: the keyword 'not' is not supported"},
             {R"({"properties": {"a": {"if": {}}}})", "at /properties/a: the keyword 'if' is not supported"},
             {R"({"items": {"uniqueItems": true}})", "at /items: the keyword 'uniqueItems' is not supported"},
             {R"({"type": "number", "multipleOf": 1234567})", "'multipleOf' is 1234567, but must be a small number"},
             {R"({"type": "number", "multipleOf": 0})", "'multipleOf' must be a number above 0"},
             {R"({"type": "integer", "multipleOf": 5, "minimum": 6, "maximum": 9})", "no multiple of 5 lies between"},
             {R"({"patternProperties": {"a\\b": {}}})", "at /patternProperties/a\\b: the pattern"},
             {R"({"type": "text"})", "'type' must be"},
             {R"s({"pattern": "(?=a)"})s", "groups that begin with (?"},
             {R"({"pattern": "a\\b"})", "the escape \\b is not supported"},
             {R"({"pattern": "(a"})", "the group is never closed"},
             {R"({"pattern": "^[a-z]{5}$", "maxLength": 3})", "no text of the pattern or format was found"},
             {R"({"format": "date", "maxLength": 3})", "no text of the pattern or format was found"},
             {R"({"minLength": 3, "maxLength": 2})", "'maxLength' is less than 'minLength'"},
             {R"({"maxLength": -1})", "a whole number"},
             {R"({"minimum": 3, "maximum": 2})", "no number lies between"},
             {R"({"type": "integer", "minimum": 1.2, "maximum": 1.8})", "no integer lies between"},
             {R"({"$ref": "#/$defs/x"})", "leads nowhere: #/$defs/x"},
             {R"({"$ref": "other.json"})", "leads to another document"},
             {R"({"$ref": "#"})", "leads back to itself"},
             {R"({"anyOf": [{"type": "null"}, {"$ref": "#"}]})", "leads back to itself"},
             {R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "never ends"},
             {R"({"required": ["a"], "additionalProperties": false})", "'a' is required, but is no property"},
             {R"({"anyOf": []})", "'anyOf' must be a list of schemas"},
             {R"({"enum": []})", "'enum' has no value"},
             {R"({"allOf": [{"multipleOf": 2}, {"multipleOf": 3}]})", "the keyword 'multipleOf' has several values"},
             {R"({"allOf": [{"pattern": "^a$"}, {"pattern": "^b$"}]})", "no text was found that its patterns"},
             {R"({"allOf": [{"$ref": "#"}]})", "to itself"},
             {R"({"items": {}, "maxItems": 1, "minItems": 2})", "'maxItems' is less than 'minItems'"},
             {R"({"type": "string", "minLength": 100000000})", "too large"},
         }) {
        CAPTURE(schema);
        CHECK(contains(error_of(schema), wanted));
    }
    CHECK(contains(error_of(std::string(200, '[')), "nested deeper"));
    std::string doubling = R"({"$ref": "#/$defs/d0", "$defs": {)";
    for (int i = 0; i < 40; ++i)
        doubling +=
            fmt::format(R"("d{}": {{"allOf": [{{"$ref": "#/$defs/d{}"}}, {{"$ref": "#/$defs/d{}"}}]}}, )", i, i + 1, i + 1);
    CHECK(contains(error_of(doubling + R"("d40": {"type": "null"}}})"), "too many schemas"));
    CHECK(contains(
        error_of(R"({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"x": {"$ref": "#/$defs/n", "minProperties": 0}}}}})"),
        "is not supported"));
    CHECK(contains(error_of(R"({"$defs": {"n": {"items": {"$ref": "#/$defs/n", "minItems": 1}}}, "$ref": "#/$defs/n"})"),
                   "leads back to itself"));
}

TEST_CASE("an enum of any number of values, and objects of very many properties") {
    Json values = Json::array();
    for (int i = 0; i < 20'000; ++i) values.push_back(fmt::format("v{}", i));
    for (const char* text : {"", "\u00e9", "\u00e8x", "\u00e8", "\"", "v1"}) values.push_back(text); // one of them twice
    for (int i = 0; i < 300; ++i) values.push_back(std::string(size_t(i), 'a'));
    values.push_back(7);
    values.push_back(77);
    values.push_back(nullptr);
    Schema all(Json{{"enum", values}}.dump());
    for (const Json& value : values) REQUIRE(all.allows(value.dump()));
    for (const char* wrong : {"\"v20000\"", "\"v\"", "\"v01\"", "\"\u00ea\"", "777", "nul", "\"b\"", "", "\"v1\"\"v1\""})
        CHECK(!all.allows(wrong));

    Json large = {{"type", "object"}, {"additionalProperties", false}};
    for (int i = 0; i < 5000; ++i) large["properties"][fmt::format("p{}", i)] = {{"type", "integer"}};
    CHECK(contains(error_of(large.dump()), "more than 4000 properties"));
    Schema followed(large.dump(), false);
    CHECK(followed.allows("{\"p4999\": 1, \"x\": []}"));
    CHECK(!followed.allows("[]"));
    for (int i = 0; i < 5000; ++i) large["required"].push_back(fmt::format("p{}", i));
    CHECK(!Schema(large.dump()).allows("{\"p0\": 1}")); // required ones have their order
}
