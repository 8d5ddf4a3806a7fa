// From "USER/REPOSITORY:QUANT" to a path of a model on the disk. The steps: the request is parsed; the hub says at which commit
// the branch is, and lists that commit's files; choice.cpp picks; files that the cache lacks are downloaded, each file linked
// into the snapshot when it is whole; at last the reference is set to the commit. So a download that breaks off leaves the former
// snapshot in use, and a later one continues. The hub is asked even if a copy is in the cache, for a branch moves. But nobody
// should wait for a hub that does not answer if there is a copy: then there is one attempt with a short time limit, and the copy
// is used with a note. Only Unreachable leads there. An error such as "no such quant" does not, since it would be hidden. Without
// a network (--offline) the cache alone answers, by the same choice among the files that it has.
#include "model/hub/hub.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/hub/download.h"
#include "model/hub/listing.h"
#include "model/hub/names.h"
#include "model/hub/retry.h"
#include <algorithm>

namespace tq {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds patience_with_copy{5};
constexpr uint64_t spare_bytes = 16 << 20; // that a download leaves free on the disk

// Converts an address of a browser to user/repository and a file: https://huggingface.co/user/repository and .../blob/main/FILE
// or .../resolve/main/FILE.
HubRequest without_address(const HubRequest& request, const std::string& endpoint) {
    std::string_view rest = request.repository;
    for (const std::string_view place :
         {std::string_view(endpoint), std::string_view("https://huggingface.co"), std::string_view("https://hf.co"),
          std::string_view("huggingface.co"), std::string_view("hf.co")})
        if (rest.starts_with(place) && rest.substr(place.size()).starts_with('/')) {
            rest.remove_prefix(place.size() + 1);
            rest = rest.substr(0, rest.find_first_of("?#"));
            if (rest.ends_with('/')) rest.remove_suffix(1);
            const size_t end = std::min(rest.find('/', std::min(rest.find('/'), rest.size() - 1) + 1), rest.size());
            HubRequest found{std::string(rest.substr(0, end)), request.file};
            for (const std::string_view folder : {"/blob/main/", "/resolve/main/"})
                if (rest.substr(end).starts_with(folder)) found.file = rest.substr(end + folder.size());
            return found;
        }
    return request;
}

HubTarget parse(const HubRequest& request) {
    const size_t colon = request.repository.find(':');
    HubTarget target{request.repository.substr(0, colon), colon == std::string::npos ? "" : request.repository.substr(colon + 1),
                     request.file};
    const auto is_sign = [](char c) { return c == '-' || c == '_' || c == '.' || std::isalnum(static_cast<unsigned char>(c)); };
    if (!is_repository_name(target.repository))
        fail("'{}' names no repository: it must be USER/REPOSITORY or USER/REPOSITORY:QUANT, such as Qwen/Qwen3-4B-GGUF:Q8_0",
             printable(request.repository));
    if ((colon != std::string::npos && target.quant.empty()) || !std::all_of(target.quant.begin(), target.quant.end(), is_sign))
        fail("'{}' is not the name of a quant, such as Q4_K_M or Q8_0", printable(target.quant));
    return target;
}

fs::path path_of(const HubCache& cache, const std::string& commit, const HubChoice& choice) {
    return choice.model.empty() ? cache.snapshot(commit) : cache.snapshot(commit) / utf8_path(choice.model);
}

fs::path find_cached(const HubCache& cache, const HubTarget& target) {
    const std::string commit = cache.commit();
    const auto files = commit.empty() ? std::vector<HubFile>() : cache.files(commit);
    if (files.empty())
        fail("no file of {} is in the cache {}: run it once without --offline (and HF_HUB_OFFLINE) to download it",
             target.repository, utf8_text(cache.root()));
    try {
        return path_of(cache, commit, choose_files(files, target));
    } catch (const Error& error) {
        fail("in the cache {}: {}; run it without --offline (and HF_HUB_OFFLINE) to download it", utf8_text(cache.root()),
             error.what());
    }
}

std::string mebibytes(uint64_t bytes) { return fmt::format("{:.1f} MiB", double(bytes) / (1 << 20)); }

uint64_t existing_bytes(const fs::path& path) {
    std::error_code error;
    const uint64_t bytes = fs::file_size(path, error);
    return error ? 0 : bytes;
}

// Checks the free space before anything is fetched, since a disk that is full after an hour is worse. Bytes that an earlier
// download left count as there. The check is advice: another program may take the space meanwhile, and then the write fails with
// what has arrived kept.
void require_space(const HubCache& cache, const std::vector<HubFile>& missing) {
    uint64_t needed = spare_bytes;
    for (const HubFile& file : missing) needed += file.size - std::min(file.size, existing_bytes(cache.incomplete(file)));
    std::error_code error;
    const fs::space_info space = fs::space(cache.root(), error);
    if (!error && space.available < needed)
        fail("the download needs {} but the disk of {} has only {} left: free some space, or set HF_HOME to another directory "
             "for the cache",
             mebibytes(needed), utf8_text(cache.root()), mebibytes(space.available));
}

uint64_t total_bytes(const std::vector<HubFile>& files) {
    uint64_t total = 0; // cannot overflow: at most 10,000 files of 2^50 bytes
    for (const HubFile& file : files) total += file.size;
    return total;
}

// `has_copy`: true if the cache has the model, so that nobody should wait for a hub that does not answer.
fs::path download(const HubCache& cache, const HubTarget& target, const HubOptions& options, bool has_copy) {
    HubOptions asking = options;
    if (has_copy) asking.retries = 0;
    const auto connect_timeout = has_copy ? std::min(options.connect_timeout, patience_with_copy) : options.connect_timeout;
    HttpClient http(options.endpoint, options.token, connect_timeout, options.stall_timeout);
    if (!options.token.empty() && !http.sends_token() && options.note)
        options.note(fmt::format("{} is not encrypted: the access token is not sent", options.endpoint));
    const std::string commit = find_commit(http, target.repository, asking);
    const HubChoice choice = choose_files(list_files(http, target.repository, commit, asking), target);
    std::vector<HubFile> missing;
    std::copy_if(choice.files.begin(), choice.files.end(), std::back_inserter(missing),
                 [&](const HubFile& file) { return !cache.has(commit, file); });
    cache.make_folders();
    require_space(cache, missing);
    const uint64_t total = total_bytes(choice.files), missing_bytes = total_bytes(missing);
    Download all{.http = http,
                 .cache = cache,
                 .options = options,
                 .repository = target.repository,
                 .commit = commit,
                 .progress = {"", total - missing_bytes, total, 0}};
    if (missing_bytes > 0 && options.note)
        options.note(fmt::format("downloading {}: {} in {} {} to {}", target.repository, mebibytes(missing_bytes), missing.size(),
                                 missing.size() == 1 ? "file" : "files", utf8_text(cache.root())));
    for (const HubFile& file : missing) {
        all.fetch(file);
        cache.add_to_snapshot(commit, file);
    }
    cache.set_commit(commit);
    return path_of(cache, commit, choice);
}

} // namespace

fs::path fetch_model(const HubRequest& request, const HubOptions& given) {
    HubOptions options = given;
    while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
    const HubTarget target = parse(without_address(request, options.endpoint));
    const HubCache cache(options.cache, target.repository);
    if (options.offline) return find_cached(cache, target);
    fs::path cached;
    try {
        cached = find_cached(cache, target);
    } catch (const Error&) { // there is none yet
    }
    try {
        return download(cache, target, options, !cached.empty());
    } catch (const Unreachable& unreachable) {
        if (cached.empty()) throw Error(fmt::format("{}; {}", unreachable.what(), unreachable.remedy));
        if (options.note)
            options.note(fmt::format("{}: using the copy in the cache (--offline does so without asking)", unreachable.what()));
        return cached;
    }
}

} // namespace tq
