// The program when its environment fails: streams that are closed, files that are truncated, pipes instead of files.
#ifndef _WIN32
#include "base/file_system.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sys/stat.h>

using namespace tq;
using namespace tq::test;
namespace fs = std::filesystem;

namespace {

const fs::path demo_model = fs::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf";

Command command(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TQ_RUN);
    return {std::move(arguments), {}, {}};
}

// Paths for a prompt cache, and for a model that may be damaged.
struct Place {
    TemporaryDirectory directory;
    fs::path cache = directory.path() / "story.kv", model = directory.path() / "model.gguf";

    Command generate(std::vector<std::string> more = {}) const {
        more.insert(more.begin(), {"generate", "--device", "cpu", "--temp", "0", "-n", "3", "-p",
                                   "Once upon a time there was a fox", "--prompt-cache", cache.string()});
        return command(more);
    }
    std::set<std::string> names() const {
        std::set<std::string> out;
        for (const auto& entry : fs::directory_iterator(directory.path())) out.insert(entry.path().filename().string());
        return out;
    }
};

} // namespace

TEST_CASE("where standard output is closed, no file gets what was meant for it, and the report's loss is said") {
    const Place place;
    std::string text;
    while (text.size() < 6000) text += "Once upon a time there was a small fox. The fox lived in a garden near the river. ";
    const TemporaryFile words(text);
    const std::string log = (place.directory.path() / "log.jsonl").string();
    const Command measure = command({"perplexity", "--device", "cpu", "-f", words.path().string(), "--chunks", "2", "-c", "64",
                                     "-ctk", "tq3", "-ctv", "tq3", "--log", log});
    const Finished closed = run_in_shell(measure, "\"$@\" >&-");
    CHECK(closed.status == 1);
    CHECK(contains(closed.error, "tq-run: cannot write to standard output"));
    std::ifstream file(log);
    size_t lines = 0;
    for (std::string line; std::getline(file, line); lines++) CHECK(nlohmann::json::accept(line));
    CHECK(lines == 3);
    const Finished again = run(measure); // from the log alone
    CHECK(again.status == 0);
    CHECK(contains(again.output, "KL divergence"));
    CHECK(run_in_shell(measure, "\"$@\" 0<&- 2>&- >\"$out\"").output == again.output); // the other streams are not needed
}

TEST_CASE("a model that is cut off in a conversation: an error that says so, and the conversation is kept") {
    const char* memory = nullptr;
    SUBCASE("that fits the memory") { memory = "1G"; }
    SUBCASE("that is read as tokens need it") { memory = "6M"; }
    CAPTURE(memory);
    const Place place;
    fs::copy_file(demo_model, place.model);
    const std::string bytes = std::to_string(fs::file_size(place.model));
    const Command chat = command({"chat",
                                  "-m",
                                  place.model.string(),
                                  "--device",
                                  "cpu",
                                  "--temp",
                                  "0",
                                  "-n",
                                  "12",
                                  "-c",
                                  "2048",
                                  "--memory",
                                  memory,
                                  "-ctk",
                                  "tq4",
                                  "-ctv",
                                  "tq4",
                                  "--prompt-cache",
                                  place.cache.string(),
                                  "--prompt-cache-all"});
    // The second question is sent when the first answer has ended, with its line of figures.
    const Finished talk =
        run_in_shell(chat, "(echo Hello.; for i in $(seq 600); do grep -q 't/s' \"$out\" && break; sleep 0.1; done; "
                           "dd if=/dev/null of='" +
                               place.model.string() + "' bs=4096 seek=1 2>/dev/null; echo 'How are you?') | \"$@\" 2>\"$out\"");
    INFO(talk.output);
    CHECK(talk.status == 1);
    CHECK(contains(talk.output, "they are read from the file") == (memory == std::string("6M")));
    CHECK(contains(talk.output, "tq-run: " + place.model.string() + " was cut off while it was in use: 4096 of its " + bytes +
                                    " bytes are left"));
    REQUIRE(contains(talk.output, "tokens saved"));
    fs::copy_file(demo_model, place.model, fs::copy_options::overwrite_existing);
    Command again = chat;
    again.input = "Hello.\n";
    again.arguments.pop_back();
    const Finished restored = run(again);
    CHECK(restored.status == 0);
    CHECK(contains(restored.error, "tokens of the prompt were reused"));
}

TEST_CASE("a named pipe is refused where a file is needed, and not waited for") {
    const Place place;
    REQUIRE(::mkfifo(place.cache.c_str(), 0600) == 0);
    for (const char* read_only : {"", "--prompt-cache-ro"}) {
        const Finished cache = run(place.generate(*read_only ? std::vector<std::string>{read_only} : std::vector<std::string>{}));
        CHECK(cache.status == 1);
        CHECK(contains(cache.error, "story.kv is not a regular file"));
    }
    for (const char* name : {"model.gguf", "model.bin"}) {
        const fs::path pipe = place.directory.path() / name;
        REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
        const Finished model = run(command({"generate", "--device", "cpu", "-m", pipe.string(), "-p", "x"}));
        CHECK(model.status == 1);
        CHECK(contains(model.error, "is not a regular file"));
    }
}

