// Pages on the disk: what a killed writer, another process, damage and a full disk leave.
#include "base/error.h"
#include "model/cache.h"
#include "model/prefix/page_file.h"
#include "model/prefix/page_store.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <fstream>
#include <iterator>
#include <random>
#ifndef _WIN32
#include <csignal>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

using namespace tq;
using tq::test::contains;

namespace {

namespace fs = std::filesystem;

const OwnerTexts owner{{"fingerprint", "1"}, {"model", "a model"}};
const PageLayout layout(2, {{3, 1}, {2, 0}}); // 44 bytes for each token

std::vector<uint32_t> ids_of(uint32_t number, uint32_t count = page_tokens) {
    std::mt19937 random(number);
    std::vector<uint32_t> ids(count);
    for (uint32_t& id : ids) id = uint32_t(random() % 1000);
    return ids;
}
PageHead head_of(uint32_t number, PageName parent = owner_name(owner), uint32_t count = page_tokens) {
    return make_page_head(owner_name(owner), parent, ids_of(number, count), count);
}
std::vector<std::byte> content_of(const PageHead& head) {
    std::vector<std::byte> content(layout.bytes(head.tokens()));
    for (size_t i = 0; i < content.size(); i++) content[i] = std::byte(head.ids[i % head.tokens()] + i / 7);
    return content;
}
bool is_kept(PageStore& store, const PageHead& head) { return store.read(head) == content_of(head); }

struct Disk {
    test::TemporaryDirectory directory;
    PageStore::Options options{directory.path() / "prefix", 1 << 30};

    std::unique_ptr<PageStore> open() const { return std::make_unique<PageStore>(options, owner, layout); }
    fs::path own() const { return options.directory / owner_name(owner).hex(); }
    fs::path file(const PageHead& head) const { return own() / entry_of(head).file_name(); }
    size_t files() const { return size_t(std::distance(fs::directory_iterator(own()), {})); }
};

std::vector<PageHead> following(PageStore& store, PageName parent, std::span<const uint32_t> ids) {
    return store.following(parent, ids, [](const PageName&) { return true; });
}

} // namespace

TEST_CASE("pages outlive the process, and are found by their parent and their first ids") {
    const Disk disk;
    const PageHead first = head_of(1), second = head_of(2, first.name), other = head_of(3), few = head_of(4, first.name, 10);
    for (const PageHead* head : {&first, &second, &other, &few}) {
        const auto store = disk.open();
        CHECK_FALSE(store->has(*head));
        CHECK(store->write(*head, content_of(*head), true));
        CHECK(store->has(*head));
    }
    CHECK(disk.files() == 5); // with owner.json
    const auto store = disk.open();
    const auto heads = following(*store, owner_name(owner), first.ids);
    REQUIRE(heads.size() == 1);
    CHECK((heads[0].name == first.name && heads[0].ids == first.ids && heads[0].cold == 256));
    CHECK(following(*store, owner_name(owner), std::span(first.ids).first(32)).size() == 1);
    CHECK(following(*store, first.name, second.ids).size() == 1);
    CHECK(following(*store, first.name, few.ids).at(0).tokens() == 10);
    CHECK(following(*store, second.name, second.ids).empty());
    CHECK(store->following(owner_name(owner), first.ids, [](const PageName&) { return false; }).empty());
    for (const PageHead* head : {&first, &second, &other, &few}) CHECK(is_kept(*store, *head));
    store->remove(few);
    CHECK_FALSE(store->has(few));
    CHECK(disk.files() == 4);
    CHECK(store->take_warnings().empty());
}

TEST_CASE("another owner's pages are not found") {
    const Disk disk;
    disk.open()->write(head_of(1), content_of(head_of(1)), true);
    OwnerTexts other = owner;
    other["fingerprint"] = "2";
    PageStore store(disk.options, other, layout);
    CHECK(following(store, owner_name(other), head_of(1).ids).empty());
    OwnerTexts renamed = owner;
    renamed["model"] = "the same by another name";
    PageStore same(disk.options, renamed, layout);
    CHECK(following(same, owner_name(owner), head_of(1).ids).size() == 1);
}

