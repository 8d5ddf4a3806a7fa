// Schemas as their generators write them: references by names, keywords that are null, choices that allow nothing.
#include "tests/model/text/grammar/schema_check.h"
#include "tests/support/text.h"
#include <fmt/format.h>

using namespace tq;
using namespace tq::grammar;
using test::contains;

TEST_CASE("references by names: $id, $anchor, and a place within what has an $id") {
    check(R"({"$id": "T0", "properties": {"v": {"const": 1}, "n": {"items": {"$ref": "T0"}}}, "required": ["v"],
        "additionalProperties": false})",
          {R"({"v": 1, "n": [{"v": 1}]})"}, {R"({"v": 1, "n": [{}]})"}); // TypeBox, of recursive types
    const std::string definitions = R"(, "$defs": {"a/%": {"$id": "Node", "enum": [1]}, "b": {"$anchor": "b", "enum": [2]},
        "c": {"$id": "https://a.b/c.json", "$defs": {"d": {"enum": [3]}, "e": {"$anchor": "e", "enum": [4]}}, "enum": [5]},
        "const": {"$id": "f", "enum": [6]}}})";
    for (const auto& [name, value] : {std::pair("Node", 1), std::pair("#b", 2), std::pair("https://a.b/c.json#/$defs/d", 3),
                                      std::pair("https://a.b/c.json#e", 4), std::pair("https://a.b/c.json", 5),
                                      std::pair("https://a.b/c.json#", 5), std::pair("f", 6)}) {
        CAPTURE(name);
        const std::string schema = fmt::format(R"({{"items": {{"$ref": "{}"}})", name) + definitions;
        check(schema.c_str(), {fmt::format("[{}]", value)}, {"[7]", "[null]"});
    }
    check(R"({"properties": {"$id": {"const": 1}, "id": {"$ref": "#/properties/$id"}}, "required": ["$id", "id"]})",
          {R"({"$id": 1, "id": 1})"}, {R"({"$id": 1, "id": 2})"});
    check(R"({"$id": "x", "const": {"$id": "y", "$ref": "x"}})", {R"({"$id":"y","$ref":"x"})"}, {"1"});
}

TEST_CASE("null is no keyword, and what allows nothing is no choice") {
    for (const bool strict : {true, false}) {
        check(R"({"type": "object", "properties": null, "required": null})", {R"({"a": 1})"}, {"1"}, strict);
        check(R"({"properties": {"a": {"type": "integer", "enum": null, "minimum": null}}, "required": ["a"]})", {R"({"a": 1})"},
              {R"({"a": "x"})", "{}"}, strict);
        check(R"({"const": null})", {"null"}, {"1"}, strict);
        check(R"({"anyOf": [{"not": {}}, {"const": "a"}, false]})", {"\"a\""}, {"1"}, strict); // zod 3, of optional values
        check(R"({"type": "string", "contentMediaType": "application/json", "contentSchema": {"type": "integer"}})", {"\"1\""},
              {"1"}, strict);
    }

    check(R"({"type": "number", "minimum": 0, "maximum": 3.4028234663852886e38})", {"1.5"}, {"-1.5"}, false);
    check(R"({"type": "integer", "minimum": 18446744073709551615, "maximum": 5})", {"4"}, {"6"}, false);
    CHECK(contains(error_of(R"({"type": "number", "minimum": 3.4028234663852886e38})"), "more than 16 digits"));
}
