// Reads the hub's answers about a repository: the commit of its branch, and the files at that commit in pages of JSON, each with
// a link to the next. The server need not be Hugging Face's (MODEL_ENDPOINT), so everything has limits: bytes of a reply, depth
// of its JSON, pages, files, the size of a file. Each file must have a size and an object id of the right form, for the download
// relies on both.
#include "model/hub/listing.h"
#include "base/json.h"
#include "base/printable.h"
#include "model/hub/names.h"
#include "model/hub/retry.h"

namespace tq {
namespace {

using Json = nlohmann::json;

constexpr size_t max_reply_bytes = 16 << 20;
constexpr JsonLimits limits{.max_depth = 32};
constexpr int max_pages = 200;
constexpr size_t max_files = 200'000;
constexpr uint64_t max_file_bytes = uint64_t(1) << 50;

struct Page {
    Json json;
    std::string link;
};

Page get_json(HttpClient& http, const std::string& url, const std::string& repository, const HubOptions& options) {
    std::string text;
    const auto keep_going = [&] { return !options.progress || options.progress({"", 0, 0, 0}); };
    const HttpSink sink{[&](const HttpHead&) {
                            text.clear();
                            return true;
                        },
                        [&](std::span<const std::byte> bytes) {
                            if (text.size() + bytes.size() > max_reply_bytes)
                                fail("the hub's answer about {} has more than {} MiB", repository, max_reply_bytes >> 20);
                            text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                            return true;
                        },
                        keep_going};
    Retry retry(options, http.sends_token(), repository, repository);
    while (true) {
        const HttpResult result = http.get(url, 0, sink);
        if (result.end == HttpEnd::stopped) throw DownloadStopped("stopped while asking the hub about " + repository);
        if (retry.succeeded(result, false, keep_going))
            return {build_json<Json>(text, "the hub's answer about " + repository, limits), result.head.link};
    }
}

// Returns the next page from a header "<URL>; rel="next", <URL>; rel="first"": RFC 8288.
std::string next_page(std::string_view link) {
    for (size_t open = link.find('<'); open != std::string_view::npos; open = link.find('<', open + 1)) {
        const size_t close = link.find('>', open);
        if (close == std::string_view::npos) break;
        const std::string_view parameters = link.substr(close, link.find(",", close) - close);
        if (parameters.find("rel=\"next\"") != std::string_view::npos || parameters.find("rel=next") != std::string_view::npos)
            return std::string(link.substr(open + 1, close - open - 1));
    }
    return {};
}

std::string text_of(const Json& item, const char* key) {
    const auto found = item.is_object() ? item.find(key) : item.end();
    return found != item.end() && found->is_string() ? found->get<std::string>() : std::string();
}

HubFile read_file(const Json& item, const std::string& repository) {
    HubFile file{text_of(item, "path")};
    const Json& large = item.contains("lfs") && item["lfs"].is_object() ? item["lfs"] : item;
    file.oid = lowercase(text_of(large, "oid"));
    if (file.oid.starts_with("sha256:")) file.oid.erase(0, 7);
    const auto size = large.find("size");
    if (file.path.empty() || !is_object_id(file.oid) || size == large.end() || !size->is_number_unsigned() ||
        size->get<uint64_t>() > max_file_bytes)
        fail("the hub's list of the files of {} is broken at '{}': no size or no checksum", repository, printable(file.path));
    file.size = size->get<uint64_t>();
    return file;
}

} // namespace

std::string find_commit(HttpClient& http, const std::string& repository, const HubOptions& options) {
    const Page page =
        get_json(http, fmt::format("{}/api/models/{}/revision/main", options.endpoint, repository), repository, options);
    const std::string commit = lowercase(text_of(page.json, "sha"));
    if (!is_commit(commit)) fail("the hub's answer about {} names no commit: is {} a hub?", repository, options.endpoint);
    return commit;
}

std::vector<HubFile> list_files(HttpClient& http, const std::string& repository, const std::string& commit,
                                const HubOptions& options) {
    std::vector<HubFile> files;
    std::string url = fmt::format("{}/api/models/{}/tree/{}?recursive=true", options.endpoint, repository, commit);
    for (int pages = 0; !url.empty(); pages++) {
        if (pages == max_pages) fail("the hub lists the files of {} on more than {} pages", repository, max_pages);
        const Page page = get_json(http, url, repository, options);
        if (!page.json.is_array()) fail("the hub's list of the files of {} is not a list", repository);
        for (const Json& item : page.json)
            if (text_of(item, "type") == "file") files.push_back(read_file(item, repository));
        if (files.size() > max_files) fail("the hub lists more than {} files in {}", max_files, repository);
        url = next_page(page.link);
        if (url.starts_with('/')) url = options.endpoint + url;
    }
    return files;
}

} // namespace tq
