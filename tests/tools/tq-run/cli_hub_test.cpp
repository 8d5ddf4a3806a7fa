// Downloads by the program itself.
#include "tests/support/child_process.h"
#include "tests/support/hub_server.h"
#include "tests/support/text.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>

using namespace tq;
using namespace tq::test;

TEST_CASE("-hf downloads a model and runs it, then runs it offline") {
    HubServer* server = HubServer::find();
    if (!server) return;
    const TemporaryCache cache;
    const std::vector<std::string> environment{"HF_ENDPOINT=" + server->url(), "LLAMA_CACHE=" + cache.path().string(),
                                               "HF_TOKEN=hf_good"};
    const std::vector<std::string> prompt{"--device", "cpu", "-p", "Once upon a time", "-n", "4", "--temp", "0"};
    const auto generate = [&](std::vector<std::string> model) {
        model.insert(model.begin(), "generate");
        model.insert(model.end(), prompt.begin(), prompt.end());
        return tq_run(model, {}, environment);
    };
    const Finished expected = generate({"-m", TQ_SOURCE_DIR "/tools/demo-model/demo-q8_0.gguf"});
    REQUIRE(expected.status == 0);
    server->take_log();
    const Finished downloaded = generate({"-hf", "test/demo:Q8_0"});
    CHECK_MESSAGE(downloaded.status == 0, downloaded.error);
    CHECK(downloaded.output == expected.output);
    CHECK(downloaded.error.starts_with("tq-run: downloading test/demo: "));
    CHECK(downloaded.error.find("hf_good") == std::string::npos);
    CHECK(server->take_log().at(0)["authorization"] == "Bearer hf_good");

    for (const std::vector<std::string>& again :
         std::vector<std::vector<std::string>>{{"--hf-repo", "test/demo", "--offline"},
                                               {"-hfr=test/demo", "--offline"},
                                               {"-hf", "test/demo", "-hff", "demo-q8_0.gguf", "--offline"}}) {
        const Finished finished = generate(again);
        CHECK_MESSAGE(finished.status == 0, finished.error);
        CHECK(finished.output == expected.output);
    }
    CHECK(server->take_log().empty());
    CHECK(tq_run({"tokenize", "-hf", "test/demo", "--offline", "--text", "Tom"}, {}, environment).status == 0);
    CHECK(tq_run({"template", "-hf", "test/demo", "--offline"}, "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}",
                 environment)
              .status == 0);
    CHECK(tq_run({"logits", "-hf", "test/demo", "--device", "cpu", "--ids", "1", "-hft", "hf_other"}, {}, environment).status ==
          0);
    CHECK(server->take_log().at(0)["authorization"] == "Bearer hf_other");
}

TEST_CASE("what cannot be downloaded is one line, and a wrong use another") {
    HubServer* server = HubServer::find();
    if (!server) return;
    const TemporaryCache cache;
    const std::vector<std::string> environment{"MODEL_ENDPOINT=" + server->url(), "LLAMA_CACHE=" + cache.path().string(),
                                               "HF_TOKEN="};
    struct Case {
        std::vector<std::string> arguments;
        int status;
        std::string text;
    };
    for (const Case& c : std::vector<Case>{{{"-hf", "test/demo:Q2_K"}, 1, "its quants: F16, Q8_0"},
                                           {{"-hf", "test/absent"}, 1, "has no test/absent"},
                                           {{"-hf", "test/private"}, 1, "set HF_TOKEN"},
                                           {{"-hf", "demo"}, 1, "names no repository"},
                                           {{"-hf", "test/demo", "--offline"}, 1, "no file of test/demo is in the cache"},
                                           {{"-hf", ""}, 2, "--hf-repo: it is empty"},
                                           {{"-hf", "test/demo", "-m", "x.gguf"}, 2, "cannot be used together"},
                                           {{"-hff", "x.gguf"}, 2, "--hf-repo"}}) {
        std::vector<std::string> arguments{"generate", "--device", "cpu", "-p", "x"};
        arguments.insert(arguments.end(), c.arguments.begin(), c.arguments.end());
        const Finished finished = tq_run(arguments, {}, environment);
        INFO(finished.error);
        CHECK(finished.status == c.status);
        CHECK(finished.output == "");
        CHECK(finished.error.starts_with("tq-run: "));
        CHECK(finished.error.find(c.text) != std::string::npos);
        CHECK(std::count(finished.error.begin(), finished.error.end(), '\n') == 1);
    }
}

