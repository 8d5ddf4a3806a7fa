// TLS with a certificate that openssl makes; curl is the client.
#include "base/error.h"
#include "tests/support/skip.h"
#include "tests/tools/server/raw_client.h"
#include "tools/server/http_server.h"
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

using namespace tq;
using namespace tq::server;
using namespace std::chrono_literals;

namespace {

struct Certificates {
    Certificates() {
        std::filesystem::create_directories(directory);
        made =
            run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext "
                "subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout key.pem -out cert.pem") &&
            run("openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out other.pem");
    }
    ~Certificates() { std::filesystem::remove_all(directory); }
    bool run(const std::string& command) const {
        return std::system(("cd '" + directory.string() + "' && " + command + " >log 2>&1").c_str()) == 0;
    }
    std::string read(const char* name) const {
        std::ifstream file(directory / name);
        std::ostringstream text;
        text << file.rdbuf();
        return text.str();
    }
    std::string path(const char* name) const { return (directory / name).string(); }
    const std::filesystem::path directory = std::filesystem::temp_directory_path() / ("tq-tls-" + std::to_string(::getpid()));
    bool made = false;
};

HttpReply answer(const HttpRequest& request) {
    HttpReply reply{.body = std::to_string(request.body.size()), .type = "text/plain"};
    if (request.path == "/stream")
        reply.stream = [](const Send& send) {
            for (int i = 0; i < 100; i++) send(std::string(10'000, 'x'));
        };
    return reply;
}
HttpReply refuse(int status, const std::string& reason, const std::string&) { return {.status = status, .body = reason}; }

} // namespace

TEST_CASE("TLS: requests, streams, clients without TLS, wrong files") {
    const Certificates files;
    if (!files.made || std::system("curl --version >/dev/null 2>&1") != 0) {
        test::skip("there is no openssl or no curl here");
        return;
    }
    HttpServer server({.certificate_file = files.path("cert.pem"), .key_file = files.path("key.pem"), .head_timeout = 3s}, answer,
                      refuse);
    const std::string url = "https://localhost:" + std::to_string(server.port());
    const std::string curl = "curl -sS --max-time 20 --cacert cert.pem ";
    REQUIRE(files.run(curl + "-d hello " + url + "/ -o body"));
    CHECK(files.read("body") == "5");
    REQUIRE(files.run("head -c 3000000 /dev/zero >zeros && " + curl + "--data-binary @zeros " + url + "/ -o body"));
    CHECK(files.read("body") == "3000000");
    REQUIRE(files.run(curl + url + "/stream -o body"));
    CHECK(files.read("body").size() == 1'000'000);
    REQUIRE(files.run(curl + url + "/ " + url + "/ " + url + "/stream -o 1 -o 2 -o body")); // on one connection
    CHECK(files.read("body").size() == 1'000'000);
    CHECK(!files.run("curl -sS --max-time 20 --tls-max 1.1 --cacert cert.pem " + url + "/ -o body"));
    RawClient plain(server.port()), silent(server.port());
    plain.send(get("/"));
    CHECK(plain.read().find("200 OK") == std::string::npos);
    CHECK(silent.read().empty()); // a handshake that never comes
    REQUIRE(files.run(curl + url + "/ -o body"));

    const auto opens = [&](const char* certificate, const char* key) {
        HttpServer wrong({.certificate_file = files.path(certificate), .key_file = files.path(key)}, answer, refuse);
    };
    CHECK_THROWS_WITH_AS(opens("missing.pem", "key.pem"), doctest::Contains("missing.pem is not a readable certificate"), Error);
    CHECK_THROWS_WITH_AS(opens("cert.pem", "log"), doctest::Contains("log is not, in PEM format, the private key"), Error);
    CHECK_THROWS_WITH_AS(opens("cert.pem", "other.pem"),
                         doctest::Contains("other.pem is not, in PEM format, the private key of the certificate"), Error);
}

TEST_CASE("TLS: a client that goes away is noticed") {
    const Certificates files;
    if (!files.made || std::system("curl --version >/dev/null 2>&1") != 0) {
        test::skip("there is no openssl or no curl here");
        return;
    }
    std::atomic<bool> began = false, gone = false;
    const auto wait = [&](const HttpRequest& request) {
        began = true;
        for (int i = 0; i < 4000 && !gone; i++) {
            gone = request.disconnected();
            std::this_thread::sleep_for(5ms);
        }
        return HttpReply{};
    };
    HttpServer server({.certificate_file = files.path("cert.pem"), .key_file = files.path("key.pem")}, wait, refuse);
    files.run("{ curl -sS --max-time 60 --cacert cert.pem https://localhost:" + std::to_string(server.port()) +
              "/ & echo $! >pid; }");
    for (int i = 0; i < 4000 && !began; i++) std::this_thread::sleep_for(5ms);
    REQUIRE(began);
    CHECK(!gone);
    files.run("kill $(cat pid)");
    for (int i = 0; i < 2000 && !gone; i++) std::this_thread::sleep_for(5ms); // half as long as its handler waits
    CHECK(gone);
}
