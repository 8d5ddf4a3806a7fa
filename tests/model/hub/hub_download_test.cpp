// Transfers from a hub, including its faults, and the resulting contents of the cache.
#include "model/hub/hub.h"
#include "tests/support/child_process.h"
#include "tests/support/hub_server.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_file.h"
#include <doctest/doctest.h>
#include <mutex>
#include <set>
#include <thread>
#ifndef _WIN32
#include <sys/stat.h>
#endif

using namespace tq;
using namespace tq::test;
namespace fs = std::filesystem;

namespace {

const fs::path demo_file = fs::path(TQ_SOURCE_DIR) / "tools" / "demo-model" / "demo-q8_0.gguf";

std::string error_of(const HubRequest& request, const HubOptions& options) {
    try {
        fetch_model(request, options);
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing was thrown";
}

// The requests in a log for files themselves.
std::vector<nlohmann::json> transfers(const nlohmann::json& log) {
    std::vector<nlohmann::json> found;
    for (const auto& request : log)
        if (request.at("path").get<std::string>().find("/resolve/") != std::string::npos) found.push_back(request);
    return found;
}

// Checks that the model of test/REPOSITORY is complete and in its place; returns its bytes.
std::string check_fetched(const std::string& repository, const HubOptions& options, const TemporaryCache& cache) {
    const fs::path path = fetch_model({"test/" + repository, ""}, options);
    CHECK(path == cache.folder(repository) / "snapshots" / hub_commit / "m-Q8_0.gguf");
    const auto blobs = TemporaryCache::names(cache.folder(repository) / "blobs");
    REQUIRE(blobs.size() == 1);
    CHECK(blobs[0].size() == 64);
    CHECK(fs::read_symlink(path) == fs::path("../../blobs/" + blobs[0]));
    CHECK(slurp(cache.folder(repository) / "refs" / "main") == hub_commit);
    const std::string bytes = slurp(path);
    CHECK(bytes.size() == 1'500'000);
    return bytes;
}

// The only partially downloaded file.
fs::path partial_file(const TemporaryCache& cache, const std::string& repository) {
    const auto blobs = TemporaryCache::names(cache.folder(repository) / "blobs");
    REQUIRE(blobs.size() == 1);
    REQUIRE(blobs[0].ends_with(".incomplete"));
    return cache.folder(repository) / "blobs" / blobs[0];
}

} // namespace

TEST_CASE("a download lies in the cache as huggingface_hub would lay it, and is made once") {
    HubServer* server = HubServer::find();
    if (!server) return;
    const TemporaryCache cache;
    HubOptions options = options_for(*server, cache);
    options.endpoint += "/"; // as some users write it
    HubProgress last;
    bool grows = true;
    options.progress = [&](const HubProgress& progress) {
        if (progress.total == 0) return true;
        grows &= progress.done >= last.done;
        last = progress;
        return true;
    };
    std::vector<std::string> notes;
    options.note = [&](const std::string& text) { notes.push_back(text); };
    server->take_log();

    const fs::path path = fetch_model({"test/demo", ""}, options), folder = cache.folder("demo");
    CHECK(path == folder / "snapshots" / hub_commit / "demo-Q8_0.gguf");
    CHECK(slurp(path) == slurp(demo_file));
    CHECK(grows);
    CHECK(last.total == fs::file_size(demo_file));
    CHECK(last.done <= last.total);
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].starts_with("downloading test/demo: "));
    CHECK(TemporaryCache::names(folder) == std::vector<std::string>{"blobs", "refs", "snapshots"});
    CHECK(TemporaryCache::names(folder / "snapshots" / hub_commit) == std::vector<std::string>{"demo-Q8_0.gguf"}); // no projector
    const auto log = server->take_log();
    CHECK(log.size() == 3); // the commit, the list, the file
    CHECK(log[2]["range"] == "");

    CHECK(fetch_model({"test/demo:q8_0", ""}, options) == path);
    CHECK(transfers(server->take_log()).empty());
    CHECK(notes.size() == 1);

    // A second name for the same blobs costs no transfer; a blob of the wrong size does.
    fs::remove(path);
    CHECK(slurp(fetch_model({"test/demo", "DEMO-q8_0.gguf"}, options)) == slurp(demo_file));
    CHECK(transfers(server->take_log()).empty());
    fs::resize_file(path, 1000); // through the link
    CHECK(slurp(fetch_model({"test/demo", ""}, options)) == slurp(demo_file));
    CHECK(transfers(server->take_log()).size() == 1);

    // A renamed repository keeps its requested name; and everything is available offline.
    CHECK(fetch_model({"test/renamed:F16", ""}, options).parent_path().parent_path().parent_path() == cache.folder("renamed"));
    server->take_log();
    options.offline = true;
    CHECK(fetch_model({"test/demo", ""}, options) == path);
    CHECK(server->take_log().empty());
}

