// tq-run perplexity, needle and mix in shards: several processes measure parts, and the result is that of one.
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <regex>

using namespace tq::test;

namespace {

using Arguments = std::vector<std::string>;

Finished on_cpu(Arguments arguments, std::vector<std::string> environment = {}) {
    arguments.insert(arguments.begin(), TQ_RUN);
    arguments.insert(arguments.end(), {"--device", "cpu", "-t", "1", "--kv-condition", "norms"});
    return run({std::move(arguments), {}, std::move(environment)});
}

Arguments operator+(Arguments a, const Arguments& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

const Arguments perplexity{"perplexity", "-c", "48", "--chunks", "5", "-ctk", "tq3"},
    needle{"needle", "--lengths", "192,256", "--depths", "0,1", "--keys", "1", "--samples", "2", "-ctk", "tq3"};

} // namespace

TEST_CASE("shards measure parts, and the command without --shard prints what one process does, from their logs") {
    for (const Arguments& measure : {perplexity, needle}) {
        CAPTURE(measure[0]);
        const TemporaryDirectory folder;
        const std::string alone = (folder.path() / "alone").string(), log = (folder.path() / "shared.log").string();
        const Finished whole = on_cpu(measure + Arguments{"--log", alone});
        REQUIRE_MESSAGE(whole.status == 0, whole.error);
        for (const char* shard : {"3/3", "1/3", "2/3"}) {
            const Finished part = on_cpu(measure + Arguments{"--log", log, "--shard", shard});
            REQUIRE_MESSAGE(part.status == 0, part.error);
            CHECK(part.output.empty());
            CHECK(
                contains(part.error, "after all shards, the same command without --shard goes on with what they have measured"));
        }
        const Finished together = on_cpu(measure + Arguments{"--log", log});
        CHECK(together.output == whole.output);
        CHECK(text_of(log) == text_of(alone));
        CHECK(contains(on_cpu(measure + Arguments{"--log", log, "--shard", "2/3"}).error, "shard 2 of 3 has measured"));
        CHECK(on_cpu(measure + Arguments{"--log", log}).output == whole.output);
    }
}

TEST_CASE("what one of the shards has not measured is measured, and the parts of the others are taken") {
    const TemporaryDirectory folder;
    const std::string log = (folder.path() / "log").string();
    CHECK(on_cpu(perplexity + Arguments{"--log", log, "--shard", "2/2"}).status == 0);
    const std::string first = text_of(log + ".2of2");
    std::string shard =
        std::regex_replace(first, std::regex(R"("check":"\w+",)"), ""); // without checksums, and with a number of its own
    shard = std::regex_replace(shard, std::regex(R"("kl":\[[^,]+,)"), "\"kl\":[7.25,");
    REQUIRE(shard != first);
    std::ofstream(log + ".2of2", std::ios::binary) << shard;
    const Finished all = on_cpu(perplexity + Arguments{"--log", log});
    CHECK_MESSAGE(all.status == 0, all.error);
    const std::string text = text_of(log);
    CHECK(std::count(text.begin(), text.end(), '\n') == 6);
    CHECK(text.find("\"kl\":[7.25,") != text.rfind("\"kl\":[7.25,")); // chunks 1 and 3
}

TEST_CASE("probes of mix in shards are those of one process, and so is its choice") {
    const TemporaryDirectory folder;
    const auto mix = [&](const char* log, const char* name) {
        return Arguments{
            "mix", "--types",        "tq2,tq4,f16", "--chunks",    "1", "-o",    (folder.path() / name).string(), "--budget",
            "900", "--chunk-tokens", "48",          "--kv-window", "0", "--log", (folder.path() / log).string()};
    };
    const Finished whole = on_cpu(mix("alone", "a.json"));
    REQUIRE_MESSAGE(whole.status == 0, whole.error);
    for (const char* shard : {"1/2", "2/2"}) {
        const Finished part = on_cpu(mix("shared", "b.json") + Arguments{"--shard", shard});
        CHECK_MESSAGE(contains(part.error, "has measured 8 of its 8 parts"), part.error);
        CHECK(!std::filesystem::exists(folder.path() / "b.json"));
    }
    const Finished together = on_cpu(mix("shared", "b.json"));
    REQUIRE_MESSAGE(together.status == 0, together.error);
    CHECK(text_of(folder.path() / "a.json") == text_of(folder.path() / "b.json"));
    CHECK(!contains(together.error, "layer")); // no probe was measured again
}

TEST_CASE("what mpirun starts is told to measure shards, and auto is the shard of its number") {
    const TemporaryDirectory folder;
    const std::string log = (folder.path() / "log").string();
    for (const char* launcher : {"OMPI_COMM_WORLD", "PMI"}) {
        const std::string name = launcher;
        const auto as_second = [&](const Arguments& more, const char* number = "1") {
            return on_cpu(perplexity + more, {name + "_SIZE=2", name + "_RANK=" + number});
        };
        const Finished same = as_second({"--log", log});
        CHECK(same.status == 2);
        CHECK(contains(same.error, "MPI has started 2 processes, each of which would do the same"));
        CHECK(contains(same.error, "--log FILE --shard auto"));
        const Finished shard = as_second({"--log", log, "--shard", "auto"});
        CHECK(shard.status == 0);
        CHECK(contains(shard.error, "shard 2 of 2 has measured 2 of its 2 parts"));
        CHECK(std::filesystem::exists(log + ".2of2"));
        CHECK(as_second({"--log", log, "--shard", "auto"}, "7").status == 1); // there is no shard 8 of 2
    }
}

TEST_CASE("shards that cannot be measured, and logs that do not belong together, are refused") {
    const TemporaryDirectory folder;
    const std::string log = (folder.path() / "log").string();
    for (const char* shard : {"0/2", "3/2", "1", "x/2", "1/2/3", ""}) {
        CAPTURE(shard);
        CHECK(on_cpu(perplexity + Arguments{"--log", log, "--shard", shard}).status == 2);
    }
    const Finished no_log = on_cpu(perplexity + Arguments{"--shard", "1/2"});
    CHECK(no_log.status == 2);
    CHECK(contains(no_log.error, "--log"));
    CHECK(on_cpu(perplexity + Arguments{"--log", log, "--shard", "1/2", "-ctv", "tq2"}).status == 0);
    const Finished other = on_cpu(perplexity + Arguments{"--log", log});
    CHECK(other.status == 1);
    CHECK(contains(other.error, "log.1of2 is the log of another measurement"));
    const Finished many = on_cpu(perplexity + Arguments{"--log", log, "--shard", "9/9"});
    CHECK(many.status == 0);
    CHECK(contains(many.error, "shard 9 of 9 has measured 0 of its 0 parts"));
}
