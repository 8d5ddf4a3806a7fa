// A redis-server of the test's own on a free port. POSIX only.
#pragma once
#include "base/error.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include <chrono>
#include <csignal>
#include <fstream>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace tq::test {

// A socket on 127.0.0.1 and a port that the system chooses; the port is free again when it is closed.
struct LocalSocket {
    int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    uint16_t port = 0;

    LocalSocket() {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        const int yes = 1;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
            getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0)
            port = ntohs(address.sin_port);
    }
    LocalSocket(const LocalSocket&) = delete;
    ~LocalSocket() { close(fd); }
};

class RedisServer {
  public:
    explicit RedisServer(std::vector<std::string> more = {}) : port_(LocalSocket().port), more_(std::move(more)) { start(); }
    RedisServer(const RedisServer&) = delete;
    ~RedisServer() { kill(); }

    bool is_there() const { return pid_ > 0; } // false: this machine has no redis-server
    uint16_t port() const { return port_; }

    void start() {
        std::filesystem::remove(pid_file());
        std::vector<std::string> arguments{"redis-server", "--bind",      "127.0.0.1", "--port",    std::to_string(port_),
                                           "--dir",        directory(),   "--save",    "",          "--appendonly",
                                           "no",           "--daemonize", "yes",       "--pidfile", pid_file()};
        arguments.insert(arguments.end(), more_.begin(), more_.end());
        try {
            if (run({arguments, {}, {}}).status != 0) return;
        } catch (const tq::Error&) {
            return; // it is not installed
        }
        for (int i = 0; i < 400 && pid_ <= 0; i++) {
            std::this_thread::sleep_for(std::chrono::milliseconds(25));
            std::ifstream(pid_file()) >> pid_;
        }
        for (int i = 0; i < 400 && !cli({"PING"}).starts_with("PONG"); i++)
            std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        pid_ = 0;
        for (int i = 0; i < 400 && listens(); i++) std::this_thread::sleep_for(std::chrono::milliseconds(5)); // it dies soon
    }
    void signal(int number) const { ::kill(pid_, number); }
    // Returns the output of redis-cli.
    std::string cli(std::vector<std::string> words) const {
        std::vector<std::string> arguments{"redis-cli", "-p", std::to_string(port_)};
        for (size_t i = 0; i + 1 < more_.size(); i++)
            if (more_[i] == "--requirepass") arguments.insert(arguments.end(), {"--no-auth-warning", "-a", more_[i + 1]});
        arguments.insert(arguments.end(), words.begin(), words.end());
        return run({arguments, {}, {}}).output;
    }

  private:
    bool listens() const {
        const LocalSocket client;
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(port_);
        return connect(client.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    }
    std::string directory() const { return directory_.path().string(); }
    std::string pid_file() const { return directory() + "/pid"; }

    const TemporaryDirectory directory_;
    const uint16_t port_;
    const std::vector<std::string> more_;
    pid_t pid_ = 0;
};

} // namespace tq::test
