// Mapped files, also when one is truncated while it is mapped.
#include "base/error.h"
#include "base/mapped_file.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>

#ifndef _WIN32
#include <csignal>
#include <functional>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

using namespace tq;
using namespace tq::test;

TEST_CASE("a mapping holds the file's bytes, moved or not") {
    const TemporaryFile file("some bytes"), other("more of them");
    MappedFile a(file.path()), b(other.path());
    CHECK(a.bytes().size() == 10);
    a = std::move(b);
    MappedFile c(std::move(a));
    CHECK(std::string(reinterpret_cast<const char*>(c.bytes().data()), c.bytes().size()) == "more of them");
    CHECK(!lost_mapped_file());
    check_mapped_files();
}

TEST_CASE("what cannot be mapped is an Error that says why") {
    const TemporaryFile empty;
    const TemporaryDirectory directory;
    CHECK_THROWS_AS(MappedFile(empty.path()), Error);
    CHECK_THROWS_AS(MappedFile(directory.path()), Error);
    CHECK_THROWS_AS(MappedFile(directory.path() / "nothing"), Error);
}

#ifndef _WIN32
namespace {

// The exit status of `body` in a new process, 128 + n if signal n ended it: a lost file stays lost in a process.
int in_child(const std::function<int()>& body) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::alarm(60);
        ::_exit(body());
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

const size_t page = size_t(::sysconf(_SC_PAGESIZE));

// Reads a page after the end of a file, mapped without MappedFile.
int read_beyond_the_end(const std::filesystem::path& path) {
    std::FILE* const opened = std::fopen(path.c_str(), "rb");
    void* const bytes = ::mmap(nullptr, 2 * page, PROT_READ, MAP_PRIVATE, ::fileno(opened), 0);
    return static_cast<const volatile char*>(bytes)[page];
}

} // namespace

TEST_CASE("the lost end of a file reads as zeros, and the first check says which file it was") {
    const TemporaryFile file(std::string(5 * page, 'x')), whole(std::string(page, 'y'));
    const int status = in_child([&] {
        const MappedFile other(whole.path()); // stays unchanged
        {
            const MappedFile mapped(file.path());
            const auto* const at = reinterpret_cast<const volatile char*>(mapped.bytes().data());
            if (at[4 * page] != 'x' || lost_mapped_file()) return 1;
            std::filesystem::resize_file(file.path(), 2 * page);
            if (at[2 * page - 1] != 'x' || lost_mapped_file()) return 2; // existing bytes can still be read
            if (at[4 * page] != 0 || at[2 * page] != 0 || at[5 * page - 1] != 0 || at[0] != 'x') return 3;
        }
        const MappedFile again(whole.path()); // must not take the region of the file that is still reported as lost
        const std::string said = lost_mapped_file().value_or("");
        if (!contains(said, file.path().string())) return 4;
        if (!contains(said, std::to_string(2 * page) + " of its " + std::to_string(5 * page) + " bytes are left")) return 5;
        try {
            check_mapped_files();
            return 6;
        } catch (const Error&) {
        }
        return char(other.bytes()[page - 1]) == 'y' ? 0 : 7;
    });
    CHECK(status == 0);
}

TEST_CASE("SIGBUS that is of no mapped file ends the program as ever") {
    std::signal(SIGBUS, SIG_DFL); // whatever a sanitizer has put there; before the first mapping of the children
    const TemporaryFile file("x");
    const auto mapping_first = [&](const std::function<int()>& then) {
        return in_child([&] {
            const MappedFile mapped(file.path());
            return then();
        });
    };
    CHECK(mapping_first([] { return 0; }) == 0);
    CHECK(mapping_first([] { return std::raise(SIGBUS); }) == 128 + SIGBUS);
    CHECK(mapping_first([&] { return read_beyond_the_end(file.path()); }) == 128 + SIGBUS);
}
#endif
