// Files that are written whole or not at all.
#include "base/path_text.h"
#include "base/whole_file.h"
#include "tests/support/temporary_file.h"
#include <doctest/doctest.h>
#include <fstream>
#include <iterator>
#include <string>

namespace fs = std::filesystem;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

auto count(const fs::path& directory) { return std::distance(fs::directory_iterator(directory), {}); }

} // namespace

TEST_CASE("a file is replaced, and no draft is left") {
    const tq::test::TemporaryDirectory directory;
    const fs::path path = directory.path() / "file";
    CHECK_FALSE(tq::write_whole_file(path, {bytes_of("first, and longer")}));
    CHECK_FALSE(tq::write_whole_file(path, {bytes_of("sec"), bytes_of("ond")}, ".draft"));
    CHECK(read(path) == "second");
    CHECK(count(directory.path()) == 1);
}

TEST_CASE("of a file that cannot be written nothing is left") {
    const tq::test::TemporaryDirectory directory;
    CHECK(tq::write_whole_file(directory.path() / "missing" / "file", {bytes_of("x")}) == std::errc::no_such_file_or_directory);
    fs::create_directories(directory.path() / "taken" / "by others");
    CHECK(tq::write_whole_file(directory.path() / "taken", {bytes_of("x")})); // a directory cannot be replaced
    CHECK(count(directory.path()) == 1);
}

TEST_CASE("each draft has a name of its own beside the file") {
    const fs::path path = fs::path("directory") / "file", one = tq::draft_beside(path, ".new");
    CHECK(one.parent_path() == path.parent_path());
    CHECK(tq::utf8_text(one.filename()).size() == std::string_view("file.01234567.new").size());
    CHECK(one.extension() == ".new");
    CHECK(one != tq::draft_beside(path, ".new"));
}
