// Pages as files: one directory for each owner, one file for each page or state. A file's name has the name of its parent, its
// own, the number of its tokens and a checksum of its first 32 ids. So a directory's listing is the whole tree, and most pages
// are ruled out without being opened (may_begin_as()).
// Several processes use a directory at once and may be killed at any time. A file is written under another name, a draft, and
// renamed when it is whole; a draft of 10 minutes or more is deleted when somebody prunes. Everything may be gone the moment
// after it was listed, so errors of single files are passed over. Links are not followed, and pipes are not opened.
#include "model/prefix/page_directory.h"
#include "base/cache_directory.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/whole_file.h"
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>

namespace tq {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t beginning_ids = 32;
constexpr std::string_view page_suffix = ".page", state_suffix = ".state", draft_suffix = ".draft";
constexpr auto abandoned = std::chrono::minutes(10); // the age of a draft whose writer must have been killed

uint32_t beginning_of(std::span<const uint32_t> ids) {
    return uint32_t(checksum(std::as_bytes(ids.first(std::min<size_t>(ids.size(), beginning_ids)))));
}

// Links are not followed.
bool is_a(const fs::directory_entry& entry, fs::file_type type) {
    std::error_code gone;
    return entry.symlink_status(gone).type() == type;
}

// Calls use(entry of the directory) for each; an error, such as a directory that is being deleted, ends it.
template <class Use> void each_file(const fs::path& directory, const Use& use) {
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) use(*at);
}

std::string_view suffix_of(RecordKind kind) { return kind == RecordKind::state ? state_suffix : page_suffix; }

} // namespace

std::string PageEntry::file_name() const {
    return fmt::format("{}.{}.{}.{:08x}{}", parent.hex(), name.hex(), tokens, beginning, suffix_of(kind));
}

PageEntry entry_of(const PageHead& head) { return {head.parent, head.name, head.tokens(), beginning_of(head.ids), head.kind}; }

// The name must be exactly the one that file_name() makes of the values that were read: other spellings of the same numbers are
// not ours, and would be listed but never found.
std::optional<PageEntry> parse_entry(std::string_view name) {
    PageEntry entry{};
    entry.kind = name.ends_with(state_suffix) ? RecordKind::state : RecordKind::page;
    const std::string_view suffix = suffix_of(entry.kind);
    if (!name.ends_with(suffix) || name.size() < 66 + suffix.size()) return std::nullopt;
    const std::string_view rest = name.substr(66, name.size() - 66 - suffix.size());
    const size_t dot = rest.find('.');
    const bool is_page = name[32] == '.' && name[65] == '.' && dot != rest.npos &&
                         parse_page_name(name.substr(0, 32), entry.parent) && parse_page_name(name.substr(33, 32), entry.name) &&
                         parse_number(rest.substr(0, dot), entry.tokens) &&
                         parse_number(rest.substr(dot + 1), entry.beginning, 16) && entry.file_name() == name;
    return is_page ? std::optional(entry) : std::nullopt;
}

std::optional<PageEntry> page_in(const fs::directory_entry& entry) {
    return is_a(entry, fs::file_type::regular) ? parse_entry(utf8_text(entry.path().filename())) : std::nullopt;
}

bool may_begin_as(const PageEntry& entry, std::span<const uint32_t> ids) {
    return ids.size() >= std::min(entry.tokens, beginning_ids) &&
           entry.beginning == beginning_of(ids.first(std::min<size_t>(ids.size(), std::min(entry.tokens, beginning_ids))));
}

// Several processes may write the same page at once. The last rename wins, which does no harm: equal names have equal contents.
void write_whole(const fs::path& path, std::initializer_list<std::span<const std::byte>> parts) {
    const std::error_code error = write_whole_file(path, parts, draft_suffix);
    if (error) fail("cannot write {}: {}", printable(utf8_text(path), 300), error.message());
}

// At most `max` bytes, whatever the file says that it has. A file that shrinks meanwhile gives what it had; the checksum tells.
std::optional<std::vector<std::byte>> read_bytes(const fs::path& path, size_t max) {
    std::error_code error;
    if (!fs::is_regular_file(path, error)) return std::nullopt; // to open a pipe may take for ever
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) return std::nullopt;
    const std::streamoff end = file.tellg();
    std::vector<std::byte> bytes(std::min<size_t>(end > 0 ? size_t(end) : 0, max));
    file.seekg(0);
    file.read(reinterpret_cast<char*>(bytes.data()), std::streamsize(bytes.size()));
    bytes.resize(size_t(std::max<std::streamsize>(file.gcount(), 0)));
    return bytes;
}

fs::path prefix_directory() {
    const fs::path directory = cache_directory();
    return directory.empty() ? directory : directory / "prefix";
}

fs::path make_owner_directory(const fs::path& directory, const OwnerTexts& owner) {
    const fs::path own = directory / owner_name(owner).hex(), description = own / "owner.json";
    std::error_code error, unknown;
    if (fs::is_symlink(own, unknown)) // nothing behind it would be listed, so that no limit would hold
        fail("{} is a link, which is not followed: delete it, or name another directory with --cache-dir", utf8_text(own));
    fs::create_directories(own, error);
    if (!fs::is_directory(own, unknown)) fail("cannot create the directory {}: {}", utf8_text(own), error.message());
    if (fs::exists(description, error)) return own;
    const std::string text = nlohmann::ordered_json(owner).dump(1) + '\n'; // for people alone: what fails is no error
    write_whole_file(description, {std::as_bytes(std::span(text))}, draft_suffix);
    return own;
}