TEST_CASE("text is read from a pipe that the process was started with, such as a shell's <(git diff)") {
    const auto generated = [](std::vector<std::string> more, const std::string& input) {
        more.insert(more.begin(), {TQ_RUN, "generate", "--device", "cpu", "--temp", "0", "-n", "5"});
        const Finished finished = run({more, input, {}});
        CAPTURE(finished.error);
        CHECK(finished.status == 0);
        return finished.output;
    };
    const std::string text = "Once upon a time there was a fox";
    CHECK(generated({"-f", "/dev/stdin"}, text) == generated({"-p", text}, ""));
    CHECK(generated({"-f", "/dev/fd/0"}, "\xEF\xBB\xBF" + text) == generated({"-p", text}, ""));
    CHECK(contains(generated({"-p", text, "--grammar-file", "/dev/stdin"}, "root ::= \"owl\""), "owl"));
    const Place place;
    REQUIRE(::mkfifo(place.model.c_str(), 0600) == 0);
    const Finished other = run(command({"generate", "--device", "cpu", "-f", place.model.string()}));
    CHECK(other.status == 1);
    CHECK(contains(other.error, "is not a regular file"));
}

TEST_CASE("a text that is too long to be one is refused before it is read") {
    const Place place;
    std::ofstream(place.model) << "text";
    fs::resize_file(place.model, uint64_t(1) << 40); // takes no room on the disk
    for (const char* flag : {"-f", "--grammar-file"}) {
        const Finished refused = run(command({"generate", "--device", "cpu", flag, place.model.string()}));
        CHECK(refused.status == 1);
        CHECK(contains(refused.error, "has 1099511627776 bytes, more than the "));
    }
}

TEST_CASE("named pipes instead of files of the cache are not waited for") {
    const TemporaryDirectory home;
    Command talk = command({"generate", "--device", "cpu", "--temp", "0", "-n", "3", "-p", "Once upon a time"});
    talk.environment = {"TQ_CACHE_DIR=" + home.path().string()};
    const std::string text = run(talk).output;
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(home.path()))
        if (entry.is_regular_file()) files.push_back(entry.path());
    REQUIRE(!files.empty());
    for (const fs::path& file : files) {
        fs::remove(file);
        REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    }
    talk.arguments.insert(talk.arguments.begin(), {"timeout", "60"});
    const Finished again = run(talk);
    CHECK(again.status == 0);
    CHECK(again.output == text);
}

TEST_CASE("a link to nothing is no place for a prompt cache; one to a file stays a link") {
    const Place place;
    const fs::path elsewhere = place.directory.path() / "elsewhere.kv";
    fs::create_symlink(elsewhere, place.cache);
    const Finished refused = run(place.generate());
    CHECK(refused.status == 1);
    CHECK(contains(refused.error, "story.kv is a link to " + elsewhere.string() + ", which is not there"));
    CHECK(fs::is_symlink(place.cache));
    std::ofstream(elsewhere).close();
    CHECK(run(place.generate()).status == 0);
    CHECK(fs::is_symlink(place.cache));
    CHECK(fs::file_size(elsewhere) > 1000);
}

TEST_CASE("drafts of a prompt cache whose writer was killed are swept up, and no other files") {
    const Place place;
    for (const char* name : {"story.kv.0123abcd.part", "story.kv.ffffffff.part", "story.kv.backup.part", "story.kv.0123abcd",
                             "other.kv.0123abcd.part"})
        place.directory.write(name, "half of it");
    const auto writer = FileLock::try_take(place.directory.path() / "story.kv.ffffffff.part", FileLock::Of::content); // lives
    REQUIRE(writer);
    REQUIRE(run(place.generate()).status == 0);
    CHECK(place.names() == std::set<std::string>{"story.kv", "story.kv.ffffffff.part", "story.kv.backup.part",
                                                 "story.kv.0123abcd", "other.kv.0123abcd.part"});
}

TEST_CASE("a save that failed is made good by a later one") {
    const Place place;
    const fs::path directory = place.directory.path() / "there";
    fs::create_directory(directory);
    const Command chat = command({"chat", "--device", "cpu", "--temp", "0", "-n", "3", "--prompt-cache",
                                  (directory / "talk.kv").string(), "--prompt-cache-all"});
    // Its directory is removed before the first answer, and restored before the last save.
    const auto wait_for = [&](const std::string& word) { return "until grep -q '" + word + "' \"$out\"; do sleep 0.1; done; "; };
    const std::string input = wait_for("sampling") + "rmdir '" + directory.string() + "'; echo Hello.; " + wait_for("not saved") +
                              "mkdir '" + directory.string() + "'";
    const Finished talk = run_in_shell(chat, "(" + input + ") | \"$@\" 2>\"$out\"");
    INFO(talk.output);
    CHECK(contains(talk.output, "not saved"));
    CHECK(contains(talk.output, "tokens saved"));
    CHECK(talk.status == 0);
    CHECK(fs::exists(directory / "talk.kv"));
}
#endif
