// Addresses of shared stores, and files with keys.
#include "base/error.h"
#include "model/prefix/store/hmac.h"
#include "model/prefix/store/store_address.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>

using namespace tq;
using test::contains;

namespace {

std::string problem_of(const std::string& text) {
    try {
        parse_store_address(text);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("an address is a directory or a Redis") {
    CHECK(parse_store_address("/mnt/pages").directory == "/mnt/pages");
    CHECK(parse_store_address("pages:1").directory == "pages:1");
    const auto plain = parse_store_address("redis://store");
    REQUIRE(plain.redis);
    CHECK(plain.redis->host == "store");
    CHECK(plain.redis->port == 6379);
    CHECK(plain.redis->database == 0);
    CHECK((plain.redis->user.empty() && plain.redis->password.empty()));
    const auto full = parse_store_address("redis://me:se%63re%25t@:@[::1]:7000/3");
    REQUIRE(full.redis);
    CHECK(full.redis->host == "::1");
    CHECK(full.redis->port == 7000);
    CHECK(full.redis->user == "me");
    CHECK(full.redis->password == "secre%t@:");
    CHECK(full.redis->database == 3);
    CHECK(full.text() == "redis://::1:7000/3");
    CHECK(parse_store_address("redis://:key@store:1/").redis->password == "key");
    CHECK(parse_store_address("redis://:key@store:1/").redis->user.empty());
}

TEST_CASE("other addresses are refused, and no password is shown") {
    CHECK(contains(problem_of(""), "empty address"));
    CHECK(contains(problem_of("rediss://store"), "stunnel"));
    CHECK(contains(problem_of("https://store/x"), "https:// is not supported"));
    for (const char* text : {"redis://", "redis://:secret@", "redis://:secret@host:port", "redis://:secret@host:0",
                             "redis://:secret@host:70000", "redis://:secret@host/db", "redis://:secret@host/-1",
                             "redis://:secret@[::1", "redis://:secret@host:1:2", "redis://secret@host", "redis://:secret%4@host",
                             "redis://:secret%zz@host", "redis://:secret%@host", "redis://:secret@/0"}) {
        CAPTURE(text);
        CHECK_FALSE(problem_of(text).empty());
        CHECK_FALSE(contains(problem_of(text), "secret"));
    }
}

TEST_CASE("a key is the text of a file that not everybody may use") {
    namespace fs = std::filesystem;
    const auto problem = [](const fs::path& path) -> std::string {
        try {
            read_page_key(path);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    const auto make = [](const std::string& text) {
        auto file = std::make_unique<test::TemporaryFile>(text);
        fs::permissions(file->path(), fs::perms::owner_read | fs::perms::owner_write);
        return file;
    };
    CHECK(read_page_key(make(" 0123456789abcdef\r\n")->path()) == "0123456789abcdef");
    CHECK(read_page_key(make(std::string(4096, 'k'))->path()).size() == 4096);
    CHECK(contains(problem(make("0123456789abcde\n")->path()), "has 15 bytes, but a key has 16 to 4096"));
    CHECK(contains(problem(make(std::string(4097, 'k'))->path()), "bytes, but a key has"));
    CHECK(contains(problem(make(" \n")->path()), "has 0 bytes"));
    CHECK(contains(problem(fs::temp_directory_path()), "is not a file that can be read"));
    CHECK(contains(problem("/nonexistent/key"), "is not a file that can be read"));
#ifndef _WIN32
    const auto open = make("0123456789abcdef");
    fs::permissions(open->path(), fs::perms::others_read, fs::perm_options::add);
    CHECK(contains(problem(open->path()), "anybody may use the key file"));
#endif
}
