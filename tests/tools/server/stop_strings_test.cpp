// Stop strings in texts that come in any parts.
#include "tools/server/stop_strings.h"
#include <doctest/doctest.h>
#include <random>

using namespace tq::server;

namespace {

struct Result {
    std::string shown;
    std::optional<std::string> found;
    bool operator==(const Result&) const = default;
};

Result read(const std::vector<std::string>& stops, const std::vector<std::string>& parts) {
    StopStrings strings(stops);
    Result result;
    for (const std::string& part : parts) result.shown += strings.push(part);
    result.shown += strings.finish();
    result.found = strings.found();
    return result;
}

} // namespace

TEST_CASE("a stop string is found across the borders of tokens, and is not shown") {
    CHECK(read({"END"}, {"one E", "N", "D two"}) == Result{"one ", "END"});
    CHECK(read({"END"}, {"one E", "N", "O"}) == Result{"one ENO", {}});
    CHECK(read({"END"}, {"END"}) == Result{"", "END"});
    CHECK(read({"aab"}, {"a", "a", "a", "b", "c"}) == Result{"a", "aab"});
    CHECK(read({}, {"a", "b"}) == Result{"ab", {}});
}

TEST_CASE("only the longest end that may begin a stop string is held back") {
    StopStrings strings({"\n\nUser", "</s>"});
    CHECK(strings.push("text\n") == "text");
    CHECK(strings.push("\n") == "");
    CHECK(strings.push("\n") == "\n");
    CHECK(strings.push("more<") == "\n\nmore");
    CHECK(strings.push("/s") == "");
    CHECK(strings.push(">x") == "");
    CHECK(strings.found() == "</s>");
    CHECK(strings.push("y") == "");
    CHECK(strings.finish() == "");
}

TEST_CASE("the result does not depend on how the text is divided") {
    std::mt19937 random(3);
    for (int round = 0; round < 3000; ++round) {
        const auto text = [&](size_t max) {
            std::string out;
            for (size_t n = 1 + random() % max; n > 0; --n) out += char('a' + random() % 2);
            return out;
        };
        std::vector<std::string> stops{text(6), text(4), text(8)}, parts, characters;
        const std::string whole = text(24);
        for (size_t at = 0; at < whole.size();) {
            parts.push_back(whole.substr(at, 1 + random() % 5));
            at += parts.back().size();
        }
        for (const char c : whole) characters.emplace_back(1, c);
        CAPTURE(whole);
        const Result expected = read(stops, {whole});
        REQUIRE(read(stops, parts) == expected);
        REQUIRE(read(stops, characters) == expected);
        if (expected.found) REQUIRE(whole.starts_with(expected.shown + *expected.found));
    }
}
