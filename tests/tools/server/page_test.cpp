// The files of the page at /: all of them are built in whole, and they refer only to one another.
#include "tools/server/page.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

using namespace tq::server;

namespace {

const std::filesystem::path directory = std::filesystem::path(TQ_SOURCE_DIR) / "tools/server/page";

std::string read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string name_of(const PageFile& file) { return file.path == "/" ? "index.html" : std::string(file.path.substr(1)); }

// The texts that the expression's first group matches in a file.
std::set<std::string> matches(const PageFile& file, const char* expression) {
    const std::string text(file.bytes);
    const std::regex pattern(expression);
    std::set<std::string> found;
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) found.insert((*it)[1]);
    return found;
}

bool policy_has(std::string_view directive) { return page_security_policy.find(directive) != std::string_view::npos; }

} // namespace

TEST_CASE("every file of the page is built in whole") {
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
        const std::string name = entry.path().filename().string();
        CAPTURE(name);
        const PageFile* file = find_page_file(name == "index.html" ? "/" : "/" + name);
        REQUIRE(file != nullptr);
        CHECK(std::string(file->bytes) == read(entry.path()));
        files++;
    }
    CHECK(files == page_files().size());
    CHECK(files > 10);
}

TEST_CASE("each file has a type that browsers run, and a checksum of its own") {
    std::set<std::string_view> etags;
    for (const PageFile& file : page_files()) {
        CAPTURE(file.path);
        const std::string extension = std::filesystem::path(name_of(file)).extension().string();
        const std::string_view expected = extension == ".html"  ? "text/html; charset=utf-8"
                                          : extension == ".css" ? "text/css; charset=utf-8"
                                          : extension == ".js"  ? "text/javascript; charset=utf-8"
                                                                : "image/svg+xml; charset=utf-8";
        CHECK(file.type == expected);
        CHECK(file.etag.size() == 34);
        CHECK(file.etag.front() == '"');
        CHECK(file.etag.back() == '"');
        CHECK(etags.insert(file.etag).second);
    }
}

TEST_CASE("only paths of files are found") {
    CHECK(find_page_file("/index.html") == find_page_file("/"));
    for (const char* path :
         {"", "//", "/..", "/main", "main.js", "/main.js?x", "/page/main.js", "/../page.h", "/MAIN.JS", "/main.js/"}) {
        CAPTURE(path);
        CHECK(find_page_file(path) == nullptr);
    }
}

TEST_CASE("the page refers to files that there are, and to no other host") {
    std::set<std::string> used = {"index.html"};
    for (const PageFile& file : page_files()) {
        CAPTURE(file.path);
        const char* references = file.path == "/" ? R"re((?:src|href)="([^"#][^"]*)")re" : R"re((?:from|import) '([^']*)')re";
        for (std::string reference : matches(file, references)) {
            CAPTURE(reference);
            if (reference.starts_with("./")) reference.erase(0, 2);
            CHECK(find_page_file("/" + reference) != nullptr);
            used.insert(reference);
        }
        // Names of XML are no addresses.
        for (const std::string& host : matches(file, R"re(https?://([A-Za-z0-9.-]+))re")) CHECK(host == "www.w3.org");
        CHECK(matches(file, R"re((@import|url\())re").empty());
    }
    CHECK(used.size() == page_files().size()); // none is built in for nothing
}

TEST_CASE("scripts make no HTML and no code from text, and styles and scripts are files") {
    for (const PageFile& file : page_files()) {
        CAPTURE(file.path);
        CHECK(matches(file, R"re((innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser))re")
                  .empty());
        if (file.path == "/") CHECK(matches(file, R"re((<style|\sstyle=|\son[a-z]+=|<script>|javascript:))re").empty());
        CHECK(std::ranges::count(file.bytes, '\n') < 400);
    }
    for (const char* directive : {"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
                                  "img-src 'self' data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"}) {
        CAPTURE(directive);
        CHECK(policy_has(directive));
    }
    CHECK(!policy_has("unsafe"));
}