uint64_t default_disk_bytes(const fs::path& directory) {
    std::error_code error;
    fs::path existing = fs::absolute(directory, error);
    while (!existing.empty() && !fs::exists(existing, error) && existing != existing.parent_path())
        existing = existing.parent_path();
    const fs::space_info space = fs::space(existing, error);
    uint64_t own = 0;
    for (const StoredOwner& owner : stored_pages(directory)) own += owner.bytes();
    // At most the bytes that are taken: a file may say that it is larger than it is.
    return error ? 0 : (uint64_t(space.available) + std::min(own, uint64_t(space.capacity - space.free))) / 10;
}

uint64_t StoredOwner::bytes() const {
    uint64_t sum = 0;
    for (const StoredPage& page : pages) sum += page.bytes;
    return sum;
}

uint64_t StoredOwner::count(RecordKind kind) const {
    return uint64_t(std::ranges::count_if(pages, [&](const StoredPage& page) { return page.entry.kind == kind; }));
}

std::vector<StoredOwner> stored_pages(const fs::path& directory) {
    std::vector<StoredOwner> all;
    each_file(directory, [&](const fs::directory_entry& own) {
        PageName name;
        if (!is_a(own, fs::file_type::directory) || !parse_page_name(utf8_text(own.path().filename()), name)) return;
        StoredOwner& owner = all.emplace_back(StoredOwner{utf8_text(own.path().filename()), {}});
        each_file(own.path(), [&](const fs::directory_entry& file) {
            const auto entry = page_in(file);
            if (!entry) return;
            std::error_code gone;
            const StoredPage page{*entry, taken_bytes(file.path(), gone), last_modified(file.path(), gone)};
            if (!gone) owner.pages.push_back(page);
        });
    });
    std::ranges::sort(all, {}, &StoredOwner::name);
    return all;
}

namespace {

void remove_leftovers(const fs::path& own) {
    bool any_page = false;
    std::vector<fs::path> drafts;
    each_file(own, [&](const fs::directory_entry& file) {
        std::error_code gone;
        const std::string name = utf8_text(file.path().filename());
        any_page |= name.ends_with(page_suffix) || name.ends_with(state_suffix) || name.ends_with(draft_suffix);
        if (name.ends_with(draft_suffix) && last_modified(file.path(), gone) + abandoned < fs::file_time_type::clock::now() &&
            !gone)
            drafts.push_back(file.path());
    });
    std::error_code ignored;
    for (const fs::path& draft : drafts) fs::remove(draft, ignored);
    if (any_page) return;
    fs::remove(own / "owner.json", ignored);
    fs::remove(own, ignored); // fails if another process has just written
}

// A page that can be deleted next, the one used least recently first.
struct Leaf {
    fs::file_time_type used;
    size_t owner, page;
    bool operator<(const Leaf& other) const { return used > other.used; }
};

} // namespace

void expire_pages(const fs::path& own, std::chrono::seconds unused) {
    const auto oldest = fs::file_time_type::clock::now() - unused;
    std::vector<fs::path> old;
    each_file(own, [&](const fs::directory_entry& file) {
        std::error_code gone;
        if (page_in(file) && last_modified(file.path(), gone) < oldest && !gone) old.push_back(file.path());
    });
    std::error_code ignored;
    for (const fs::path& page : old) fs::remove(page, ignored);
    remove_leftovers(own);
}

// Deletes leaves only, the one used least recently first: a page without the one before it cannot be found. A page whose last
// follower goes becomes a leaf itself. A state follows its page and goes before it.
uint64_t prune_pages(const fs::path& directory, uint64_t max_bytes) {
    const std::vector<StoredOwner> owners = stored_pages(directory);
    uint64_t total = 0;
    std::priority_queue<Leaf> leaves;
    std::vector<std::map<PageName, size_t>> followers(owners.size()), numbers(owners.size()); // of each page, by its name
    for (size_t o = 0; o < owners.size(); o++) {
        total += owners[o].bytes();
        for (size_t p = 0; p < owners[o].pages.size(); p++) {
            followers[o][owners[o].pages[p].entry.parent]++;
            numbers[o][owners[o].pages[p].entry.name] = p;
        }
        for (size_t p = 0; p < owners[o].pages.size(); p++)
            if (!followers[o].contains(owners[o].pages[p].entry.name)) leaves.push({owners[o].pages[p].used, o, p});
    }
    while (total > max_bytes && !leaves.empty()) {
        const Leaf leaf = leaves.top();
        leaves.pop();
        const StoredPage& page = owners[leaf.owner].pages[leaf.page];
        std::error_code ignored;
        fs::remove(directory / owners[leaf.owner].name / page.entry.file_name(), ignored);
        total -= page.bytes;
        const auto parent = numbers[leaf.owner].find(page.entry.parent);
        if (--followers[leaf.owner][page.entry.parent] == 0 && parent != numbers[leaf.owner].end())
            leaves.push({owners[leaf.owner].pages[parent->second].used, leaf.owner, parent->second});
    }
    for (const StoredOwner& owner : owners) remove_leftovers(directory / owner.name);
    return total;
}

} // namespace tq