TEST_CASE("a damaged page is a miss, reported once, and deleted") {
    std::mt19937 random(2);
    const PageHead head = head_of(1);
    for (int i = 0; i < 60; i++) {
        const Disk disk;
        disk.open()->write(head, content_of(head), true);
        const size_t size = fs::file_size(disk.file(head)), at = i < 30 ? random() % 1200 : random() % size;
        std::fstream file(disk.file(head), std::ios::binary | std::ios::in | std::ios::out);
        file.seekg(std::streamoff(at));
        const int byte = file.get();
        file.seekp(std::streamoff(at));
        file.put(char(byte ^ (1 << random() % 8)));
        file.close();
        if (i % 3 == 0) fs::resize_file(disk.file(head), at);
        const auto store = disk.open();
        CAPTURE(at);
        following(*store, owner_name(owner), head.ids);
        CHECK_FALSE(store->read(head));
        const auto warnings = store->take_warnings();
        REQUIRE(warnings.size() == 1);
        CHECK(contains(warnings[0], "a damaged page of the prefix cache"));
        CHECK_FALSE(fs::exists(disk.file(head)));
        CHECK(following(*store, owner_name(owner), head.ids).empty());
        CHECK_FALSE(store->read(head));
        CHECK(store->take_warnings().empty());
    }
}

TEST_CASE("a page that is larger than it can be is a miss, reported once, and deleted") {
    const Disk disk;
    const PageHead head = head_of(1);
    disk.open()->write(head, content_of(head), true);
#ifdef _WIN32 // gcc's library resizes files to 2 GiB at most
    fs::resize_file(disk.file(head), max_page_bytes + 1);
#else
    fs::resize_file(disk.file(head), uint64_t(1) << 42); // 4 TiB, but the disk has only the page
#endif
    const uint64_t limit = default_disk_bytes(disk.options.directory);
    CHECK(limit <= fs::space(disk.options.directory).capacity / 10);
    CHECK(default_disk_bytes("a/relative/name/that/is/not/there") > 0);
    const auto store = disk.open();
    CHECK(following(*store, owner_name(owner), head.ids).size() == 1);
    CHECK_FALSE(store->read(head));
    CHECK(contains(store->take_warnings().at(0), "a damaged page of the prefix cache"));
    CHECK_FALSE(fs::exists(disk.file(head)));
}

#ifndef _WIN32
TEST_CASE("what is no file is no page, though it has a page's name: it is not opened, listed or followed") {
    const test::TemporaryDirectory elsewhere;
    const PageHead head = head_of(1);
    for (const int kind : {0, 1, 2}) {
        CAPTURE(kind);
        const Disk disk;
        disk.open()->write(head, content_of(head), true);
        const fs::path page = disk.file(head), moved = elsewhere.path() / std::to_string(kind);
        fs::rename(page, moved);
        if (kind == 0) REQUIRE(::mkfifo(page.c_str(), 0600) == 0);
        if (kind == 1) fs::create_directory(page);
        if (kind == 2) fs::create_symlink(moved, page);
        const auto store = disk.open();
        CHECK(following(*store, owner_name(owner), head.ids).empty());
        if (kind != 2) CHECK_FALSE(store->read(head));
        CHECK(stored_pages(disk.options.directory).at(0).pages.empty());
        CHECK(store->take_warnings().empty());
        CHECK(fs::exists(fs::symlink_status(page)));
        for (const PageHead& one : {head, head_of(2)}) store->write(one, content_of(one), true); // nothing keeps others out
        store->flush();
        CHECK(store->read(head_of(2)));
        CHECK(store->read(head).has_value() == (kind != 1)); // a directory stays
        CHECK(store->take_warnings().empty());
    }
}

