// --spec and its flags as their users see them: the same text with and without, totals, refusals.
#include "model/files/formats/gguf.h"
#include "tests/support/child_process.h"
#include "tests/support/qwen3_vocabulary.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <cmath>
#include <doctest/doctest.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace tq::test;

namespace {

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments a, const Arguments& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// Random models. The second has fewer layers and the same vocabulary.
const std::string& model(uint32_t layers = 2) {
    static const TemporaryFile files[2];
    static const std::string paths[2] = {files[0].path().string(), files[1].path().string()};
    static const bool written = [] {
        for (const uint32_t i : {0u, 1u}) {
            tq::Config config = small_config();
            config.num_hidden_layers = 2 - i;
            write_random_model(files[i].path(), {.config = config, .seed = i + 1});
        }
        return true;
    }();
    return paths[written && layers == 2 ? 0 : 1];
}

const Arguments on_cpu{"--device", "cpu", "-t", "1"};
const std::string repeated = "a quick brown fox jumps over a lazy dog; a quick brown fox jumps over";

Finished generate(const Arguments& more) {
    return tq_run(Arguments{"generate", "-m", model(), "-p", repeated, "-n", "60", "--ignore-eos"} + on_cpu + more);
}

} // namespace

TEST_CASE("a text is the same with drafts, greedy and sampled, and the last line counts them") {
    for (const Arguments& sampling : {Arguments{"--temp", "0"}, {"--seed", "5"}, {"--seed", "6", "--repeat-penalty", "1.3"}}) {
        const Finished plain = generate(sampling);
        REQUIRE_MESSAGE(plain.status == 0, plain.error);
        CHECK_FALSE(contains(plain.error, "drafted"));
        for (const Arguments& spec : {Arguments{"--spec", "ngram"},
                                      {"-md", model(1)},
                                      {"--spec", "draft", "-md", model(), "-td", "2"},
                                      {"-md", model(1), "--draft-max", "3", "--draft-min", "2", "-devd", "cpu"}}) {
            const Finished drafting = generate(sampling + spec);
            CHECK_MESSAGE(drafting.status == 0, drafting.error);
            CHECK(drafting.output == plain.output);
        }
    }
    // A greedy random model repeats itself. With --draft-always times do not decide what is drafted.
    const Finished greedy = generate({"--temp", "0", "--spec", "ngram", "--draft-always", "-n", "300"});
    CHECK(contains(greedy.error, " drafted accepted | context "));
    CHECK(generate({"--temp", "0", "--spec", "none"}).output == generate({"--temp", "0"}).output);
}

TEST_CASE("a hybrid model has the same text with drafts of its own head, and of lookups") {
    const TemporaryFile with_head;
    tq::Config config = small_config(*tq::find_model_type("qwen3_5"));
    config.nextn_predict_layers = 1;
    write_random_model(with_head.path(), {.config = config, .tied = false, .seed = 3, .perfect_mtp = true});
    const Arguments command =
        Arguments{"generate", "-m", with_head.path().string(), "-p", repeated, "-n", "60", "--ignore-eos", "--temp", "0"} +
        on_cpu;
    const Finished plain = tq_run(command + Arguments{"--spec", "none"}),
                   by_default = tq_run(command + Arguments{"-n", "200", "--draft-always", "-v"});
    REQUIRE_MESSAGE(plain.status == 0, plain.error);
    CHECK_FALSE(contains(plain.error, "drafted"));
    CHECK(contains(by_default.error, " drafted accepted | context ")); // on the CPU a head drafts unless told otherwise
    CHECK(by_default.output.starts_with(plain.output.substr(0, plain.output.size() - 1)));
    for (const char* kind : {"mtp", "draft-mtp", "ngram", "ngram,mtp"}) {
        const Finished drafting = tq_run(command + Arguments{"--spec", kind});
        CHECK_MESSAGE(drafting.status == 0, drafting.error);
        CHECK(drafting.output == plain.output);
    }
    const TemporaryDirectory saved;
    const auto with_cache = [&](const char* name, const char* spec) {
        return tq_run(command + Arguments{"--prompt-cache", (saved.path() / name).string(), "--spec", spec});
    };
    CHECK(with_cache("plain", "none").status == 0);
    CHECK(with_cache("head", "mtp").output == plain.output);
    CHECK(with_cache("head", "mtp").output == plain.output);
    CHECK(contains(with_cache("plain", "mtp").error,
                   "saved without the model's head for multi-token prediction: give --spec none"));
    CHECK(contains(with_cache("head", "none").error, "saved with the model's head for multi-token prediction: give --spec mtp"));
    const Finished goes_on = tq_run(command + Arguments{"--prompt-cache", (saved.path() / "plain").string()});
    CHECK_MESSAGE(goes_on.output == plain.output, goes_on.error); // by default without the head that the file lacks

    const Finished none = generate({"--spec", "mtp"});
    CHECK(none.status == 1);
    CHECK(contains(none.error, "has no head for multi-token prediction"));
    const Finished bench = tq_run(
        Arguments{"bench", "-m", with_head.path().string(), "-p", "60", "-n", "30", "-r", "1", "--spec", "mtp", "-o", "json"} +
        on_cpu);
    REQUIRE_MESSAGE(bench.status == 0, bench.error);
    const auto rows = nlohmann::json::parse(bench.output).at("speculation");
    REQUIRE(rows.size() == 3);
    CHECK(rows[2]["text"] == "own text");
    CHECK(rows[2]["drafted"] == rows[2]["accepted"]); // the head is perfect
    CHECK(contains(rows[2]["drafts"].get<std::string>(), "the model's own head"));
}

