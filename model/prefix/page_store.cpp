// The content of the disk is known from the names of files alone (PageEntry): parent, name, length and a hash of the first ids.
// So a lookup reads only files that may continue the prompt, and no index can disagree with the directory. The list is read again
// if the directory's time of modification has changed, because other processes write there, too, and nobody locks. A file that
// another process deleted is a miss. One whose head, ids or checksum are wrong is reported once and deleted. The writer has a
// thread, and at most 256 MiB wait for it. Without `wait`, a page that has no room is refused, and the caller offers it again at
// the end of a sequence. A page counts as present as soon as it waits (has()). The job at the front stays there while it is
// written, with the mutex free, so remove() leaves it alone. After the first write that fails, this run stores no more. The limit
// of the directory holds for all processes together: the sizes are added up, counted anew every 256 writes, and if they exceed
// the limit, the pages used least recently go until a tenth is free.
#include "model/prefix/page_store.h"
#include "base/error.h"
#include "base/error_text.h"
#include "base/file_system.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/cache.h"

namespace tq {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t max_waiting_bytes = 256 << 20;
constexpr uint64_t writes_per_count = 256; // then the directory is counted again, for other processes' pages

std::string shown(const fs::path& path) { return printable(utf8_text(path), 300); }

} // namespace

PageStore::PageStore(const Options& options, const OwnerTexts& owner, const PageLayout& layout, uint64_t max_state_bytes)
    : options_(options), layout_(layout), max_state_bytes_(max_state_bytes), owner_(owner_name(owner)) {
    try {
        own_ = make_owner_directory(options.directory, owner);
    } catch (const std::exception& error) {
        broken_ = true;
        warn(fmt::format("the prefix cache is not kept on the disk: {}", error_text(error)));
    }
}

PageStore::~PageStore() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    if (writer_.joinable()) writer_.join();
}

void PageStore::warn(std::string text) { warnings_.push_back(std::move(text)); }

std::vector<std::string> PageStore::take_warnings() {
    const std::lock_guard lock(mutex_);
    return std::exchange(warnings_, {});
}

void PageStore::add(const PageEntry& entry) {
    if (names_.insert(entry.name).second) entries_.emplace(entry.parent, entry);
}

// Several pages may follow one parent (a conversation that branches), so that a name is looked for among these.
void PageStore::forget(const PageEntry& entry) {
    names_.erase(entry.name);
    const auto [first, last] = entries_.equal_range(entry.parent);
    for (auto at = first; at != last; ++at)
        if (at->second.name == entry.name) {
            entries_.erase(at);
            return;
        }
}

// Lists the directory again when it has changed.
void PageStore::list() {
    std::error_code error;
    const auto now = last_modified(own_, error);
    if (own_.empty() || error || now == listed_) return;
    listed_ = now;
    entries_.clear();
    names_.clear();
    for (fs::directory_iterator at(own_, error), end; !error && at != end; at.increment(error))
        if (const auto entry = page_in(*at); entry && !bad_.contains(entry->name)) add(*entry);
    for (const Job& job : jobs_) names_.insert(job.head.name);
}

void PageStore::report_damaged(const PageEntry& entry, const std::string& reason) {
    std::error_code error;
    const fs::path path = path_of(entry);
    forget(entry);
    const bool first = bad_.insert(entry.name).second;
    fs::remove(path, error);
    if (first)
        warn(fmt::format("{}: a damaged {} of the prefix cache: {}; it is {}deleted, and its tokens are run again", shown(path),
                         entry.kind == RecordKind::state ? "state" : "page", reason,
                         error ? "not to be used, could not be " : ""));
}

void PageStore::report_damaged(const PageHead& head, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    report_damaged(entry_of(head), reason);
}

std::optional<PageHead> PageStore::read_head(const PageEntry& entry) {
    const auto bytes = read_bytes(path_of(entry), max_page_head_bytes);
    if (!bytes) { // another process has deleted it
        forget(entry);
        return std::nullopt;
    }
    try {
        PageHead head = read_page_head(*bytes);
        if (head.owner != owner_ || head.parent != entry.parent || head.name != entry.name) fail("it is another page");
        return head;
    } catch (const Error& error) {
        report_damaged(entry, error.what());
        return std::nullopt;
    }
}

std::vector<PageHead> PageStore::following(PageName parent, std::span<const uint32_t> ids,
                                           const std::function<bool(const PageName&)>& is_new) {
    const std::lock_guard lock(mutex_);
    list();
    std::vector<PageEntry> candidates;
    const auto [first, last] = entries_.equal_range(parent);
    for (auto at = first; at != last; ++at)
        if (at->second.kind == RecordKind::page && is_new(at->second.name) && may_begin_as(at->second, ids))
            candidates.push_back(at->second);
    std::vector<PageHead> heads;
    for (const PageEntry& entry : candidates)
        if (auto head = read_head(entry)) heads.push_back(std::move(*head));
    return heads;
}

