// JSON from hostile sources: the result is that of nlohmann's parser, within limits, and in time linear in its length.
#include "base/error.h"
#include "base/json.h"
#include "tests/support/sanitized.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>

using namespace tq;
using nlohmann::json, nlohmann::ordered_json;
using tq::test::contains;

namespace {

std::string repeated(const std::string& text, size_t times) {
    std::string out;
    out.reserve(text.size() * times);
    for (size_t i = 0; i < times; i++) out += text;
    return out;
}

template <class Json = json> std::string error_of(const std::string& text, const JsonLimits& limits = {}) {
    try {
        build_json<Json>(text, "it", limits);
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing was thrown";
}

} // namespace

TEST_CASE("what is read is what nlohmann's own parser reads, in its order where that is kept") {
    for (const char* text : {"null", "true", "-1", "18446744073709551615", "1e300", "\"a\\u00e9\\n\"", "[]", "{}",
                             " [1, [2, []], {}] ", R"({"b": [1, -2, 3.5, {"x": null}], "a": {"c": "d", "e": {}}, "": false})"}) {
        CAPTURE(text);
        CHECK(build_json(text, "it") == json::parse(text));
        CHECK(build_json<ordered_json>(text, "it").dump() == ordered_json::parse(text).dump());
    }
}

TEST_CASE("what is no JSON is refused with its place") {
    for (const char* text :
         {"", "{", "[1,", "[1 2]", "{\"a\" 1}", "nul", "1e999", "[] []", "\"\xff\"", "{1: 2}", "\"\\ud800\""}) {
        CAPTURE(text);
        CHECK(error_of(text).starts_with("it: it is not JSON: "));
    }
    CHECK(error_of("[1,\n2,,]").find("at line 2, column 3") != std::string::npos);
}

TEST_CASE("escapes of half a character are read as U+FFFD where that is wanted") {
    const auto read = [](const std::string& text) {
        return build_json(text, "it", {.lone_surrogates = true}).get<std::string>();
    };
    const std::string unknown = "\xEF\xBF\xBD";
    CHECK(read(R"("Hello \ud83d world")") == "Hello " + unknown + " world");
    CHECK(read(R"("\ud83d\ude00")") == "\xF0\x9F\x98\x80");
    CHECK(read(R"("\uDE00\uD83D\ud83d\uDE00\ude00")") == unknown + unknown + "\xF0\x9F\x98\x80" + unknown);
    CHECK(read(R"("\ud83d\n\ud83dx\\ud83d\\\ud83d")") == unknown + "\n" + unknown + R"(x\ud83d\)" + unknown);
    CHECK(read(R"("\ud7ff\ue000")") == "\xED\x9F\xBF\xEE\x80\x80");
    CHECK(build_json(R"({"\ud83d": "\u0041\udfff"})", "it", {.lone_surrogates = true}) == json{{unknown, "A" + unknown}});
    for (const char* wrong : {R"("\ud83")", R"("\ud83d)", R"("\ud83d\u")", "\"\xED\xA0\xBD\""})
        CHECK(error_of(wrong, {.lone_surrogates = true}).starts_with("it: it is not JSON: "));
}

TEST_CASE("limits hold while it is read, not after") {
    CHECK(error_of("[[[1]]]", {.max_depth = 3}) == "nothing was thrown");
    CHECK(error_of("[[{}]]", {.max_depth = 2}) == "it: it is nested deeper than 2 levels");
    CHECK(error_of(std::string(10'000'000, '[')) == "it: it is nested deeper than 64 levels"); // before the end is missed
    CHECK(error_of("[1, 2, 3]", {.max_values = 4}) == "nothing was thrown");
    CHECK(error_of("[1, 2, 3, 4]", {.max_values = 4}) == "it: it has more than 4 values");
    CHECK(error_of("[1, 2, 3, 4, no JSON", {.max_values = 4}) == "it: it has more than 4 values");
    CHECK(error_of(R"({"a": 1, "b": {"a": 1}, "a\n": 2})") == "nothing was thrown");
    CHECK(contains(error_of(R"({"a": {}, "b": {"c\u000a": 1, "c\n": 2}})"), R"(it: the key 'c\x0a' occurs twice)"));
    CHECK(contains(error_of<ordered_json>(R"([{"a": 1, "a": 1}])"), "it: the key 'a' occurs twice"));
}

// A parser that scans all siblings again at the end of each takes minutes for the smallest of these, and far over half an hour
// for all.
TEST_CASE("millions of siblings are read in linear time") {
    constexpr size_t count = tq::test::sanitized ? 40'000 : 4'000'000;
    const std::string list = "[" + repeated("{},", count) + "[]]";
    CHECK(build_json(list, "it").size() == count + 1);
    CHECK(build_json<ordered_json>(list, "it").size() == count + 1);
    std::string object = "{";
    for (size_t i = 0; i < count / 4; i++) object += '"' + std::to_string(i) + "\":{},";
    object += "\"\":[]}";
    CHECK(build_json(object, "it").size() == count / 4 + 1);
    CHECK(build_json<ordered_json>(object, "it").size() == count / 4 + 1);
}