TEST_CASE("tq-run models says why a file's formats are not listed, and names it as -hf takes it") {
    const TemporaryCache cache;
    const std::filesystem::path folder = cache.path() / "models--u--r", snapshot = folder / "snapshots" / std::string(40, 'a');
    std::filesystem::create_directories(snapshot);
    std::filesystem::create_directories(folder / "refs");
    std::ofstream(folder / "refs/main") << std::string(40, 'a');
    const std::string demo = slurp(TQ_SOURCE_DIR "/tools/demo-model/demo-q8_0.gguf");
    const auto write = [&](const char* name, const std::string& bytes) {
        std::ofstream(snapshot / name, std::ios::binary) << bytes;
    };
    const auto with_type = [&](unsigned char type) { // behind the name, the number of dimensions, and two of them
        std::string bytes = demo;
        const std::string tensor = "blk.0.attn_q.weight";
        bytes[bytes.find(tensor) + tensor.size() + 4 + 16] = char(type);
        return bytes;
    };
    write("r-UD-Q8_K_XL.gguf", demo);
    write("r-IQ4_KS.gguf", with_type(144));
    write("r-Q4_0_4_4.gguf", with_type(31));
    write("r-other.gguf", with_type(43));
    write("r-F16.gguf", demo.substr(0, demo.size() / 2));
    const std::vector<std::string> environment{"LLAMA_CACHE=" + cache.path().string()};
    const std::string list = tq_run({"models"}, {}, environment).output;
    CAPTURE(list);
    CHECK(contains(list, "| u/r:UD-Q8_K_XL "));
    CHECK(contains(list, " q8_0 100 % |"));
    CHECK(contains(list, " its weight format is IQ4_KS, which ik_llama.cpp alone runs |"));
    CHECK(contains(list, " its weight format is Q4_0_4_4, which ggml has removed |"));
    CHECK(contains(list, " its weight format, type 43, is none of ggml's"));
    CHECK(contains(list, " the file is cut off: 2.3 of 4.5 MB are there |"));
    CHECK(!contains(list, cache.path().string() + "/models--"));
    for (const auto& one : nlohmann::json::parse(tq_run({"models", "--json"}, {}, environment).output))
        CHECK(one.at("error").get<std::string>().empty() == (one.at("model") == "u/r:UD-Q8_K_XL"));
}

TEST_CASE("tq-run models lists what was downloaded, and removes it") {
    HubServer* server = HubServer::find();
    if (!server) return;
    const TemporaryCache cache;
    const std::vector<std::string> environment{"HF_ENDPOINT=" + server->url(), "LLAMA_CACHE=" + cache.path().string()};
    const auto models = [&](std::vector<std::string> words) {
        words.insert(words.begin(), "models");
        return tq_run(words, {}, environment);
    };
    CHECK(contains(models({}).output, "no model is in "));
    REQUIRE(tq_run({"tokenize", "-hf", "test/demo:Q8_0", "--text", "Tom"}, {}, environment).status == 0);
    REQUIRE(tq_run({"tokenize", "-hf", "test/demo:F16", "--text", "Tom"}, {}, environment).status >= 0);
    const Finished list = models({});
    CAPTURE(list.output);
    CHECK(list.status == 0);
    CHECK(contains(list.output, "| test/demo:Q8_0 "));
    CHECK(contains(models({"list"}).output, "| test/demo:Q8_0 "));
    CHECK_FALSE(contains(list.output, "other files")); // some bytes of the cache's own are no row
    const auto json = nlohmann::json::parse(models({"--json"}).output);
    REQUIRE(json.size() >= 1);
    const auto found = std::ranges::find(json, "test/demo:Q8_0", [](const auto& one) { return one.at("model"); });
    REQUIRE(found != json.end());
    CHECK(found->at("bytes") == std::filesystem::file_size(TQ_SOURCE_DIR "/tools/demo-model/demo-q8_0.gguf"));
    CHECK(found->at("seconds_since_use") < 600);
    CHECK(found->at("formats").get<std::string>().starts_with("q8_0 "));
    CHECK(tq_run({"tokenize", "-hf", found->at("model"), "--offline", "--text", "Tom"}, {}, environment).status == 0);

    for (const char* wrong : {"test/other", "demo", "../../etc", "test/demo:Q2_K", "test/demo:", "test/demo:../x.gguf"}) {
        const Finished refused = models({"remove", wrong});
        CAPTURE(wrong);
        CHECK(refused.status == 1);
        CHECK(std::count(refused.error.begin(), refused.error.end(), '\n') == 1);
    }
    CHECK(models({"remove"}).status == 2);
    CHECK(nlohmann::json::parse(models({"--json"}).output).size() == json.size()); // nothing was removed
    const Finished removed = models({"remove", "test/demo:Q8_0"});
    CHECK(removed.status == 0);
    CHECK(contains(removed.output, "test/demo:Q8_0: "));
    CHECK(contains(removed.output, " deleted"));
    CHECK_FALSE(contains(models({}).output, "test/demo:Q8_0"));
    CHECK(tq_run({"tokenize", "-hf", "test/demo:Q8_0", "--offline", "--text", "Tom"}, {}, environment).status == 1);
    CHECK(tq_run({"tokenize", "-hf", "test/demo:Q8_0", "--text", "Tom"}, {}, environment).status == 0); // downloaded again
    CHECK(models({"remove", "test/demo"}).status == 0);
    CHECK_FALSE(std::filesystem::exists(cache.folder("demo")));
    CHECK(contains(models({}).output, "no model is in "));
}

