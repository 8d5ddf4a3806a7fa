// A shared store in memory that can be slow, dead, full and worse.
#pragma once
#include "base/error.h"
#include "model/prefix/shared_pages.h"
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

namespace tq::test {

struct Shelf {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, std::vector<std::byte>> pages; // by the names of their files
    std::atomic<int> read_delay_ms = 0, write_delay_ms = 0, probe_delay_ms = 0;
    std::atomic<bool> dead = false, full = false;
    std::atomic<bool> hangs = false; // keeps no deadline
    std::atomic<int> gets = 0, puts = 0, probes = 0;
    std::atomic<uint64_t> connections = 1;

    std::vector<std::byte>& at(const PageHead& head) { return pages.at(entry_of(head).file_name()); }
    bool has(const PageHead& head) {
        const std::lock_guard lock(mutex);
        return pages.contains(entry_of(head).file_name());
    }
    void release() {
        hangs = false;
        changed.notify_all();
    }
    void write_at_once() {
        const std::lock_guard lock(mutex);
        write_delay_ms = 0;
        changed.notify_all();
    }
};

class FakeStore final : public SharedStore {
  public:
    explicit FakeStore(std::shared_ptr<Shelf> shelf) : shelf_(std::move(shelf)) {}

    std::optional<std::vector<std::byte>> get(const PageEntry& page, size_t, Clock::time_point deadline) override {
        shelf_->gets++;
        answer(shelf_->read_delay_ms, deadline);
        const std::lock_guard lock(shelf_->mutex);
        const auto found = shelf_->pages.find(page.file_name());
        return found == shelf_->pages.end() ? std::nullopt : std::optional(found->second);
    }
    bool put(const PageEntry& page, std::span<const std::byte> bytes, bool replace, Clock::time_point deadline) override {
        shelf_->puts++;
        answer(shelf_->write_delay_ms, deadline);
        if (shelf_->full) fail("the store is full");
        const std::lock_guard lock(shelf_->mutex);
        std::vector<std::byte> copy(bytes.begin(), bytes.end());
        if (replace)
            shelf_->pages[page.file_name()] = std::move(copy);
        else
            return shelf_->pages.emplace(page.file_name(), std::move(copy)).second;
        return true;
    }
    void probe(Clock::time_point deadline) override {
        shelf_->probes++;
        answer(shelf_->probe_delay_ms, deadline);
    }
    uint64_t connections() const override { return shelf_->connections; }

  private:
    void answer(const std::atomic<int>& delay_ms, Clock::time_point deadline) {
        std::unique_lock lock(shelf_->mutex);
        shelf_->changed.wait(lock, [&] { return !shelf_->hangs; });
        if (shelf_->dead) fail("the store is dead");
        const auto began = Clock::now();
        const auto ready = [&] { return began + std::chrono::milliseconds(delay_ms); }; // a delay may end early
        while (Clock::now() < std::min(ready(), deadline)) shelf_->changed.wait_until(lock, std::min(ready(), deadline));
        if (ready() > deadline) fail("the store did not answer in time");
    }

    const std::shared_ptr<Shelf> shelf_;
};

// With patience for pages: a busy machine may stop a thread for longer than a prompt's page is worth.
inline SharedPages::Options on(const std::shared_ptr<Shelf>& shelf) {
    SharedPages::Options options;
    options.first_page_time = std::chrono::seconds(10);
    options.open = [shelf] { return std::make_unique<FakeStore>(shelf); };
    options.place = "a shelf";
    return options;
}

} // namespace tq::test
