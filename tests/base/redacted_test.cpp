// Secrets in environment variables are not shown, and everything else is as it was.
#include "base/redacted.h"
#include <doctest/doctest.h>

using tq::redacted;

TEST_CASE("a variable whose name says that it is a secret shows nothing of its value") {
    for (const char* name : {"TQ_RUN_API_KEY", "HF_TOKEN", "TQ_SECRET", "TQ_Password_File", "TQ_PASSWD", "TQ_CREDENTIALS"}) {
        CAPTURE(name);
        CHECK(redacted(name, "sk-0123") == "***");
        CHECK(redacted(name, "") == "");
    }
}

TEST_CASE("an address shows no user and no password, whatever characters they have") {
    const auto shown = [](const char* value) { return redacted("TQ_CACHE_SHARED", value); };
    CHECK(shown("redis://:hunter2@store:6379/1") == "redis://***@store:6379/1");
    CHECK(shown("redis://me:hunter2@store") == "redis://***@store");
    CHECK(shown("redis://:a@b/c:d@store/0") == "redis://***@store/0");
    CHECK(shown("see redis://:one@a, https://two@b and http://c") == "see redis://***@a, https://***@b and http://c");
    CHECK(shown("redis://:cut off by a mistake@") == "redis://***@");
    CHECK(shown("://@") == "://***@");
}

TEST_CASE("other values stay as they are") {
    for (const char* value : {"", "redis://store:6379", "/usr/share/vulkan/icd.d/a@b.json", "http://", "://", ":", "0"})
        CHECK(redacted("TQ_CACHE_SHARED", value) == value);
}