TEST_CASE("pages behind a link to a directory are not the cache's: nothing deletes them") {
    const Disk disk, other;
    const PageHead head = head_of(1);
    other.open()->write(head, content_of(head), true);
    fs::create_directories(disk.options.directory);
    fs::create_directory_symlink(other.own(), disk.own());
    CHECK(stored_pages(disk.options.directory).empty());
    CHECK(prune_pages(disk.options.directory, 0) == 0);
    CHECK(fs::exists(other.file(head)));
    const auto store = disk.open(); // nor is any written there
    store->write(head_of(2), content_of(head_of(2)), true);
    CHECK(contains(store->take_warnings().at(0), "is a link, which is not followed"));
    CHECK(other.files() == 2); // with owner.json
}
#endif

TEST_CASE("a hash alone is no hit: the ids are compared") {
    const Disk disk;
    const PageHead head = head_of(1), other = head_of(2);
    disk.open()->write(head, content_of(head), true);
    fs::rename(disk.file(head), disk.file(other)); // as if both had the same name
    const auto store = disk.open();
    CHECK_FALSE(store->read(other));
    CHECK(contains(store->take_warnings().at(0), "it is another page"));
}

TEST_CASE("two processes share a directory, and one misses what the other deleted") {
    const Disk disk;
    const auto a = disk.open(), b = disk.open();
    for (uint32_t i = 0; i < 20; i++) (i % 2 ? a : b)->write(head_of(i), content_of(head_of(i)), true);
    a->write(head_of(50), content_of(head_of(50)), true); // both the same
    b->write(head_of(50), content_of(head_of(50)), true);
    a->flush();
    b->flush();
    for (PageStore* store : {a.get(), b.get()})
        for (const uint32_t i : {0u, 1u, 18u, 19u, 50u}) {
            CHECK(following(*store, owner_name(owner), head_of(i).ids).size() == 1);
            CHECK(is_kept(*store, head_of(i)));
        }
    prune_pages(disk.options.directory, 0);
    CHECK_FALSE(a->read(head_of(1)));
    CHECK(following(*b, owner_name(owner), head_of(0).ids).empty());
    CHECK(a->take_warnings().empty());
    CHECK(b->take_warnings().empty());
}

TEST_CASE("within the limit those used last stay, and no page without those before it") {
    Disk disk;
    const uint64_t page = 1112 + layout.bytes(page_tokens);
    disk.options.max_bytes = 10 * page;
    std::vector<PageHead> chain;
    {
        const auto store = disk.open();
        for (uint32_t i = 0; i < 5; i++) {
            chain.push_back(head_of(i, i == 0 ? owner_name(owner) : chain.back().name));
            store->write(chain.back(), content_of(chain.back()), true);
        }
        store->flush();
        for (const PageHead& head : chain) CHECK(is_kept(*store, head));
        for (uint32_t i = 100; i < 120; i++) {
            if (i % 3 == 0) CHECK(is_kept(*store, chain[4])); // only the last is used
            store->write(head_of(i), content_of(head_of(i)), true);
            store->flush();
            const auto now = stored_pages(disk.options.directory);
            CHECK(now.at(0).bytes() <= disk.options.max_bytes);
        }
    }
    const auto store = disk.open();
    for (const PageHead& head : chain) CHECK(is_kept(*store, head));
    CHECK(is_kept(*store, head_of(119)));
    CHECK_FALSE(store->read(head_of(100)));
    disk.options.max_bytes = 100; // less than a page
    disk.open()->write(head_of(200), content_of(head_of(200)), true);
    CHECK_FALSE(store->read(head_of(200)));
}

TEST_CASE("deleting goes from the last pages of sequences to the first, and takes leftovers along") {
    const Disk disk;
    const PageHead first = head_of(1), second = head_of(2, first.name);
    {
        const auto store = disk.open();
        store->write(first, content_of(first), true);
        store->write(second, content_of(second), true);
    }
    fs::last_write_time(disk.file(first), fs::file_time_type::clock::now() - std::chrono::hours(9));
    const fs::path draft = disk.own() / (entry_of(first).file_name() + ".00000000.draft");
    std::ofstream(draft) << "half";
    CHECK(prune_pages(disk.options.directory, fs::file_size(disk.file(first))) == fs::file_size(disk.file(first)));
    CHECK(fs::exists(disk.file(first)));
    CHECK_FALSE(fs::exists(disk.file(second)));
    CHECK(fs::exists(draft)); // of a writer that may be alive
    fs::last_write_time(draft, fs::file_time_type::clock::now() - std::chrono::hours(1));
    CHECK(prune_pages(disk.options.directory, 0) == 0);
    CHECK(prune_pages(disk.options.directory, 0) == 0);
    CHECK_FALSE(fs::exists(disk.own()));
}

