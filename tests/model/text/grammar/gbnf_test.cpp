// GBNF: what its notation matches, byte by byte, and the errors of grammars that are wrong or hostile.
#include "base/error.h"
#include "model/text/grammar/gbnf.h"
#include "model/text/grammar/state_table.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>

using namespace tq;
using namespace tq::grammar;
using tq::test::contains;

namespace {

// "yes": the text follows the grammar, "more": its beginning does, "no".
std::string_view verdict(const std::string& gbnf, std::string_view text) {
    const Grammar grammar(parse_gbnf(gbnf));
    StateTable table(grammar);
    StateTable::State state = table.start();
    for (const char byte : text) state = table.next(state, uint8_t(byte));
    return state == StateTable::dead ? "no" : table.has_ended(state) ? "yes" : "more";
}

void check(const std::string& gbnf, const std::vector<std::pair<std::string, std::string_view>>& texts) {
    for (const auto& [text, wanted] : texts) {
        CAPTURE(gbnf);
        CAPTURE(text);
        CHECK(verdict(gbnf, text) == wanted);
    }
}

std::string error_of(const std::string& gbnf) {
    try {
        const Grammar grammar(parse_gbnf(gbnf));
        StateTable table(grammar);
        StateTable::State state = table.start();
        for (int i = 0; i < 64; ++i) state = table.next(state, 'a');
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

} // namespace

TEST_CASE("texts, choices, groups and rules") {
    check("root ::= \"ab\" | \"cd\"", {{"", "more"}, {"a", "more"}, {"ab", "yes"}, {"cd", "yes"}, {"ac", "no"}, {"abc", "no"}});
    check("root ::= (\"a\" | x) x\nx ::= \"b\" # the end", {{"ab", "yes"}, {"bb", "yes"}, {"a", "more"}, {"aa", "no"}});
    check("root ::=\n  \"a\" |\n  \"b\" (\n \"c\" # inside\n )\n\n# end\n", {{"a", "yes"}, {"bc", "yes"}, {"b", "more"}});
    check("root ::= \"\"", {{"", "yes"}, {"a", "no"}});
    check("root ::= | \"a\"", {{"", "yes"}, {"a", "yes"}});
    check("root ::= long-name_2\nlong-name_2 ::= \"x\"\r\n", {{"x", "yes"}});
}

TEST_CASE("repetitions") {
    check("root ::= \"a\"*", {{"", "yes"}, {"aaa", "yes"}, {"b", "no"}});
    check("root ::= \"a\"+", {{"", "more"}, {"a", "yes"}, {"aaaa", "yes"}});
    check("root ::= \"a\"? \"b\"", {{"b", "yes"}, {"ab", "yes"}, {"aab", "no"}});
    check("root ::= [a-c]{2}", {{"a", "more"}, {"ab", "yes"}, {"abc", "no"}});
    check("root ::= \"a\"{2,}", {{"a", "more"}, {"aa", "yes"}, {"aaaaaa", "yes"}});
    check("root ::= \"a\"{1,3} \"b\"", {{"b", "no"}, {"ab", "yes"}, {"aaab", "yes"}, {"aaaa", "no"}});
    check("root ::= \"a\"{0,2}", {{"", "yes"}, {"aa", "yes"}, {"aaa", "no"}});
    check("root ::= (\"a\" | \"\")* \"b\"", {{"b", "yes"}, {"aaab", "yes"}}); // repeats nothing without end
    check("root ::= (x*)* \"b\"\nx ::= \"a\"?", {{"b", "yes"}, {"aab", "yes"}, {"c", "no"}});
}

TEST_CASE("character classes are of code points") {
    check("root ::= [a-cx]", {{"b", "yes"}, {"x", "yes"}, {"d", "no"}});
    check("root ::= [^a-c\"]", {{"d", "yes"}, {"a", "no"}, {"\"", "no"}, {"\n", "yes"}, {"é", "yes"}, {"\xC3", "more"}});
    check("root ::= [à-ÿ]", {{"é", "yes"}, {"\xC3\xBF", "yes"}, {"\xC3\x9F", "no"}, {"z", "no"}});
    check("root ::= .", {{"a", "yes"}, {"\n", "yes"}, {"€", "yes"}, {"😀", "yes"}, {"\xFF", "no"}, {"\x80", "no"}});
    check("root ::= .", {{"\xED\xA0\x80", "no"}, {"\xC0\x80", "no"}, {"\xF4\x90\x80\x80", "no"}, {"\xF4\x8F\xBF\xBF", "yes"}});
    check(R"(root ::= [\]\-\^\\\n\x41\u00e9\U0001F600-\U0001F602])", {{"]", "yes"},
                                                                      {"-", "yes"},
                                                                      {"^", "yes"},
                                                                      {"\\", "yes"},
                                                                      {"\n", "yes"},
                                                                      {"A", "yes"},
                                                                      {"é", "yes"},
                                                                      {"😁", "yes"},
                                                                      {"😃", "no"}});
    check(R"(root ::= [a-])", {{"a", "yes"}, {"-", "yes"}, {"b", "no"}});
    check(R"(root ::= "\"\\\t\u20ac")", {{"\"\\\t€", "yes"}});
    // Every code point on each side of a class's bounds, in every length of UTF-8.
    for (const auto& [last, next] :
         {std::pair("\x7F", "\xC2\x80"), {"\xDF\xBF", "\xE0\xA0\x80"}, {"\xEF\xBF\xBF", "\xF0\x90\x80\x80"}}) {
        const std::string gbnf = "root ::= [" + std::string(last) + "-" + next + "]";
        check(gbnf, {{last, "yes"}, {next, "yes"}, {"a", "no"}});
    }
}

