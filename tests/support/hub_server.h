// The hub on loopback from which the tests download (hub_server.py), and a cache directory for them.
#pragma once
#include "base/child_process.h"
#include "model/hub/hub.h"
#include "tests/support/skip.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>
#include <memory>
#include <nlohmann/json.hpp>

namespace tq::test {

// The commit that every repository of the server is at.
inline const std::string hub_commit = "0123456789abcdef0123456789abcdef01234567";

class HubServer {
  public:
    // nullptr, with a message of the test, if Python is missing or the build has no downloads.
    static HubServer* find() {
        static const std::unique_ptr<HubServer> server = start(TQ_SOURCE_DIR);
        if (!server) test::skip("the hub of the tests needs python3 and a build with downloads");
        return server.get();
    }

    std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
    int port() const { return port_; }

    // The requests since the last call: objects with port, path, range and authorization.
    nlohmann::json take_log();

  private:
    static std::unique_ptr<HubServer> start(const std::filesystem::path& source_directory);
    explicit HubServer(const std::filesystem::path& source_directory);
    ChildProcess process_;
    int port_ = 0;
};

// An empty cache directory that is removed with the object.
class TemporaryCache {
  public:
    TemporaryCache();
    ~TemporaryCache();
    TemporaryCache(const TemporaryCache&) = delete;
    TemporaryCache& operator=(const TemporaryCache&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path folder(const std::string& repository) const; // "cut": models--test--cut
    // The names of the files in a directory of it; empty if there is none.
    static std::vector<std::string> names(const std::filesystem::path& directory);

  private:
    std::filesystem::path path_;
};

// Options as from an environment with the server and the cache; retries without delay.
HubOptions options_for(const HubServer& server, const TemporaryCache& cache);

} // namespace tq::test