TEST_CASE("a head that is damaged is named, with the flag that goes without it") {
    const TemporaryFile file;
    tq::Config config = small_config(*tq::find_model_type("qwen3_5"));
    config.nextn_predict_layers = 1;
    write_random_model(file.path(), {.config = config, .type = tq::GgmlType::F32, .seed = 3});
    const auto damage = [&](const char* tensor) { // its row 0
        const tq::ModelFile model = tq::read_gguf(file.path());
        const auto data = model.find_tensor(tensor)->data;
        const auto at = slurp(file.path()).find({reinterpret_cast<const char*>(data.data()), 64});
        const float nan = std::nanf("");
        std::fstream bytes(file.path(), std::ios::binary | std::ios::in | std::ios::out);
        bytes.seekp(std::streamoff(at));
        bytes.write(reinterpret_cast<const char*>(&nan), sizeof(nan));
    };
    const auto said = [&](const Arguments& spec, int status) {
        const Finished finished = tq_run(Arguments{"generate", "-m", file.path().string(), "-p", "a", "-n", "4"} + on_cpu + spec);
        CHECK_MESSAGE(finished.status == status, finished.error);
        return finished.error;
    };
    damage("blk.3.nextn.eh_proj.weight");
    const std::string named = "tensor 'blk.3.nextn.eh_proj.weight' has a weight in row 0 that is NaN or infinite: the file is "
                              "damaged, download it again",
                      advice = ", or go without its head for multi-token prediction: --spec none";
    CHECK(contains(said({}, 1), named + advice));
    CHECK(contains(said({"--spec", "mtp"}, 1), named + advice));
    said({"--spec", "none"}, 0);
    said({"--spec", "ngram"}, 0);
    damage("blk.1.attn_k.weight"); // of the model itself
    const std::string other = said({"--spec", "none"}, 1);
    CHECK(contains(other, "tensor 'blk.1.attn_k.weight' has a weight in row 0 that is NaN or infinite"));
    CHECK_FALSE(contains(other, "--spec"));
}

TEST_CASE("chat says what drafts, and counts them in /stats") {
    const Finished plain = tq_run(Arguments{"chat", "-m", model(), "--temp", "0", "-n", "40"} + on_cpu, "hello\nagain\n/stats\n");
    const Finished finished =
        tq_run(Arguments{"chat", "-m", model(), "--temp", "0", "-n", "40", "--spec", "ngram"} + on_cpu, "hello\nagain\n/stats\n");
    CHECK_MESSAGE(finished.status == 0, finished.error);
    CHECK(finished.output == plain.output);
    CHECK(contains(finished.error, "drafts    prompt lookup, at most "));
    CHECK(contains(finished.error, " tokens accepted: prompt lookup"));
    CHECK_FALSE(contains(plain.error, "drafts"));
}