#ifndef _WIN32
TEST_CASE("removal of a model follows no link out of the cache, and leaves blobs that another version has") {
    const TemporaryCache cache;
    const std::vector<std::string> environment{"LLAMA_CACHE=" + cache.path().string()};
    namespace fs = std::filesystem;
    const fs::path folder = cache.folder("planted"), outside = cache.path() / "outside";
    const fs::path snapshots = folder / "snapshots", now = snapshots / hub_commit, before = snapshots / std::string(40, 'a');
    for (const fs::path& path : {now, before, folder / "blobs", folder / "refs", outside}) fs::create_directories(path);
    const auto write = [](const fs::path& path, const std::string& text) { std::ofstream(path) << text; };
    write(folder / "refs" / "main", hub_commit);
    write(outside / "kept.gguf", "GGUF");
    write(folder / "blobs" / "one", "GGUF");
    fs::create_symlink(outside / "kept.gguf", now / "a-Q4_0.gguf");
    fs::create_symlink("../../blobs/one", now / "a-Q8_0.gguf");
    fs::create_symlink("../../blobs/one", before / "a-Q8_0.gguf");
    fs::create_directory_symlink(outside, folder / "blobs" / "elsewhere");
    const auto remove = [&](const char* name) { return tq_run({"models", "remove", name}, {}, environment).status; };
    CHECK(remove("test/planted:Q8_0") == 0);
    CHECK(fs::exists(folder / "blobs" / "one"));
    CHECK_FALSE(fs::exists(now / "a-Q8_0.gguf"));
    CHECK(remove("test/planted:Q4_0") == 0);
    CHECK(fs::exists(outside / "kept.gguf"));
    fs::create_directory_symlink(outside, cache.folder("linked"));
    CHECK(remove("test/linked") == 1);
    CHECK(fs::exists(outside / "kept.gguf"));
}

TEST_CASE("Ctrl-C stops a download with status 130, and the next one goes on") {
    HubServer* server = HubServer::find();
    if (!server) return;
    const TemporaryCache cache;
    const Command command{{TQ_RUN, "generate", "--device", "cpu", "-p", "x", "-hf", "test/slow"},
                          "",
                          {"HF_ENDPOINT=" + server->url(), "LLAMA_CACHE=" + cache.path().string()}};
    // A shell's own background jobs ignore SIGINT, which the program overrides.
    const std::string part = (cache.folder("slow") / "blobs").string() + "/*.incomplete";
    const Finished stopped = run_in_shell(command, "\"$@\" >$out & p=$!; until [ -s " + part +
                                                       " ] || ! kill -0 $p; do sleep 0.02; done; kill -INT $p; wait $p");
    CHECK(stopped.status == 130);
    CHECK(stopped.error.find("the download of test/slow is stopped at ") != std::string::npos);
    CHECK(stopped.error.find("the same command continues it") != std::string::npos);
    server->take_log();
    const Finished finished = run(command);
    CHECK(finished.status == 1); // random bytes are not a model
    CHECK(finished.error.find("not a GGUF file") != std::string::npos);
    bool continued = false;
    for (const auto& request : server->take_log()) continued |= request["range"].get<std::string>().starts_with("bytes=");
    CHECK(continued);
}
#endif
