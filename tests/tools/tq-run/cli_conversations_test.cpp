// tq-run chat's kept conversations: lists, names that are missing, files that other programs have rewritten, and flags beside
// saved settings.
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <algorithm>
#include <chrono>
#include <doctest/doctest.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace tq::test;
namespace fs = std::filesystem;

namespace {

// A data directory of its own.
class Home {
  public:
    Finished chat(const std::string& input, std::vector<std::string> more) const {
        more.insert(more.begin(), {TQ_RUN, "chat", "--device", "cpu"});
        return run({more, input, {"TQ_DEMO_MODEL=" TQ_SOURCE_DIR "/tools/demo-model/demo-q8_0.gguf", data()}});
    }
    std::string data() const { return "XDG_DATA_HOME=" + directory_.path().string(); }
    fs::path file(const std::string& name) const { return directory_.path() / "tq-run" / "conversations" / (name + ".json"); }
    nlohmann::ordered_json read(const std::string& name) const { return nlohmann::ordered_json::parse(slurp(file(name))); }
    void write(const std::string& name, const std::string& text) const { std::ofstream(file(name), std::ios::binary) << text; }

  private:
    TemporaryDirectory directory_;
};

} // namespace

TEST_CASE("flags of the command line have precedence over a resumed conversation's settings, and others are as they were") {
    const Home home;
    REQUIRE(home.chat("My name is Anna.\n/save talk\n",
                      {"--temp", "0.7", "--top-k", "20", "--min-p", "0.25", "-n", "6", "-s", "5", "--system-prompt", "Be kind."})
                .status == 0);
    const Finished given = home.chat("/set\n/system\n/set temp 0.5\nHi\n", {"--resume", "talk", "--temp", "0", "--top-k", "7",
                                                                            "-n", "3", "--system-prompt", "Be brief."});
    CAPTURE(given.error);
    CHECK(given.status == 0);
    for (const char* line : {"temp               0\n", "top-k              7\n", "predict            3\n",
                             "min-p              0.25\n", "seed               5\n", "the system prompt is: Be brief.\n"})
        CHECK(contains(given.error, line));
    CHECK(home.read("talk")["settings"]["predict"] == 3);
    CHECK(home.read("talk")["settings"]["temp"] == 0.5);
    CHECK(home.read("talk")["messages"][0]["content"] == "Be brief.");
    CHECK_FALSE(contains(home.chat("/set\n", {"--resume", "talk", "-s", "-1"}).error, "seed               5\n"));

    const Finished kept = home.chat("/set\n", {"--resume", "talk"}); // the banner was that of the model
    CHECK(contains(kept.error, "temp               0.5\n"));
    CHECK(contains(kept.error.substr(kept.error.find("are loaded")), "sampling  temperature 0.5"));
    const Finished loaded = home.chat("/load talk\n/set\n", {"--temp", "0.25"}); // asked for later than the flag
    CHECK(contains(loaded.error, "temp               0.5\n"));
}

TEST_CASE("a seed is kept to its last digit, and -1 is another one each time, by flag and by /set") {
    const Home home;
    const std::string seed = "9000000000000000000", smaller = "8999999999999999999";
    REQUIRE(home.chat("Hi\n/save talk\n", {"-n", "2", "-s", smaller}).status == 0);
    const Finished again =
        home.chat("/set\n/set seed " + seed + "\n/set\n/set seed -1\n/set\n/set seed -2\n/set seed 1.5\n", {"--resume", "talk"});
    CAPTURE(again.error);
    CHECK(again.status == 0);
    CHECK(contains(again.error, "seed               " + smaller + "\n"));
    const std::string later = again.error.substr(again.error.rfind(seed));
    CHECK(contains(later, "seed               "));
    CHECK_FALSE(contains(later.substr(seed.size()), seed));
    CHECK(contains(later, "seed must be a whole number from -1 to 9e+18"));
}

