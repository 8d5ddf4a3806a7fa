// One owner's pages and states on the disk, in the directory of all owners (page_directory.h). A thread writes them, each to a
// draft that is renamed, so a process that is killed loses at most the page that it is writing.
#pragma once
#include "model/prefix/page_directory.h"
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

namespace tq {

class PageStore {
  public:
    struct Options {
        std::filesystem::path directory; // of all owners
        uint64_t max_bytes;              // of the pages of all owners
    };

    // Disk errors are reported as warnings and never thrown. max_state_bytes: maximum of a state's content.
    PageStore(const Options& options, const OwnerTexts& owner, const PageLayout& layout, uint64_t max_state_bytes = 0);
    ~PageStore(); // writes what is waiting
    PageStore(const PageStore&) = delete;
    PageStore& operator=(const PageStore&) = delete;

    // Returns the heads of stored pages that `is_new` accepts, that follow `parent`, and that begin as `ids` do, by at least 32
    // ids or all of their own.
    std::vector<PageHead> following(PageName parent, std::span<const uint32_t> ids,
                                    const std::function<bool(const PageName&)>& is_new);
    // Whether the page or the state is stored, as of the last following(), or waits to be written.
    bool has(const PageHead& head);
    // Returns its content, when the file has this head and is not damaged. A damaged file is reported and deleted.
    std::optional<std::vector<std::byte>> read(const PageHead& head);

    // Queues the content to be written. Returns false if too much waits already; with `wait` it waits until there is room.
    bool write(const PageHead& head, std::vector<std::byte> content, bool wait);
    void remove(const PageHead& head);
    // Reports the file and deletes it, as read() does with a damaged one. For content that is not valid.
    void report_damaged(const PageHead& head, const std::string& reason);
    void flush(); // returns when nothing waits

    std::vector<std::string> take_warnings(); // sentences for people, each once

  private:
    struct Job {
        PageHead head;
        std::vector<std::byte> content;
    };
    struct NameHash {
        size_t operator()(const PageName& name) const { return size_t(name.low); }
    };

    uint64_t content_limit(const PageHead& head) const;
    std::filesystem::path path_of(const PageEntry& entry) const { return own_ / entry.file_name(); }
    std::optional<PageHead> read_head(const PageEntry& entry);
    void list();
    void add(const PageEntry& entry);
    void forget(const PageEntry& entry);
    void report_damaged(const PageEntry& entry, const std::string& reason);
    void warn(std::string text);
    void write_jobs();
    bool write_file(const Job& job, std::string& problem) const;
    void keep_within_limit(uint64_t written);

    const Options options_;
    const PageLayout layout_;
    const uint64_t max_state_bytes_;
    const PageName owner_;
    std::filesystem::path own_; // directory of the owner; empty if it cannot be made
    std::mutex mutex_;          // guards all that follows
    std::condition_variable changed_;
    std::unordered_multimap<PageName, PageEntry, NameHash> entries_; // by their parents
    std::set<PageName> names_, bad_;                                 // stored; damaged and still there
    std::filesystem::file_time_type listed_{};                       // the directory's time when it was listed
    std::deque<Job> jobs_;                                           // the first one is being written
    uint64_t waiting_bytes_ = 0;
    bool stopping_ = false, broken_ = false;
    std::vector<std::string> warnings_;
    uint64_t total_bytes_ = UINT64_MAX, writes_ = 0; // of the writer; UINT64_MAX: not yet counted
    std::thread writer_;
};

} // namespace tq