TEST_CASE("all parts of a split file; all files of a safetensors model, small ones by git's checksum") {
    HubServer* server = HubServer::find();
    if (!server) return;
    const TemporaryCache cache;
    const HubOptions options = options_for(*server, cache);
    const fs::path split = fetch_model({"test/split:Q8_0", ""}, options);
    CHECK(split.filename() == "m-Q8_0-00001-of-00003.gguf");
    for (int i = 1; i <= 3; i++)
        CHECK(fs::file_size(split.parent_path() / ("m-Q8_0-0000" + std::to_string(i) + "-of-00003.gguf")) ==
              uint64_t(50'000 + i));
    CHECK(fs::read_symlink(split).parent_path() == fs::path("../../../blobs")); // one folder deeper

    const fs::path directory = fetch_model({"test/safetensors", ""}, options);
    CHECK(directory == cache.folder("safetensors") / "snapshots" / hub_commit);
    CHECK(TemporaryCache::names(directory) ==
          std::vector<std::string>{"config.json", "merges.txt", "model-00001-of-00002.safetensors",
                                   "model-00002-of-00002.safetensors", "model.safetensors.index.json", "tokenizer.json"});
    CHECK(slurp(directory / "config.json") == "{\"model_type\": \"qwen3\"}");
    CHECK(fs::read_symlink(directory / "config.json").filename().string().size() == 40);
    CHECK(fs::is_regular_file(directory / "merges.txt")); // of no bytes
    CHECK(fetch_model({"test/safetensors", ""}, options) == directory);
}

TEST_CASE("a file list goes over several pages") {
    HubServer* server = HubServer::find();
    if (!server) return;
    const TemporaryCache cache;
    CHECK(fetch_model({"test/paged:Q7_0", ""}, options_for(*server, cache)).filename() == "m-Q7_0.gguf");
    CHECK(error_of({"test/paged:Q9_0", ""}, options_for(*server, cache)).find("Q1_0, Q2_0, Q3_0, Q4_0, Q5_0, Q6_0, Q7_0, Q8_0") !=
          std::string::npos);
}

TEST_CASE("a cut connection goes on where it was cut") {
    HubServer* server = HubServer::find();
    if (!server) return;
    const TemporaryCache cache;
    server->take_log();
    check_fetched("cut", options_for(*server, cache), cache);
    const auto requests = transfers(server->take_log());
    REQUIRE(requests.size() >= 4); // 400,000 bytes each, less what was on its way
    CHECK(requests[0]["range"] == "");
    for (size_t i = 1; i < requests.size(); i++) CHECK(requests[i]["range"].get<std::string>().starts_with("bytes="));
    // Without progress it must end: it gives up, and keeps no wrong bytes.
    HubOptions options = options_for(*server, cache);
    options.retries = 2;
    CHECK(error_of({"test/shorter", ""}, options).find("cannot fetch m-Q8_0.gguf") != std::string::npos);
    CHECK(transfers(server->take_log()).size() == 3);
}

TEST_CASE("what an earlier run left is continued, and is thrown away where it is wrong") {
    HubServer* server = HubServer::find();
    if (!server) return;
    for (const char* repository : {"plain", "norange"}) {
        CAPTURE(repository);
        const TemporaryCache whole, cache;
        const std::string bytes = check_fetched(repository, options_for(*server, whole), whole);
        const fs::path folder = cache.folder(repository) / "blobs";
        const fs::path partial = folder / (TemporaryCache::names(whole.folder(repository) / "blobs")[0] + ".incomplete");
        const auto resume = [&](const std::string& left) {
            std::error_code ignored;
            fs::remove_all(cache.folder(repository), ignored);
            fs::create_directories(folder);
            std::ofstream(partial, std::ios::binary) << left;
            server->take_log();
            CHECK(check_fetched(repository, options_for(*server, cache), cache) == bytes);
            return transfers(server->take_log());
        };
        const auto good = resume(bytes.substr(0, 1'000'000));
        CHECK(good[0]["range"] == "bytes=1000000-");
        CHECK(good.size() <= 2);
        const auto wrong = resume(std::string(1'000'000, 'x')); // the checksum detects it, at the end
        CHECK(wrong.size() == (repository == std::string("norange") ? 1 : 2));
        CHECK(wrong.back()["range"] == (wrong.size() == 1 ? "bytes=1000000-" : ""));
        CHECK(resume(bytes).empty()); // all bytes had arrived
        CHECK(resume(bytes + "more").at(0)["range"] == "");
        CHECK(resume(std::string(bytes.size(), 'y')).size() == 1);
    }
}

TEST_CASE("a server that sends another part than asked for is asked for the whole") {
    HubServer* server = HubServer::find();
    if (!server) return;
    const TemporaryCache whole, cache;
    const std::string bytes = check_fetched("plain", options_for(*server, whole), whole); // the same in both
    const fs::path folder = cache.folder("shifted") / "blobs";
    fs::create_directories(folder);
    std::ofstream(folder / (TemporaryCache::names(whole.folder("plain") / "blobs")[0] + ".incomplete"), std::ios::binary)
        << bytes.substr(0, 500'000);
    server->take_log();
    check_fetched("shifted", options_for(*server, cache), cache);
    const auto requests = transfers(server->take_log());
    REQUIRE(requests.size() == 2);
    CHECK(requests[0]["range"] == "bytes=500000-");
    CHECK(requests[1]["range"] == "");
}

TEST_CASE("a server that forgets ranges is asked no more than a few times, and one that talks nonsense of them once") {
    HubServer* server = HubServer::find();
    if (!server) return;
    for (const char* repository : {"norest", "rangeless"}) { // each whole answer is cut, after more than a useful part
        CAPTURE(repository);
        const TemporaryCache cache;
        HubOptions options = options_for(*server, cache);
        int asked = 0;
        options.progress = [&](const HubProgress& progress) { // stops the test, should it not end by itself
            return progress.received < 40'000'000 && ++asked < 100'000;
        };
        server->take_log();
        CHECK(error_of({std::string("test/") + repository, ""}, options).find("after 6 attempts") != std::string::npos);
        CHECK(transfers(server->take_log()).size() < 20);
    }
    const TemporaryCache cache;
    server->take_log();
    CHECK(error_of({"test/badrange", ""}, options_for(*server, cache)) ==
          "the server does not say which part of m-Q8_0.gguf it sends (Content-Range: bytes 99999999999999999999999-): try again "
          "later");
    CHECK(transfers(server->take_log()).size() == 2);
}

#ifndef _WIN32
TEST_CASE("what lies in a file's place and is none is left alone: links, and pipes that would wait") {
    HubServer* server = HubServer::find();
    if (!server) return;
    for (const bool pipe : {false, true}) {
        CAPTURE(pipe);
        const TemporaryCache whole, cache;
        const HubOptions options = options_for(*server, cache);
        check_fetched("plain", options_for(*server, whole), whole);
        const fs::path folder = cache.folder("plain") / "blobs";
        const fs::path partial = folder / (TemporaryCache::names(whole.folder("plain") / "blobs")[0] + ".incomplete");
        const fs::path victim = cache.path() / "victim";
        fs::create_directories(folder);
        std::ofstream(victim) << "mine";
        if (pipe)
            REQUIRE(::mkfifo(partial.c_str(), 0600) == 0);
        else
            fs::create_symlink(victim, partial);
        const std::string error = error_of({"test/plain", ""}, options);
        CHECK(error.find(pipe ? "is not a regular file, and tq-run has not made it: remove it"
                              : "is a link, which tq-run has not made: remove it") != std::string::npos);
        CHECK(slurp(victim) == "mine");
        fs::remove(partial);
        check_fetched("plain", options, cache);
    }
}
#endif

TEST_CASE("bytes with another checksum or size are refused and not kept") {
    HubServer* server = HubServer::find();
    if (!server) return;
    const TemporaryCache cache;
    const HubOptions options = options_for(*server, cache);
    CHECK(error_of({"test/corrupt", ""}, options).find("m-Q8_0.gguf arrived with the checksum ") == 0);
    CHECK(TemporaryCache::names(cache.folder("corrupt") / "blobs").empty());
    CHECK(TemporaryCache::names(cache.folder("corrupt") / "snapshots").empty());
    CHECK(error_of({"test/longer", ""}, options).find("sends more than the 1499000 bytes") != std::string::npos);
    CHECK(TemporaryCache::names(cache.folder("longer") / "snapshots").empty());
}

TEST_CASE("the token stays with the hub's own host") {
    HubServer* server = HubServer::find();
    if (!server) return;
    const TemporaryCache cache;
    HubOptions options = options_for(*server, cache);
    options.token = "hf_good";
    server->take_log();
    check_fetched("cdn", options, cache);
    int elsewhere = 0;
    for (const auto& request : server->take_log()) {
        const bool is_hub = request["port"] == server->port();
        CHECK(request["authorization"] == (is_hub ? "Bearer hf_good" : ""));
        elsewhere += !is_hub;
    }
    CHECK(elsewhere == 1);
    check_fetched("private", options, cache);
    options.token = "hf_wrong";
    const std::string error = error_of({"test/private", ""}, options);
    CHECK(error.find("does not accept the access token") != std::string::npos);
    CHECK(error.find("hf_wrong") == std::string::npos);
}

TEST_CASE("a hub that is busy is asked again") {
    HubServer* server = HubServer::find();
    if (!server) return;
    const TemporaryCache cache;
    server->take_log();
    check_fetched("busy", options_for(*server, cache), cache);
    CHECK(server->take_log().size() == 9); // each of three fails twice
}

TEST_CASE("a stopped download keeps what has arrived; a server that falls silent does not hold it") {
    HubServer* server = HubServer::find();
    if (!server) return;
    const TemporaryCache cache;
    HubOptions options = options_for(*server, cache);
    options.progress = [](const HubProgress& progress) { return progress.received < 200'000; };
    CHECK_THROWS_AS(fetch_model({"test/slow", ""}, options), DownloadStopped);
    const auto kept = fs::file_size(partial_file(cache, "slow"));
    CHECK(kept >= 200'000);
    CHECK(kept < 1'500'000);
    options.progress = nullptr;
    server->take_log();
    check_fetched("slow", options, cache);
    CHECK(transfers(server->take_log()).at(0)["range"] == "bytes=" + std::to_string(kept) + "-");

    // Nothing arrives, but the callback is still called, and its answer is respected.
    const auto start = std::chrono::steady_clock::now();
    options.progress = [&](const HubProgress&) { return std::chrono::steady_clock::now() - start < std::chrono::seconds(2); };
    CHECK_THROWS_AS(fetch_model({"test/stall", ""}, options), DownloadStopped);
    options.progress = nullptr;
    options.stall_timeout = std::chrono::seconds(1);
    options.retries = 0;
    CHECK(error_of({"test/stall", ""}, options).find("cannot fetch m-Q8_0.gguf") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}

TEST_CASE("two at a time make one transfer") {
    HubServer* server = HubServer::find();
    if (!server) return;
    const TemporaryCache cache;
    server->take_log();
    std::vector<std::string> notes;
    std::mutex mutex;
    HubOptions options = options_for(*server, cache);
    options.note = [&](const std::string& text) {
        const std::lock_guard guard(mutex);
        notes.push_back(text);
    };
    fs::path paths[3];
    {
        std::vector<std::jthread> threads;
        for (fs::path& path : paths) threads.emplace_back([&] { path = fetch_model({"test/slow", ""}, options); });
    }
    CHECK(paths[0] == paths[1]);
    CHECK(paths[0] == paths[2]);
    CHECK(transfers(server->take_log()).size() == 1);
    CHECK(std::count(notes.begin(), notes.end(), "another process is downloading m-Q8_0.gguf: waiting for it") == 2);
    check_fetched("slow", options, cache);
}

TEST_CASE("a host that does not prove who it is gets nothing") {
    if (!HubServer::find()) return; // Python is missing
    const TemporaryCache cache;
    const std::string key = (cache.path() / "key.pem").string(), certificate = (cache.path() / "certificate.pem").string();
    try {
        const Finished made = run({{"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days",
                                    "2", "-keyout", key, "-out", certificate}});
        REQUIRE(made.status == 0);
    } catch (const Error&) {
        test::skip("the openssl program, which makes a certificate, is not here");
        return;
    }
    const TemporaryFile script("import http.server, ssl, sys\n"
                               "server = http.server.HTTPServer(('127.0.0.1', 0), http.server.BaseHTTPRequestHandler)\n"
                               "context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n"
                               "context.load_cert_chain(sys.argv[1], sys.argv[2])\n"
                               "server.socket = context.wrap_socket(server.socket, server_side=True)\n"
                               "sys.stdout.write('%d\\n' % server.server_address[1])\n"
                               "sys.stdout.flush()\n"
                               "server.serve_forever()\n");
    ChildProcess server({"python3", script.path().string(), certificate, key}, {});
    HubOptions options;
    options.cache = cache.path();
    options.endpoint = "https://localhost:" + server.read_line(std::chrono::seconds(30)).value_or("1");
    const std::string error = error_of({"test/demo", ""}, options);
    INFO(error);
    CHECK(error.find("could not be verified") != std::string::npos);
}