TEST_CASE("a question behind twice as many turns does not take four times as long") {
    const Home home;
    REQUIRE(home.chat("Hi\n/save talk\n", {"-n", "2"}).status == 0);
    const nlohmann::ordered_json saved = home.read("talk");
    const auto seconds_behind = [&](int turns) {
        nlohmann::ordered_json longer = saved, messages = nlohmann::ordered_json::array();
        for (int i = 0; i < turns; i++) {
            messages.push_back({{"role", "user"}, {"content", fmt::format("This is question {} of a long conversation.", i)}});
            messages.push_back({{"role", "assistant"}, {"content", fmt::format("And this is the answer to question {}.", i)}});
        }
        longer["messages"] = messages;
        longer.erase("tokens");
        double best = 1e9;
        for (int i = 0; i < 2; i++) { // the faster one: others may use the processor
            home.write("long", longer.dump());
            const auto start = std::chrono::steady_clock::now();
            const Finished finished = home.chat("Hi\n", {"--resume", "long", "-c", "256", "-n", "1"});
            best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
            CAPTURE(finished.error);
            CHECK(finished.status == 0);
            CHECK(contains(finished.error, "dropped from it"));
        }
        return best;
    };
    const double once = seconds_behind(3000), twice = seconds_behind(6000);
    CHECK(twice < 3 * once + 2);
}

TEST_CASE("a conversation that is not there, or is none, is an error before the model is loaded") {
    const Home home;
    REQUIRE(home.chat("My name is Anna.\n/save anna\n/fork tom\n", {"-n", "2"}).status == 0);
    const auto refused = [&](const std::string& name) {
        const Finished finished = home.chat("", {"--resume", name, "-m", "/no/such/model.gguf"});
        CHECK(finished.status == 1);
        CHECK_FALSE(contains(finished.error, "model.gguf"));
        return finished.error;
    };
    CHECK(contains(refused("nobody"), "there is no conversation nobody: the latest of 2 are "));
    CHECK(contains(refused("nobody"), "anna"));
    home.write("broken", "{\"format\": ");
    CHECK(contains(refused("broken"), "is not JSON"));
    home.write("half", R"({"format": "tq-run conversation", "version": 1, "messages": [{"role": "user", "content": "a\ud83d"},
                           {"role": "assistant", "content": "b"}]})");
    CHECK(contains(home.chat("", {"--resume", "half"}).error, "half: 1 turn is loaded"));
    fs::remove(home.file("half"));
    home.write("other", "{\"messages\": []}");
    CHECK(contains(refused("other"), "is not a conversation"));
    home.write("newer", "{\"format\": \"tq-run conversation\", \"version\": 2}");
    CHECK(contains(refused("newer"), "another version"));
    for (const char* name : {"broken", "other", "newer"}) fs::remove(home.file(name));
    const auto now = fs::file_time_type::clock::now();
    for (const char* name : {"anna", "tom"}) fs::last_write_time(home.file(name), now);
    const Finished unclear = home.chat("", {"--resume"});
    CHECK(unclear.status == 1);
    CHECK(contains(unclear.error, "2 conversations are equally late, so give --resume a name: anna, tom"));
}

TEST_CASE("a turn that is taken back is no longer in the conversation's file") {
    const Home home;
    REQUIRE(home.chat("My name is Anna.\n/save anna\nI like soup.\n/undo\n", {"-n", "2"}).status == 0);
    REQUIRE(home.read("anna")["messages"].size() == 2);
    CHECK(home.read("anna")["messages"][0]["content"] == "My name is Anna.");
}

