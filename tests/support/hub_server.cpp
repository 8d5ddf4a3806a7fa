#include "tests/support/hub_server.h"
#include "model/hub/http.h"
#include <algorithm>
#include <atomic>
#include <cstdio>

namespace tq::test {

namespace fs = std::filesystem;

HubServer::HubServer(const fs::path& source_directory)
    : process_({"python3", (source_directory / "tests/support/hub_server.py").string(),
                (source_directory / "tools/demo-model/demo-q8_0.gguf").string()},
               {}) {
    std::optional<std::string> line;
    for (int tries = 0; tries < 30 && !line && !process_.output_ended(); tries++)
        line = process_.read_line(std::chrono::seconds(1));
    if (!line || std::sscanf(line->c_str(), "%d", &port_) != 1)
        fail("tests/support/hub_server.py does not start: {}", line.value_or("it says nothing"));
}

std::unique_ptr<HubServer> HubServer::start(const fs::path& source_directory) {
    try {
        HttpClient("http://127.0.0.1", "", std::chrono::seconds(1),
                   std::chrono::seconds(1)); // throws in a build without downloads
        return std::unique_ptr<HubServer>(new HubServer(source_directory));
    } catch (const Error& error) {
        const std::string_view what = error.what();
        if (what.starts_with("cannot start python3") || what.starts_with("this build cannot download")) return nullptr;
        throw;
    }
}

nlohmann::json HubServer::take_log() {
    HttpClient http(url(), "", std::chrono::seconds(10), std::chrono::seconds(10));
    std::string text;
    http.get(url() + "/log", 0,
             {[](const HttpHead&) { return true; },
              [&](std::span<const std::byte> bytes) {
                  text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                  return true;
              },
              [] { return true; }});
    return nlohmann::json::parse(text);
}

TemporaryCache::TemporaryCache() {
    static const auto start = std::chrono::steady_clock::now().time_since_epoch().count();
    static std::atomic<int> count = 0;
    path_ = fs::temp_directory_path() / ("tq-hub-" + std::to_string(start) + '-' + std::to_string(count++));
    fs::create_directories(path_);
}

TemporaryCache::~TemporaryCache() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

fs::path TemporaryCache::folder(const std::string& repository) const { return path_ / ("models--test--" + repository); }

std::vector<std::string> TemporaryCache::names(const fs::path& directory) {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(directory, none)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

HubOptions options_for(const HubServer& server, const TemporaryCache& cache) {
    HubOptions options;
    options.endpoint = server.url();
    options.cache = cache.path();
    options.retry_delay = std::chrono::milliseconds(1);
    return options;
}

} // namespace tq::test
