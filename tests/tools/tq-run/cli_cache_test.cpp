// The prefix cache of tq-run generate on the disk, and tq-run cache.
#include "tests/support/child_process.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace tq::test;

namespace {

std::string story(int sentences) {
    std::string text;
    for (int i = 0; i < sentences; i++)
        text += "Once upon a time a small fox lived in a garden near the river. One day it rained. ";
    return text;
}

struct Place {
    TemporaryDirectory directory;

    Finished generate(const std::string& prompt, std::vector<std::string> more = {}) const {
        std::vector<std::string> arguments{TQ_RUN,
                                           "generate",
                                           "-p",
                                           prompt,
                                           "-v",
                                           "-n",
                                           "6",
                                           "--temp",
                                           "0",
                                           "--device",
                                           "cpu",
                                           "--cache-dir",
                                           directory.path().string(),
                                           "--cache-disk",
                                           "100"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run({arguments, {}, {}});
    }
    Finished cache(const std::string& command, std::vector<std::string> more = {}) const {
        more.insert(more.begin(), {TQ_RUN, "cache", command, "--cache-dir", directory.path().string()});
        return run({more, {}, {}});
    }
    nlohmann::json json(const std::string& command) const { return nlohmann::json::parse(cache(command, {"--json"}).output); }
};

// Tokens found on the disk.
int found(const Finished& finished) {
    const std::string before = " in host memory, ";
    const size_t at = finished.error.find(" on the disk\n");
    if (at == std::string::npos) return -1;
    return std::stoi(finished.error.substr(finished.error.rfind(before, at) + before.size()));
}

} // namespace

TEST_CASE("a prompt is found on the disk by the next process, and the answer is the same") {
    const Place place;
    const std::vector<std::string> codes{"-ctk", "tq4"}; // without a window
    const Finished first = place.generate(story(20), codes), again = place.generate(story(20), codes);
    REQUIRE_MESSAGE(first.status == 0, first.error);
    CHECK(found(first) == 0);
    CHECK(found(again) > 300);
    CHECK(again.output == first.output);
    CHECK(found(place.generate(story(25), codes)) > 300);
    CHECK(found(place.generate(story(20), {"-ctk", "tq3"})) == 0);
    const Finished smaller = place.generate(story(20), {"-ctk", "tq4", "-b", "64"});
    CHECK((found(smaller) == 0 || smaller.output == first.output));        // other blocks are rounded otherwise, or no block is
    CHECK(found(place.generate(story(20), {"--kv-window", "16"})) == 0);   // what follows a window is another model's state
    CHECK(found(place.generate(story(20), {"--kv-window", "16"})) == 256); // where a page ends
    const std::vector<std::string> promise{"--kv-window", "16", "--deterministic"};
    const Finished cold = place.generate(story(20), promise), warm = place.generate(story(20), promise);
    CHECK(found(warm) == 256);
    CHECK(contains(warm.error, "states found: 0 in host memory, 1 on the disk"));
    CHECK(warm.output == cold.output);
    CHECK(contains(place.generate(story(20), {"--cache-disk", "0"}).error, "disk none"));
}

TEST_CASE("what is kept is listed, checked and deleted") {
    const Place place;
    CHECK(contains(place.cache("list").output, "has no pages"));
    CHECK(place.json("list").empty());
    REQUIRE(place.generate(story(20), {"-ctv", "tq4"}).status == 0);
    REQUIRE(place.generate(story(20), {"-ctv", "q8_0"}).status == 0);
    const auto list = place.json("list");
    REQUIRE(list.size() == 2);
    CHECK(list[0]["model"] == "tq-run demo");
    CHECK(contains(place.cache("list").output, "| tq-run demo | tq4/"));
    const auto stat = place.json("stat");
    CHECK(stat["pages"] == list[0]["pages"].get<int>() + list[1]["pages"].get<int>());
    CHECK(stat["bytes"] > 100000);
    std::filesystem::path hole;
    for (const auto& file : std::filesystem::recursive_directory_iterator(place.directory.path()))
        if (file.path().extension() == ".page") hole = file.path();
    std::string name = hole.filename().string();
    name[40] = name[40] == '0' ? '1' : '0';
    std::ofstream(hole.replace_filename(name)).close();
    std::filesystem::resize_file(hole, uint64_t(1) << 42); // it says 4 TiB, and takes nothing
    CHECK(place.json("stat")["bytes"] == stat["bytes"]);
    std::filesystem::remove(hole);
    const auto good = place.cache("verify");
    CHECK(good.status == 0);
    CHECK(contains(good.output, ": 0 damaged"));

    std::filesystem::path page;
    for (const auto& file : std::filesystem::recursive_directory_iterator(place.directory.path()))
        if (file.path().extension() == ".page" && contains(file.path().filename().string(), ".256.")) page = file.path();
    std::fstream file(page, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(5000);
    file.put('x');
    file.put('y');
    file.close();
    const auto bad = place.cache("verify");
    CHECK(bad.status == 1);
    CHECK(contains(bad.output, "its content has a wrong checksum"));
    CHECK(place.json("verify")["damaged"].size() == 1);
    int reported = 0;
    for (const char* type : {"tq4", "q8_0"}) {
        const Finished finished = place.generate(story(20), {"-ctv", type});
        CHECK(finished.status == 0);
        reported += contains(finished.error, "a damaged page of the prefix cache");
    }
    CHECK(reported == 1);
    CHECK(place.cache("verify").status == 0);

    CHECK(contains(place.cache("prune", {"--cache-disk", "100"}).output, "0.0 MiB deleted"));
    CHECK(place.json("list").size() == 2);
    CHECK(place.cache("prune").status == 0);
    CHECK(place.json("list").empty());
    CHECK(place.cache("prune", {"--cache-disk", "some"}).status == 2);
    CHECK(run({{TQ_RUN, "cache"}, {}, {}}).status == 2);
}

TEST_CASE("a directory where nothing can be written is a warning") {
    const Place place;
    place.directory.write("file", "");
    const Finished finished = place.generate(story(2), {"--cache-dir", (place.directory.path() / "file").string()});
    CHECK(finished.status == 0);
    CHECK(contains(finished.error, "tq-run: the prefix cache is not kept on the disk: cannot create the directory"));
}

TEST_CASE("the types of many layers are listed once where they are equal") {
    const Place place;
    REQUIRE(place.generate(story(20), {"-ctk", "tq4"}).status == 0);
    const auto list_with = [&](const std::string& last) {
        const std::filesystem::path file =
            place.directory.path() / place.json("list")[0]["owner"].get<std::string>() / "owner.json";
        std::string types;
        for (int layer = 0; layer < 40; layer++) types += "tq4/tq4 ";
        std::ifstream in(file);
        nlohmann::json owner = nlohmann::json::parse(in);
        in.close();
        owner["types"] = types + last;
        std::ofstream(file) << owner.dump();
        return place.cache("list").output;
    };
    CHECK(contains(list_with("tq4/tq4"), "| tq4/tq4 "));
    CHECK_FALSE(contains(list_with("tq4/tq4"), "and others"));
    CHECK(contains(list_with("q8_0/q8_0"), "| tq4/tq4 and others "));
}

TEST_CASE("a directory that cannot be read is not said to be empty") {
    const TemporaryDirectory home;
    const auto loop = home.path() / "loop";
    std::error_code no_links;
    std::filesystem::create_directory_symlink("loop", loop, no_links); // cannot be read by root either
    if (no_links) return skip("no symbolic links can be made");
    for (const char* command : {"list", "stat"}) {
        const Finished finished = tq_run({"cache", command, "--cache-dir", loop.string()});
        CHECK(finished.status == 1);
        CHECK(contains(finished.error, "cannot read the directory " + loop.string() + ": "));
    }
    CHECK(contains(tq_run({"cache", "list", "--cache-dir", (home.path() / "absent").string()}).output, "has no pages"));
    const Finished models = tq_run({"models"}, "", {"LLAMA_CACHE=" + loop.string()});
    CHECK(models.status == 1);
    CHECK(contains(models.error, "cannot read the directory " + loop.string()));
}

TEST_CASE("a cache on the disk that has no room is told") {
    if (!std::filesystem::exists("/proc/self")) return skip("no file system without space is known here");
    const Command command{{"/usr/bin/env", "-u", "TQ_CACHE_DISK", TQ_RUN, "generate", "-p", "Hi", "-n", "1", "--device", "cpu",
                           "--cache-dir", "/proc/x/y"},
                          "",
                          {}};
    const Finished finished = run(command);
    CHECK(finished.status == 0);
    CHECK(contains(finished.error, "tq-run: there is no prefix cache on the disk: /proc/x/y has no free space"));
}