TEST_CASE("/list has the conversations, the latest first, whatever lies beside them") {
    const Home home;
    CHECK(contains(home.chat("/list\n", {}).error, "there is no conversation yet"));
    REQUIRE(home.chat("My name is Anna.\n/save anna\nI like soup.\n", {"-n", "2"}).status == 0);
    home.write("broken", "{");
    home.write("hidden", fmt::format("{{\"format\": \"tq-run conversation\", \"version\": 1, \"messages\": [{{\"role\": "
                                     "\"user\", \"content\": \"red \\u001b[31m\\nline\"}}, 7, {{\"role\": 5}}]}}"));
    fs::create_directory(home.file("folder"));
    const auto now = fs::file_time_type::clock::now();
    fs::last_write_time(home.file("broken"), now - std::chrono::hours(3));
    fs::last_write_time(home.file("hidden"), now - std::chrono::hours(90));
    const std::string list = home.chat("/list\n", {}).error;
    CAPTURE(list);
    CHECK(contains(list, "  2 turns: My name is Anna.\n"));
    CHECK(contains(list, "3 h  its file is damaged\n"));
    CHECK(contains(list, "3 days  1 turn: red "));
    CHECK_FALSE(contains(list, "\x1b"));
    CHECK_FALSE(contains(list, "folder"));
    CHECK(list.find("anna ") < list.find("broken "));
    CHECK(list.find("broken ") < list.find("hidden "));
}

TEST_CASE("a conversation that another program has indented or ordered anew is still kept") {
    const Home home;
    REQUIRE(home.chat("My name is Anna.\n/save talk\n", {"-n", "2"}).status == 0);
    const nlohmann::ordered_json saved = home.read("talk");
    nlohmann::ordered_json turned;
    for (auto at = saved.rbegin(); at != saved.rend(); ++at) turned[at.key()] = at.value();
    for (const std::string& text : {saved.dump(), saved.dump(4), turned.dump(1, '\t') + "\n", "\xef\xbb\xbf" + saved.dump(2)}) {
        home.write("talk", text);
        const Finished more = home.chat("Hi\n", {"-n", "2", "--resume", "talk"});
        CAPTURE(text.substr(0, 40));
        CHECK_FALSE(contains(more.error, "not kept"));
        CHECK(home.read("talk")["messages"].size() == 4);
    }
    for (const char* other : {"{}", "[]", "{\"format\": \"other\"}", "tq-run conversation"}) {
        home.write("talk", other);
        CHECK(contains(home.chat("Hi\n/save talk\n", {"-n", "2"}).error, "is not a saved conversation"));
        CHECK(slurp(home.file("talk")) == other);
    }
}

TEST_CASE("/clear begins another conversation, and the one that was kept stays") {
    const Home home;
    const Finished cleared = home.chat("My name is Mira.\n/save talk\n/clear\nHi\n/clear\n", {"-n", "2"});
    CAPTURE(cleared.error);
    CHECK(contains(cleared.error, "a new conversation begins; the one before is kept as talk\n"));
    CHECK(contains(cleared.error, "the conversation is forgotten\n"));
    REQUIRE(home.read("talk")["messages"].size() == 2);
    CHECK(home.read("talk")["messages"][0]["content"] == "My name is Mira.");
}

TEST_CASE("/save and /fork never replace another conversation") {
    const Home home;
    const TemporaryDirectory directory;
    const std::string file = (directory.path() / "talk.json").string(), same = (directory.path() / "." / "talk.json").string();
    const std::string question = "My name is Mira.\n", save_all = "/save talk\n/save " + file + "\n";
    REQUIRE(home.chat(question + save_all, {"-n", "2"}).status == 0);
    const std::string kept = slurp(home.file("talk")), saved = slurp(file);
    const Finished other = home.chat("Hi\n" + save_all + "/fork talk\n/save other\n", {"-n", "2"});
    CAPTURE(other.error);
    CHECK(contains(other.error, "there is a conversation talk already: /load it, or give another name\n"));
    CHECK(contains(other.error, "talk.json already: /load it, or give another name\n"));
    CHECK(contains(other.error, "other: 1 turn is saved"));
    CHECK(slurp(home.file("talk")) == kept);
    CHECK(slurp(file) == saved);

    const Finished own = home.chat("Hi\n" + save_all + "/clear\n/load " + file + "\nHi\n/save " + same + "\n/clear\n/save talk\n",
                                   {"-n", "2", "--resume", "talk"});
    CAPTURE(own.error);
    CHECK(contains(own.error, "talk: 2 turns are saved"));
    CHECK(contains(own.error, "talk.json already")); // another copy of it
    CHECK(contains(own.error, "talk.json: 2 turns are saved"));
    CHECK(contains(own.error, "there is a conversation talk already"));
}
