// JSON schema as a grammar in GBNF, for the keywords that people use. Members of an object come in the order of `properties`,
// then the others; between the parts of a value there may be a space, or a newline and some indentation.
//
// Known: type (also a list of types), enum, const, anyOf, oneOf (as anyOf), allOf (merged), $ref within the schema, also
// recursive and by $id or $anchor, nullable; properties, required, additionalProperties, patternProperties, propertyNames,
// minProperties and maxProperties (of objects without properties); items, prefixItems, minItems, maxItems; minLength, maxLength
// (above 32,768 it is not enforced), pattern, format; minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf. As in
// llama.cpp an object whose properties are listed has no others unless additionalProperties asks for them, or a keyword that is
// left out describes others. Keywords that constrain nothing, such as title and those that JSON Schema does not know, are
// ignored.
//
// pattern: the regular expressions of ECMA-262 without back references, \b and \B. Lookaheads are known at the beginning only,
// and of \p{} general categories. A pattern that has more is replaced by the format beside it, if that is known. format: date,
// time, date-time, duration, uuid (also uuid1 to uuid8), email, hostname, ipv4, ipv6, uri, emoji; others are annotations.
// multipleOf: numbers such as 5, 0.01 and 100.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

namespace tq::grammar {

// Throws an Error that names the keyword, and its place as a JSON pointer, if a schema is wrong, or the grammar would be longer
// than 1 MiB; also if the schema has more than 262,144 values. A keyword that is null counts as absent. Keywords that a grammar
// cannot express (if and then, a lookahead, uniqueItems, a pattern of more than 64 KiB) are an Error, too, if the schema is
// `strict`; else they are annotations, and where a schema within another value is wrong, that may be any. `left_out` gets some of
// these, for people: "at /properties/a: the keyword 'if' is not supported".
std::string json_schema_gbnf(const nlohmann::ordered_json& schema, bool strict = true, std::set<std::string>* left_out = nullptr);

// The same from text: throws an Error if it is not JSON.
std::string json_schema_gbnf(std::string_view schema, bool strict = true);

// Rules for several schemas of one document, for a grammar with more around them.
struct SchemaGrammar {
    std::string gbnf;
    std::vector<std::string>
        names; // of the rule for each pointer; all begin with "ref-", or are those of JSON: string, integer, ...
};

// How an object is written: as JSON, or its members as Qwen3-Coder's parameters, whose texts follow a rule `text-0`, which the
// grammar around them must define.
enum class ObjectForm { json, parameters };

// `pointers`: JSON pointers to schemas in `document`, which their $ref refer to; `strict`: which of them are, empty: all. Throws
// an Error as json_schema_gbnf() does.
SchemaGrammar json_schema_rules(const nlohmann::ordered_json& document, const std::vector<std::string>& pointers,
                                const std::vector<bool>& strict = {}, ObjectForm form = ObjectForm::json);

// Any JSON object: OpenAI's response_format json_object.
std::string json_object_gbnf();

} // namespace tq::grammar