TEST_CASE("a directory that cannot be looked at is a warning in plain words") {
    Disk disk;
    disk.options.directory /= std::string(300, 'x');
    const auto store = disk.open();
    const std::string warning = store->take_warnings().at(0);
    CHECK(contains(warning, "the prefix cache is not kept on the disk: cannot create the directory"));
    CHECK(!contains(warning, "filesystem error"));
}

TEST_CASE("a directory that cannot be made is a warning, and nothing is stored") {
    const Disk disk;
    std::ofstream(disk.options.directory) << "a file";
    const auto store = disk.open();
    CHECK(contains(store->take_warnings().at(0), "the prefix cache is not kept on the disk: cannot create the directory"));
    CHECK(store->write(head_of(1), content_of(head_of(1)), true));
    CHECK_FALSE(store->read(head_of(1)));
    CHECK(following(*store, owner_name(owner), head_of(1).ids).empty());
    CHECK(store->take_warnings().empty());
}

#ifndef _WIN32
namespace {

// Runs `body` in a child process, which is killed after kill_after_us unless that is negative. Returns its exit status, or 128
// and more.
template <class Body> int in_child(const Body& body, int kill_after_us = -1) {
    const pid_t child = fork();
    if (child == 0) {
        body();
        _exit(0);
    }
    if (kill_after_us >= 0) {
        usleep(useconds_t(kill_after_us));
        kill(child, SIGKILL);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace

TEST_CASE("a writer that is killed at any moment leaves whole pages") {
    const Disk disk;
    std::mt19937 random(7);
    for (int round = 0; round < 40; round++) {
        in_child(
            [&] {
                const auto store = disk.open();
                PageName parent = owner_name(owner);
                for (uint32_t i = 0; i < 200; i++) {
                    const PageHead head = head_of(i, parent);
                    store->write(head, content_of(head), true);
                    parent = head.name;
                }
            },
            int(random() % 20000));
        const auto store = disk.open();
        PageName parent = owner_name(owner);
        for (uint32_t i = 0; i < 200; i++) {
            const PageHead head = head_of(i, parent);
            if (!fs::exists(disk.file(head))) break;
            REQUIRE(is_kept(*store, head));
            parent = head.name;
        }
        const std::vector<StoredOwner> owners = stored_pages(disk.options.directory);
        for (const StoredPage& page : owners.at(0).pages) REQUIRE(page.bytes == 1112 + layout.bytes(page_tokens));
        CHECK(store->take_warnings().empty());
        if (round % 4 == 3) prune_pages(disk.options.directory, 0);
    }
}

TEST_CASE("a full disk is one warning, and what was stored stays") {
    const Disk disk;
    const PageHead first = head_of(1), second = head_of(2);
    disk.open()->write(first, content_of(first), true);
    const int status = in_child([&] {
        signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{4096, 4096};
        setrlimit(RLIMIT_FSIZE, &limit);
        const auto store = disk.open();
        store->write(second, content_of(second), true);
        store->flush();
        const auto warnings = store->take_warnings();
        const bool warned = warnings.size() == 1 && contains(warnings[0], "stores no more pages in this run: cannot write");
        const bool quiet = store->write(head_of(3), content_of(head_of(3)), true) && store->take_warnings().empty();
        _exit(warned && quiet && is_kept(*store, first) ? 0 : 1);
    });
    CHECK(status == 0);
    CHECK(disk.files() == 2); // no draft is left
    CHECK(is_kept(*disk.open(), first));
}
#endif
