// The cache directory is shared with other programs: huggingface_hub, llama.cpp, another tq-run. So its layout is theirs
// (cache.h), and nothing in it is ever half written under its final name. Links, copies and references are made under a name that
// nobody else uses, and are then renamed, which replaces an older one at once. A blob gets its name only when its checksum is
// right (download.cpp).
// Links are relative, so the directory may be moved. If a file system has no symbolic links, a hard link is made; if it has no
// hard links either, a copy.
#include "model/hub/hub_cache.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/whole_file.h"
#include "model/hub/names.h"
#include <algorithm>
#include <fstream>

namespace tq {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view new_suffix = ".new";

void require(const std::error_code& error, const char* what, const fs::path& path) {
    if (error) fail("cannot {} {}: {}; set HF_HOME to another directory for the cache", what, utf8_text(path), error.message());
}

void make_directories(const fs::path& path) {
    std::error_code error;
    fs::create_directories(path, error);
    require(error, "make the directory", path);
}

bool is_whole(const fs::path& path, uint64_t size) {
    std::error_code error;
    return fs::is_regular_file(path, error) && fs::file_size(path, error) == size && !error;
}

std::string folder_name(std::string repository) { return "models--" + repository.replace(repository.find('/'), 1, "--"); }

} // namespace

HubCache::HubCache(const fs::path& root, const std::string& repository)
    : root_(root), folder_(root / folder_name(repository)), locks_(root / ".locks" / folder_name(repository)) {}

fs::path HubCache::lock(const HubFile& file) const { return locks_ / (file.oid + ".lock"); }

// Other programs leave the reference out if a commit was asked for by its name. Then the only snapshot there is is meant; of
// several nobody knows which is the branch's.
std::string HubCache::commit() const {
    std::string text;
    std::ifstream(folder_ / "refs" / "main") >> text;
    if (is_commit(text)) return text;
    std::error_code error;
    std::vector<std::string> snapshots;
    for (fs::directory_iterator at(folder_ / "snapshots", error), end; !error && at != end; at.increment(error))
        if (const std::string name = utf8_text(at->path().filename()); is_commit(name)) snapshots.push_back(name);
    return snapshots.size() == 1 ? snapshots[0] : std::string();
}

std::vector<HubFile> HubCache::files(const std::string& commit) const {
    std::vector<HubFile> files;
    const fs::path directory = snapshot(commit);
    std::error_code error;
    for (fs::recursive_directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
        std::error_code no_file; // a link may have no target
        if (!at->is_regular_file(no_file)) continue;
        const uint64_t size = at->file_size(no_file);
        if (!no_file) files.push_back({utf8_text(at->path().lexically_relative(directory)), size, {}});
    }
    std::sort(files.begin(), files.end(), [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
    return files;
}

bool HubCache::has(const std::string& commit, const HubFile& file) const {
    return is_whole(snapshot(commit) / utf8_path(file.path), file.size);
}

bool HubCache::has_blob(const HubFile& file) const { return is_whole(blob(file), file.size); }

void HubCache::make_folders() const {
    for (const fs::path& path : {folder_ / "blobs", folder_ / "refs", folder_ / "snapshots", locks_}) make_directories(path);
}

void HubCache::add_to_snapshot(const std::string& commit, const HubFile& file) const {
    const fs::path link = snapshot(commit) / utf8_path(file.path), fresh = draft_beside(link, new_suffix);
    make_directories(link.parent_path());
    std::error_code error;
    fs::create_symlink(blob(file).lexically_relative(link.parent_path()), fresh, error);
    if (error) fs::create_hard_link(blob(file), fresh, error);
    if (error) fs::copy_file(blob(file), fresh, error);
    require(error, "make", fresh);
    fs::rename(fresh, link, error);
    require(error, "make", link);
}

void HubCache::set_commit(const std::string& commit) const {
    const fs::path path = folder_ / "refs" / "main";
    require(write_whole_file(path, {std::as_bytes(std::span(commit))}, new_suffix), "write", path);
}

} // namespace tq
