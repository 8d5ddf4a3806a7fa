// The hub on loopback that the tests download from (hub_server.py), and a cache of their own.
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
    // nullptr, with a message of the test, where there is no Python or the build has no downloads.
    static HubServer* find() {
        static const std::unique_ptr<HubServer> server = start(TQ_SOURCE_DIR);
        if (!server) test::skip("the hub of the tests needs python3 and a build with downloads");
        return server.get();
    }

    std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
    int port() const { return port_; }

    // What was asked for since the last call: objects with port, path, range and authorization.
    nlohmann::json take_log();

  private:
    static std::unique_ptr<HubServer> start(const std::filesystem::path& source_directory);
    explicit HubServer(const std::filesystem::path& source_directory);
    ChildProcess process_;
    int port_ = 0;
};

// An empty cache directory that goes away with the object.
class TemporaryCache {
  public:
    TemporaryCache();
    ~TemporaryCache();
    TemporaryCache(const TemporaryCache&) = delete;
    TemporaryCache& operator=(const TemporaryCache&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path folder(const std::string& repository) const; // "cut": models--test--cut
    // Files in a directory of it, by name; empty where there is none.
    static std::vector<std::string> names(const std::filesystem::path& directory);

  private:
    std::filesystem::path path_;
};

// As from an environment that names the server and the cache; retries without delay.
HubOptions options_for(const HubServer& server, const TemporaryCache& cache);

} // namespace tq::test
