// Lists and numbers in texts.
#include "base/text.h"
#include <cstdint>
#include <doctest/doctest.h>

using tq::parse_number, tq::split;
using Parts = std::vector<std::string>;

TEST_CASE("a text is divided at each separator, and empty parts are kept") {
    CHECK(split("a,b", ",") == Parts{"a", "b"});
    CHECK(split("a,,b/", ",/") == Parts{"a", "", "b", ""});
    CHECK(split(",", ",") == Parts{"", ""});
    CHECK(split("a b", ",") == Parts{"a b"});
    CHECK(split("", ",") == Parts{""});
}

TEST_CASE("a number is all of a text, and fits its type") {
    uint8_t byte = 7;
    for (const char* text : {"", " 1", "1 ", "+1", "-1", "256", "0x1", "1,2", "ff"}) {
        CAPTURE(text);
        CHECK_FALSE(parse_number(text, byte));
        CHECK(byte == 7);
    }
    CHECK((parse_number("255", byte) && byte == 255));
    CHECK((parse_number("fE", byte, 16) && byte == 0xfe));
    int64_t whole = 0;
    CHECK((parse_number("-12", whole) && whole == -12));
    double number = 0;
    CHECK((parse_number("0.25", number) && number == 0.25));
    CHECK_FALSE(parse_number("0.25x", number));
}
