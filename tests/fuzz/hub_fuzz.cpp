// A hub's answers: pages separated by lines with a single "-", each with headers, an empty line and a body. The repository's
// files are listed and chosen.
#include "model/hub/http_head.h"
#include "model/hub/listing.h"
#include "model/hub/names.h"
#include "tests/fuzz/fuzz_target.h"
#include <vector>

namespace {

std::vector<std::string_view> pages;
size_t asked = 0;

} // namespace

namespace tq { // replaces model/hub/curl/http.cpp: returns the pages one after the other, then nothing

struct HttpClient::Impl {};
HttpClient::HttpClient(const std::string&, const std::string&, std::chrono::seconds, std::chrono::seconds) {}
HttpClient::~HttpClient() = default;
bool HttpClient::sends_token() const { return false; }

HttpResult HttpClient::get(const std::string&, uint64_t, const HttpSink& sink) {
    HttpHead head;
    std::string_view page = asked < pages.size() ? pages[asked] : std::string_view();
    asked++;
    while (!page.empty()) {
        const size_t end = std::min(page.find('\n'), page.size());
        const std::string_view line = page.substr(0, end);
        page.remove_prefix(std::min(end + 1, page.size()));
        if (line.empty()) break;
        read_header(head, line);
    }
    if (head.status >= 200 && head.status < 300) {
        sink.begin(head);
        sink.body(std::as_bytes(std::span(page)));
    }
    return {head, HttpEnd::complete, {}};
}

} // namespace tq

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    pages.clear();
    asked = 0;
    std::string_view all = tq::fuzz::text(data, size);
    for (size_t cut; !all.empty(); all.remove_prefix(std::min(cut + 3, all.size()))) {
        cut = std::min(all.find("\n-\n"), all.size());
        pages.push_back(all.substr(0, cut));
    }
    return tq::fuzz::run([] {
        tq::HubOptions options;
        options.endpoint = "http://hub.example";
        options.retries = 0;
        tq::HttpClient http(options.endpoint, "", {}, {});
        const std::string commit = tq::find_commit(http, "user/model", options);
        const auto files = tq::list_files(http, "user/model", commit, options);
        for (const tq::HubFile& file : tq::choose_files(files, {"user/model", "", ""}).files)
            if (!tq::is_safe_file_name(file.path)) std::abort();
    });
}