TEST_CASE("rules that call themselves") {
    const std::string nested = "root ::= \"(\" root \")\" | \"x\"";
    check(nested, {{"x", "yes"}, {"((x))", "yes"}, {"((x)", "more"}, {"((x)))", "no"}});
    const std::string deep(20000, '(');
    CHECK(verdict(nested, deep + "x" + std::string(20000, ')')) == "yes");
    CHECK(verdict(nested, deep + "x" + std::string(19999, ')')) == "more");
    check("root ::= \"a\" root | \"b\"", {{"aaab", "yes"}, {"aaa", "more"}});
}

TEST_CASE("errors name the line and the column") {
    for (const auto& [gbnf, wanted] : {
             std::pair<std::string, std::string>{"", "no rule named root"},
             {"a ::= \"b\"", "no rule named root"},
             {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: the rule 'root' is defined twice"},
             {"root ::= \"a\" b", "line 1, column 14: the rule 'b' is used but never defined"},
             {"root = \"a\"", "line 1, column 6: expected ::="},
             {"root ::= \"a", "line 1, column 10: the text is never closed"},
             {"root ::= [a", "line 1, column 10: the class is never closed"},
             {"root ::= (\"a\"", "line 1, column 10: the parenthesis is never closed"},
             {"root ::= \"a\")", "line 1, column 13: expected the end of the line"},
             {"root ::= \"a\"{2,1}", "line 1, column 13: the repetition has a maximum below its minimum"},
             {"root ::= \"a\"{x}", "line 1, column 14: expected a number"},
             {"root ::= \"a\"{1", "expected '}'"},
             {"root ::= \"a\"{999999999999}", "more than 100000000 times"},
             {"root ::= *", "expected the end of the line"},
             {"root ::= [z-a]", "the range ends before it begins"},
             {"root ::= []", "line 1, column 10: no character is in this class"},
             {"root ::= \"\\q\"", "line 1, column 12: unknown escape"},
             {"root ::= \"\\xZZ\"", "expected 2 hexadecimal digits"},
             {"root ::= \"\\uD800\"", "not a code point"},
             {"root ::= \"\\U00110000\"", "not a code point"},
             {"root ::= \"a\xFF\"", "line 1, column 12: this is not valid UTF-8"},
             {"root ::= <think", "the token is never closed"},
             {"root ::= <[5]>", "tokens cannot be given by their ids"},
             {"root ::= !<think>", "tokens cannot be excluded"},
             {"?", "line 1, column 1: expected the name of a rule"},
         }) {
        CAPTURE(gbnf);
        CHECK(contains(error_of(gbnf), wanted));
    }
}

TEST_CASE("hostile grammars end with an error") {
    CHECK(contains(error_of("root ::= root \"a\" | \"b\""), "the rule 'root' is left-recursive"));
    CHECK(contains(error_of("root ::= a\na ::= b? a \"x\" | \"y\"\nb ::= \"\""), "the rule 'a' is left-recursive"));
    CHECK(contains(error_of("root ::= \"x\" a\na ::= (b)* \"z\"\nb ::= a | \"c\""), "is left-recursive"));
    CHECK(contains(error_of("root ::= \"a\" root"), "the rule 'root' never ends"));
    CHECK(contains(error_of("root ::= \"a\" | \"b\" x\nx ::= \"c\" y\ny ::= x"), "never ends"));
    CHECK(contains(error_of("root ::= ((\"a\"{1000}){1000}){1000}"), "too large"));
    CHECK(contains(error_of("root ::= \"\"{100000000}"), "too large"));
    CHECK(contains(error_of("root ::= " + std::string(200, '(') + "\"a\"" + std::string(200, ')')), "nested deeper than 100"));
    CHECK(contains(error_of("root ::= \"a\"*********"), "more than 8 repetitions"));
    CHECK(contains(error_of(std::string((1 << 20) + 1, ' ')), "at most 1048576"));
    CHECK(contains(error_of("root ::= \"a\" root \"x\" | \"a\" root \"y\" | \"b\""), "too many ways to read"));
    std::string names = "root ::= r0\n";
    for (int i = 0; i < 70000; ++i) names += "r" + std::to_string(i) + " ::= \"a\"\n";
    CHECK(contains(error_of(names), "more than 65536 rules"));
    // A chain of rules as long as allowed is no problem, in either order.
    std::string chain = "root ::= r0\n", backwards;
    for (int i = 0; i < 20000; ++i) chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
    CHECK(error_of(chain + "r20000 ::= \"a\"*") == "no error");
    // Rules that double at each step stay as small as they are written.
    std::string doubling = "root ::= r0\n";
    for (int i = 0; i < 40; ++i)
        doubling += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " r" + std::to_string(i + 1) + "\n";
    CHECK(error_of(doubling + "r40 ::= \"a\"") == "no error");
}
