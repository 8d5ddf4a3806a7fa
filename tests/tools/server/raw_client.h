// A client that sends any bytes, as fast or as slowly as a test wants.
#pragma once
#include <arpa/inet.h>
#include <chrono>
#include <cstdint>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

namespace tq {

class RawClient {
  public:
    explicit RawClient(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
        sockaddr_in address = {};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    }
    ~RawClient() { close(); }
    RawClient(RawClient&& other) noexcept : socket_(other.socket_), connected_(other.connected_) { other.socket_ = -1; }
    RawClient(const RawClient&) = delete;
    RawClient& operator=(const RawClient&) = delete;

    bool connected() const { return connected_; }
    int socket() const { return socket_; }
    void close() {
        if (socket_ >= 0) ::close(socket_);
        socket_ = -1;
    }
    // False if the server has closed the connection.
    bool send(std::string_view bytes) {
        while (!bytes.empty()) {
            const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (n <= 0) return false;
            bytes.remove_prefix(size_t(n));
        }
        return true;
    }
    // Reads until the server closes, or until `end` has come.
    std::string read(std::string_view end = {}, std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
        const auto until = std::chrono::steady_clock::now() + timeout;
        std::string all;
        char bytes[4096];
        while (end.empty() || all.find(end) == all.npos) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
            pollfd one = {socket_, POLLIN, 0};
            if (left.count() <= 0 || ::poll(&one, 1, int(left.count())) <= 0) return all + "(nothing more came in time)";
            const ssize_t n = ::recv(socket_, bytes, sizeof(bytes), 0);
            if (n < 0) return all + "(reset)";
            if (n == 0) return all;
            all.append(bytes, size_t(n));
        }
        return all;
    }
    std::string ask(std::string_view request) {
        send(request);
        return read();
    }

  private:
    int socket_;
    bool connected_ = false;
};

inline int status_of(const std::string& reply) {
    return reply.starts_with("HTTP/1.1 ") && reply.size() > 12 ? std::stoi(reply.substr(9, 3)) : 0;
}
inline std::string body_of(const std::string& reply) {
    const size_t end = reply.find("\r\n\r\n");
    return end == reply.npos ? "" : reply.substr(end + 4);
}
inline std::string get(const std::string& path, const std::string& headers = {}) {
    return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers + "\r\n";
}
inline std::string post(const std::string& path, const std::string& body, const std::string& headers = {}) {
    return "POST " + path +
           " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
           headers + "\r\n" + body;
}

} // namespace tq