TEST_CASE("bench --spec compares the tokens, and reports acceptance and gain") {
    const TemporaryFile text("one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen");
    const Arguments small{"bench", "-m", model(), "-p", "60", "-n", "30", "-r", "1", "-o", "json"};
    for (const Arguments& spec : {Arguments{"--spec", "ngram"},
                                  {"--spec", "ngram", "--spec-text", text.path().string()},
                                  {"--spec", "draft", "-md", model(1)},
                                  {"-md", model(), "-ctk", "f16"}}) {
        const Finished finished = tq_run(small + on_cpu + spec);
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        const auto rows = nlohmann::json::parse(finished.output).at("speculation");
        REQUIRE(rows.size() == 3);
        for (const auto& row : rows) {
            CHECK(row["tokens"] == 30);
            CHECK(row["prompt_tokens"] == 60);
            CHECK(row["accepted"] <= row["drafted"]);
            CHECK(row["gain"].get<double>() == doctest::Approx(row["drafting_ts"].get<double>() / row["plain_ts"].get<double>()));
        }
        CHECK(rows[0]["text"] == "edited copy");
    }
    // With --draft-always drafts do not depend on times.
    const auto always = [&] {
        const Finished finished = tq_run(small + on_cpu + Arguments{"--spec", "ngram", "--draft-always"});
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        std::vector<uint32_t> counts;
        const auto report = nlohmann::json::parse(finished.output);
        for (const auto& row : report.at("speculation"))
            counts.insert(counts.end(), {row["drafted"].get<uint32_t>(), row["accepted"].get<uint32_t>()});
        return counts;
    };
    const auto counts = always();
    CHECK(counts.front() > 0);
    CHECK(always() == counts);
    const Finished table =
        tq_run(Arguments{"bench", "-m", model(), "-p", "60", "-n", "30", "-r", "1", "--spec", "ngram"} + on_cpu);
    CHECK(contains(table.output, "| edited copy |"));
    CHECK(contains(table.output, "drafts of prompt lookup, at most "));
}

TEST_CASE("what cannot be is refused with a sentence") {
    struct Case {
        Arguments arguments;
        int status;
        std::string text;
    };
    const TemporaryFile vocabulary, other, short_text("a");
    write_qwen3_vocabulary(vocabulary.path());
    tq::Config config = small_config();
    config.vocab_size = 151936;
    write_random_model(other.path(), {.config = config, .vocabulary = vocabulary.path()});
    const Case cases[]{{{"--spec", "draft"}, 2, "needs a draft model: name its file with -md"},
                       {{"--spec", "ngram", "-md", model(1)}, 2, "uses no draft model"},
                       {{"--spec", "none", "-md", model(1)}, 2, "uses no draft model"},
                       {{"--spec", "ngram,"}, 2, "with commas, not ngram,"},
                       {{"--spec", "none,ngram"}, 2, "it must be none, or "},
                       {{"--spec", "lookup"}, 2, "it must be none, or ngram, draft, mtp"},
                       {{"--spec", "ngram", "--draft-max", "0"}, 2, "--draft-max"},
                       {{"--spec", "ngram", "--draft-max", "2", "--draft-min", "3"}, 2, "--draft-min is 3 but --draft-max 2"},
                       {{"-md", "/nonexistent.gguf"}, 1, "cannot open /nonexistent.gguf"},
                       {{"-md", other.path().string()}, 1, "because their vocabularies differ: token "},
                       {{"-md", ""}, 2, "it is empty"}};
    for (const Case& c : cases) {
        const Finished finished = generate(c.arguments);
        CHECK(finished.status == c.status);
        CHECK(finished.output == "");
        CHECK_MESSAGE(contains(finished.error, c.text), finished.error);
    }
    const Arguments bench = Arguments{"bench", "-m", model(), "-p", "60", "-n", "30", "-r", "1"} + on_cpu;
    CHECK(
        contains(tq_run(bench + Arguments{"--spec-text", short_text.path().string()}).error, "--spec-text is a text for --spec"));
    CHECK(contains(tq_run(bench + Arguments{"--spec", "ngram", "--spec-text", short_text.path().string()}).error,
                   "too few to copy"));
    CHECK(contains(tq_run(bench + Arguments{"--spec", "ngram", "-o", "csv"}).error, "md, json or jsonl"));
}
