// The directory of the prefix cache: a directory for each owner, by its name, with a file for each page and owner.json, which
// describes the owner to people. Several processes may use it: files are renamed into place, and one that is gone is a miss.
#pragma once
#include "model/prefix/owner.h"
#include "model/prefix/page_file.h"
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tq {

// Content of the name of a page's or a state's file: "PARENT.NAME.TOKENS.BEGINNING.page" or ".state", the names in hexadecimal.
struct PageEntry {
    PageName parent, name;
    uint32_t tokens;
    uint32_t beginning; // hash of the first 32 ids, or of fewer if the page has fewer
    RecordKind kind = RecordKind::page;

    bool operator==(const PageEntry&) const = default;
    std::string file_name() const;
};
PageEntry entry_of(const PageHead& head);
std::optional<PageEntry> parse_entry(std::string_view file_name);
// Returns the page of a directory's entry; nullopt if its name is not a page's, or if it is a pipe, a directory or a link.
std::optional<PageEntry> page_in(const std::filesystem::directory_entry& entry);

// Whether a page may begin as these ids do, by its entry.
bool may_begin_as(const PageEntry& entry, std::span<const uint32_t> ids);

// $TQ_CACHE_DIR/prefix, or the same in the user's cache directory; empty if there is none.
std::filesystem::path prefix_directory();
// Creates an owner's directory, and describes the owner in it. Throws Error.
std::filesystem::path make_owner_directory(const std::filesystem::path& directory, const OwnerTexts& owner);
// Returns the tenth of the disk's free space plus the pages' size.
uint64_t default_disk_bytes(const std::filesystem::path& directory);

struct StoredPage {
    PageEntry entry;
    uint64_t bytes;
    std::filesystem::file_time_type used; // the file's time of modification, which every use sets
};
struct StoredOwner {
    std::string name;              // of its directory
    std::vector<StoredPage> pages; // and states

    uint64_t bytes() const;
    uint64_t count(RecordKind kind) const;
};
// Returns all pages of all owners; none if there is no such directory. Files of other names, and entries that are no files (a
// pipe, a directory, a link), are left out, and links to directories are not followed.
std::vector<StoredOwner> stored_pages(const std::filesystem::path& directory);

// Deletes pages until `max_bytes` are left: always the one that was used least recently among those that no other page follows,
// so that no page is without those before it; a state follows its page. It also deletes files that killed writers left, and
// owners without pages. Returns the bytes left.
uint64_t prune_pages(const std::filesystem::path& directory, uint64_t max_bytes);

// Deletes the pages of an owner that were not used for `unused`, and files that killed writers left.
void expire_pages(const std::filesystem::path& owner_directory, std::chrono::seconds unused);

// Writes a file under another name and renames it. Throws Error with the system's reason; nothing is left of it then.
void write_whole(const std::filesystem::path& path, std::initializer_list<std::span<const std::byte>> parts);
// Returns the first `max` bytes of a file, or all; nothing if it cannot be opened, or is no file but a pipe or a directory.
std::optional<std::vector<std::byte>> read_bytes(const std::filesystem::path& path, size_t max = SIZE_MAX);

} // namespace tq
