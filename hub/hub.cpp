#include "hub/hub.h"
#include "base/file_system.h"
#include "base/printable.h"
#include "hub/download.h"
#include "hub/listing.h"
#include "hub/names.h"
#include "hub/retry.h"
#include <algorithm>

namespace tq {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t spare_bytes = 16 << 20; // that a download leaves free on the disk

HubTarget parse(const HubRequest& request) {
    const size_t colon = request.repository.find(':');
    HubTarget target{request.repository.substr(0, colon), colon == std::string::npos ? "" : request.repository.substr(colon + 1),
                     request.file};
    const auto is_sign = [](char c) { return c == '-' || c == '_' || c == '.' || std::isalnum(static_cast<unsigned char>(c)); };
    if (!is_repository_name(target.repository))
        fail("'{}' names no repository: it must be USER/REPOSITORY or USER/REPOSITORY:QUANT, such as Qwen/Qwen3-4B-GGUF:Q8_0",
             printable(request.repository));
    if ((colon != std::string::npos && target.quant.empty()) || !std::all_of(target.quant.begin(), target.quant.end(), is_sign))
        fail("'{}' is no quant: Q4_K_M or Q8_0 are", printable(target.quant));
    return target;
}

fs::path path_of(const HubCache& cache, const std::string& commit, const HubChoice& choice) {
    return choice.model.empty() ? cache.snapshot(commit) : cache.snapshot(commit) / utf8_path(choice.model);
}

fs::path find_cached(const HubCache& cache, const HubTarget& target) {
    const std::string commit = cache.commit();
    const auto files = commit.empty() ? std::vector<HubFile>() : cache.files(commit);
    if (files.empty())
        fail("nothing of {} is in the cache {}: run it once without --offline (and HF_HUB_OFFLINE)", target.repository,
             utf8_text(cache.root()));
    try {
        return path_of(cache, commit, choose_files(files, target));
    } catch (const Error& error) {
        fail("in the cache {}: {}; without --offline (and HF_HUB_OFFLINE) it would be downloaded", utf8_text(cache.root()),
             error.what());
    }
}

std::string mebibytes(uint64_t bytes) { return fmt::format("{:.1f} MiB", double(bytes) / (1 << 20)); }

uint64_t existing_bytes(const fs::path& path) {
    std::error_code error;
    const uint64_t bytes = fs::file_size(path, error);
    return error ? 0 : bytes;
}

void require_space(const HubCache& cache, const std::vector<HubFile>& missing) {
    uint64_t needed = spare_bytes;
    for (const HubFile& file : missing) needed += file.size - std::min(file.size, existing_bytes(cache.incomplete(file)));
    std::error_code error;
    const fs::space_info space = fs::space(cache.root(), error);
    if (!error && space.available < needed)
        fail("the download needs {} but the disk of {} has {}: make room, or name another place for the cache in HF_HOME",
             mebibytes(needed), utf8_text(cache.root()), mebibytes(space.available));
}

uint64_t total_bytes(const std::vector<HubFile>& files) {
    uint64_t total = 0; // cannot overflow: at most 10,000 files of 2^50 bytes
    for (const HubFile& file : files) total += file.size;
    return total;
}

fs::path download(const HubCache& cache, const HubTarget& target, const HubOptions& options) {
    HttpClient http(options.endpoint, options.token, options.connect_timeout, options.stall_timeout);
    if (!options.token.empty() && !http.sends_token() && options.note)
        options.note(fmt::format("{} is not encrypted: the access token is not sent", options.endpoint));
    const std::string commit = find_commit(http, target.repository, options);
    const HubChoice choice = choose_files(list_files(http, target.repository, commit, options), target);
    std::vector<HubFile> missing;
    std::copy_if(choice.files.begin(), choice.files.end(), std::back_inserter(missing),
                 [&](const HubFile& file) { return !cache.has(commit, file); });
    cache.make_folders();
    require_space(cache, missing);
    const uint64_t total = total_bytes(choice.files), wanted = total_bytes(missing);
    Download all{http, cache, options, target.repository, commit, {"", total - wanted, total, 0}};
    if (wanted > 0 && options.note)
        options.note(fmt::format("downloading {}: {} in {} {} to {}", target.repository, mebibytes(wanted), missing.size(),
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
    const HubTarget target = parse(request);
    HubOptions options = given;
    while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
    const HubCache cache(options.cache, target.repository);
    if (options.offline) return find_cached(cache, target);
    try {
        return download(cache, target, options);
    } catch (const Unreachable& unreachable) {
        fs::path cached;
        try {
            cached = find_cached(cache, target);
        } catch (const Error&) {
            throw Error(unreachable.what());
        }
        if (options.note) options.note(fmt::format("{}; taking the copy in the cache", unreachable.what()));
        return cached;
    }
}

} // namespace tq
