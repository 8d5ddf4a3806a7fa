// A directory that several machines see.
#include "model/prefix/store/directory_store.h"
#include "tests/model/prefix/store/shared_store_test.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <fstream>
#include <thread>

using namespace tq;
using namespace tq::test;
namespace fs = std::filesystem;

namespace {

struct Directory {
    TemporaryDirectory directory;
    fs::path path = directory.path() / "pages";

    Directory() { fs::create_directory(path); }
    std::unique_ptr<SharedStore> open(std::chrono::seconds ttl = 0s) const {
        return open_directory_store(path, store_owner, ttl);
    }
    fs::path own() const { return path / owner_name(store_owner).hex(); }
    fs::path file(uint32_t number) const { return own() / page_entry(number).file_name(); }
    void age(uint32_t number, std::chrono::seconds by) const {
        fs::last_write_time(file(number), fs::file_time_type::clock::now() - by);
    }
    std::chrono::seconds age(uint32_t number) const {
        return std::chrono::duration_cast<std::chrono::seconds>(fs::file_time_type::clock::now() -
                                                                fs::last_write_time(file(number)));
    }
};

} // namespace

TEST_CASE("a directory keeps pages, for all who see it") {
    const Directory directory;
    check_store(*directory.open(), *directory.open(60s));
    CHECK(fs::exists(directory.own() / "owner.json"));
    for (const auto& file : fs::directory_iterator(directory.own())) CHECK_FALSE(contains(file.path().string(), "draft"));
    CHECK(stored_pages(directory.path).at(0).pages.size() ==
          3); // as of the cache on the disk: tq-run cache shows and prunes them
}

TEST_CASE("a page that nobody has used for long is none, and is deleted") {
    const Directory directory;
    const auto bytes = random_bytes(1, 100);
    for (uint32_t i = 1; i <= 4; i++) directory.open()->put(page_entry(i), bytes, false, soon());
    directory.age(1, 3600s);
    directory.age(2, 7300s);
    directory.age(3, 7300s);
    const auto store = directory.open(7200s);
    CHECK(store->get(page_entry(1), 100, soon()) == bytes);
    CHECK(directory.age(1) < 600s); // it was used
    CHECK_FALSE(store->get(page_entry(2), 100, soon()));
    CHECK(store->put(page_entry(2), bytes, false, soon())); // as if there were none; the first one to be put deletes all old ones
    CHECK(store->get(page_entry(2), 100, soon()) == bytes);
    CHECK_FALSE(fs::exists(directory.file(3)));
    CHECK(fs::exists(directory.file(4)));
    directory.age(4, 3600s);
    CHECK_FALSE(store->put(page_entry(4), bytes, false, soon()));
    CHECK(directory.age(4) < 600s); // also by whoever would have written it
    CHECK(directory.open(0s)->get(page_entry(4), 100, soon()) == bytes);
}

TEST_CASE("a directory that is missing, or has something else where a page should be, is a clear error") {
    const Directory directory;
    const auto bytes = random_bytes(1, 100);
    const auto missing = open_directory_store(directory.path / "missing", store_owner, 0s);
    CHECK(contains(problem_of([&] { missing->probe(soon()); }), "is not a directory that can be read: create it, or mount it"));
    CHECK(contains(problem_of([&] { missing->put(page_entry(1), bytes, false, soon()); }), "create it, or mount it"));
    CHECK_FALSE(fs::exists(directory.path / "missing"));
    const auto store = directory.open();
    CHECK_FALSE(store->get(page_entry(1), 100, soon()));
    store->put(page_entry(1), bytes, false, soon());
    fs::create_directory(directory.file(2));
    CHECK(contains(problem_of([&] { store->get(page_entry(2), 100, soon()); }), "is not a file"));
    CHECK(contains(problem_of([&] { store->put(page_entry(2), bytes, false, soon()); }), "cannot write"));
    fs::remove_all(directory.path);
    std::ofstream(directory.path) << "a file";
    CHECK(contains(problem_of([&] { store->put(page_entry(3), bytes, false, soon()); }), "is not a directory"));
    CHECK(contains(problem_of([&] { store->probe(soon()); }), "is not a directory"));
}

TEST_CASE("others write, delete and prune at any time") {
    const Directory directory;
    const auto bytes = random_bytes(1, 20000);
    std::atomic<bool> stop = false;
    std::thread pruner([&] {
        while (!stop) prune_pages(directory.path, 0);
    });
    std::thread writer([&] {
        const auto store = directory.open();
        for (uint32_t i = 0; !stop; i++) problem_of([&] { store->put(page_entry(i % 5), bytes, i % 2 == 0, soon()); });
    });
    const auto store = directory.open(3600s);
    size_t found = 0;
    for (uint32_t i = 0; i < 4000; i++)
        if (const auto page = store->get(page_entry(i % 5), bytes.size(), soon())) {
            REQUIRE(*page == bytes);
            found++;
        }
    stop = true;
    pruner.join();
    writer.join();
    MESSAGE(found << " pages were found");
}