bool PageStore::has(const PageHead& head) {
    const std::lock_guard lock(mutex_);
    return names_.contains(head.name);
}

uint64_t PageStore::content_limit(const PageHead& head) const {
    return head.kind == RecordKind::state ? max_state_bytes_ : layout_.bytes(head.tokens());
}

std::optional<std::vector<std::byte>> PageStore::read(const PageHead& head) {
    const PageEntry entry = entry_of(head);
    const size_t head_bytes = page_head_size(head.tokens());
    // A byte more than it can have: a longer file is then recognised as one.
    auto bytes = read_bytes(path_of(entry), head_bytes + content_limit(head) + 1);
    const std::lock_guard lock(mutex_);
    if (!bytes || own_.empty()) {
        forget(entry);
        return std::nullopt;
    }
    try {
        const PageHead there = read_page_head(*bytes);
        if (there.kind != head.kind || there.owner != head.owner || there.parent != head.parent || there.ids != head.ids ||
            there.cold != head.cold)
            fail("it is another page");
        const uint64_t max = content_limit(head), state = std::min<uint64_t>(bytes->size() - head_bytes, max);
        const auto content = page_content(*bytes, there, head.kind == RecordKind::state ? state : max);
        std::error_code ignored;
        set_last_modified_now(path_of(entry), ignored);
        bytes->erase(bytes->begin(), bytes->begin() + ptrdiff_t(bytes->size() - content.size()));
        return bytes;
    } catch (const Error& error) {
        report_damaged(entry, error.what());
        return std::nullopt;
    }
}

bool PageStore::write(const PageHead& head, std::vector<std::byte> content, bool wait) {
    std::unique_lock lock(mutex_);
    const auto has_room = [&] { return jobs_.empty() || waiting_bytes_ + content.size() <= max_waiting_bytes || broken_; };
    if (wait) changed_.wait(lock, has_room);
    if (broken_ || content.size() > options_.max_bytes) return true; // nothing is to be done later either
    if (!has_room()) return false;
    if (!names_.insert(head.name).second) return true;
    waiting_bytes_ += content.size();
    jobs_.push_back({head, std::move(content)});
    if (!writer_.joinable()) writer_ = std::thread([this] { write_jobs(); });
    changed_.notify_all();
    return true;
}

void PageStore::remove(const PageHead& head) {
    const std::lock_guard lock(mutex_);
    std::error_code ignored;
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job)
        if (job != jobs_.begin() && job->head.name == head.name) {
            waiting_bytes_ -= job->content.size();
            jobs_.erase(job);
            break;
        }
    forget(entry_of(head));
    fs::remove(path_of(entry_of(head)), ignored);
}

void PageStore::flush() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_.empty(); });
}

void PageStore::write_jobs() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return !jobs_.empty() || stopping_; });
        if (jobs_.empty()) return;
        const Job& job = jobs_.front(); // stays where it is: only this thread takes the first one out
        std::string problem;
        bool written = false;
        bool skipped = broken_;
        lock.unlock();
        std::error_code gone; // a directory in its place is somebody else's: it stays, and other pages are written
        skipped |= fs::is_directory(fs::symlink_status(path_of(entry_of(job.head)), gone));
        if (!skipped) written = write_file(job, problem);
        if (written) keep_within_limit(page_head_size(job.head.tokens()) + job.content.size());
        lock.lock();
        if (written) {
            names_.erase(job.head.name); // for add()
            add(entry_of(job.head));
        } else {
            names_.erase(job.head.name);
        }
        if (!written && !skipped) {
            broken_ = true;
            warn(fmt::format("the prefix cache stores no more pages in this run: {}", problem));
        }
        waiting_bytes_ -= job.content.size();
        jobs_.pop_front();
        changed_.notify_all();
    }
}

// Returns false with the problem if the page could not be written; nothing of it is left then.
bool PageStore::write_file(const Job& job, std::string& problem) const {
    try {
        const std::vector<std::byte> head = page_head_bytes(job.head, job.content);
        write_whole(path_of(entry_of(job.head)), {head, job.content});
        return true;
    } catch (const Error& error) {
        problem = error.what();
        return false;
    }
}

// Deletes old pages if all together exceed the limit. Called by the writer.
void PageStore::keep_within_limit(uint64_t written) {
    if (total_bytes_ == UINT64_MAX || ++writes_ % writes_per_count == 0) {
        total_bytes_ = 0;
        for (const StoredOwner& owner : stored_pages(options_.directory)) total_bytes_ += owner.bytes();
    } else {
        total_bytes_ += written;
    }
    if (total_bytes_ > options_.max_bytes) // a tenth less, since this reads the whole directory
        total_bytes_ = prune_pages(options_.directory, options_.max_bytes - options_.max_bytes / 10);
}

} // namespace tq
