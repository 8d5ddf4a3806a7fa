// Lists the models that -hf has downloaded, and deletes them. A repository's folder has blobs, snapshots that link to them, and
// maybe files of other programs. A model's name is the shortest request that -hf would read as this file: USER/REPOSITORY:QUANT
// if the choice of that quant is this file, otherwise with the file's name. Sizes count each file once: links are no bytes, and a
// hard link counts as its blob. Files that belong to no model of the current commit are shown as other bytes: older versions,
// parts of downloads. Deletion removes the links of a model, and its blobs if no other snapshot has them. It follows no links out
// of the cache, and refuses while another process holds one of the repository's locks.
#include "model/hub/kept.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/readable_directory.h"
#include "model/hub/hub_cache.h"
#include "model/hub/names.h"
#include <algorithm>

namespace tq {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view folder_prefix = "models--";

// "models--USER--REPOSITORY": USER/REPOSITORY; empty for other folders.
std::string repository_of(const fs::path& folder) {
    const std::string name = utf8_text(folder.filename());
    if (!name.starts_with(folder_prefix)) return "";
    std::string repository = name.substr(folder_prefix.size());
    const size_t middle = repository.find("--");
    if (middle != std::string::npos) repository.replace(middle, 2, "/");
    return is_repository_name(repository) ? repository : "";
}

// Calls see(entry) for everything in the directory and below; links are not followed.
template <class See> void for_each_below(const fs::path& directory, See see) {
    std::error_code error;
    for (fs::recursive_directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) see(*at);
}

uint64_t bytes_below(const fs::path& folder) {
    uint64_t bytes = 0;
    for_each_below(folder, [&](const fs::directory_entry& entry) {
        std::error_code error;
        if (entry.is_symlink(error) || !entry.is_regular_file(error)) return;
        const bool counted = entry.hard_link_count(error) > 1 && entry.path().parent_path().filename() != "blobs";
        if (const uint64_t size = taken_bytes(entry.path(), error); !error && !counted) bytes += size;
    });
    return bytes;
}

// Returns the model with the request by which -hf takes it among the files.
KeptModel model_named(const std::string& repository, const std::vector<HubFile>& files, const HubChoice& choice) {
    if (choice.model.empty()) return {repository, "", 0, {}};
    const std::string quant = quant_of(choice.model);
    try {
        if (choose_files(files, {repository, quant, ""}).model == choice.model) return {repository + ':' + quant, "", 0, {}};
    } catch (const Error&) {
    }
    return {repository, choice.model, 0, {}};
}

KeptRepository read_repository(const fs::path& cache, const std::string& name, const fs::path& folder) {
    KeptRepository repository{name, {}, 0};
    const HubCache kept(cache, name);
    const std::string commit = kept.commit();
    const auto files = commit.empty() ? std::vector<HubFile>() : kept.files(commit);
    uint64_t all = 0;
    for (const HubChoice& choice : all_models(files)) {
        KeptModel model = model_named(name, files, choice);
        model.unused = std::chrono::seconds::max();
        model.path = kept.snapshot(commit) / utf8_path(choice.model); // of a model in safetensors the directory
        for (const HubFile& file : choice.files) {
            std::error_code error;
            model.bytes += file.size;
            const auto unused = time_since_use(kept.snapshot(commit) / utf8_path(file.path), error);
            if (!error) model.unused = std::min(model.unused, std::max(unused, std::chrono::seconds(0)));
        }
        all += model.bytes;
        repository.models.push_back(std::move(model));
    }
    const uint64_t there = bytes_below(folder);
    repository.other_bytes = there - std::min(there, all);
    return repository;
}

// Throws if one of the repository's files is being downloaded.
void require_idle(const fs::path& cache, const std::string& repository, const fs::path& folder) {
    for_each_below(cache / ".locks" / folder.filename(), [&](const fs::directory_entry& entry) {
        std::error_code error;
        if (entry.is_symlink(error) || !entry.is_regular_file(error)) return;
        if (!FileLock::try_take(entry.path())) fail("{} is being downloaded: stop that first", repository);
    });
}

void remove_file(const fs::path& path) {
    std::error_code error;
    fs::remove(path, error);
    if (error) fail("cannot delete {}: {}", printable(utf8_text(path), 300), error.message());
}

void remove_folder(const fs::path& path) {
    std::error_code error;
    if (fs::is_symlink(path, error))
        fail("{} is a link, which is not followed: delete it and what it leads to yourself", printable(utf8_text(path), 300));
    fs::remove_all(path, error);
    if (error) fail("cannot delete {}: {}", printable(utf8_text(path), 300), error.message());
}

// The blob that a file of a snapshot shares its bytes with; empty if it is none of its own repository.
fs::path blob_of(const fs::path& blobs, const fs::path& file) {
    std::error_code error;
    for (fs::directory_iterator at(blobs, error), end; !error && at != end; at.increment(error))
        if (std::error_code gone; !at->is_symlink(gone) && fs::equivalent(at->path(), file, gone) && !gone) return at->path();
    return {};
}

void remove_model(const HubCache& kept, const std::string& commit, const HubChoice& choice) {
    for (const HubFile& file : choice.files) {
        const fs::path path = kept.snapshot(commit) / utf8_path(file.path), blob = blob_of(kept.folder() / "blobs", path);
        remove_file(path);
        bool is_used = blob.empty();
        for_each_below(kept.folder() / "snapshots", [&](const fs::directory_entry& entry) {
            std::error_code error;
            is_used |= fs::equivalent(entry.path(), blob, error) && !error;
        });
        if (!is_used) remove_file(blob);
    }
}

} // namespace

std::vector<KeptRepository> kept_repositories(const fs::path& cache) {
    std::vector<KeptRepository> all;
    if (!directory_is_there(cache)) return all;
    std::error_code error;
    for (fs::directory_iterator at(cache, error), end; !error && at != end; at.increment(error)) {
        std::error_code gone;
        const std::string name = repository_of(at->path());
        if (!name.empty() && at->is_directory(gone)) all.push_back(read_repository(cache, name, at->path()));
    }
    if (error) fail("cannot read the cache directory {}: {}", printable(utf8_text(cache), 300), error.message());
    std::ranges::sort(all, {}, &KeptRepository::name);
    return all;
}

uint64_t remove_kept(const fs::path& cache, const std::string& request) {
    const size_t colon = request.find(':');
    const std::string repository = request.substr(0, colon);
    if (!is_repository_name(repository)) fail("{} names no model: it must be USER/REPOSITORY[:QUANT]", printable(request));
    const HubCache kept(cache, repository);
    const fs::path& folder = kept.folder();
    std::error_code error;
    if (!fs::is_directory(folder, error))
        fail("{} is not in {}: tq-run models lists what is", repository, printable(utf8_text(cache), 300));
    require_idle(cache, repository, folder);
    const uint64_t before = bytes_below(folder);
    const std::string commit = kept.commit();
    if (colon != std::string::npos) {
        if (commit.empty()) fail("{} has no model: without :QUANT all of it is deleted", repository);
        const std::string which = request.substr(colon + 1);
        const HubTarget target{repository, which.ends_with(".gguf") ? "" : which, which.ends_with(".gguf") ? which : ""};
        if (which.empty()) fail("{} names no quant: leave the colon out to delete all of {}", printable(request), repository);
        remove_model(kept, commit, choose_files(kept.files(commit), target));
        if (!kept.files(commit).empty()) return before - bytes_below(folder);
    }
    remove_folder(folder);
    remove_folder(cache / ".locks" / folder.filename());
    return before;
}

} // namespace tq
