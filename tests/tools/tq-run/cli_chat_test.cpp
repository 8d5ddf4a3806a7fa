// tq-run chat with the demo model, in a pipe; also when its user or its reader goes away.
#include "model/files/formats/gguf_writer.h"
#include "tests/support/child_process.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include "tests/support/vocabulary_file.h"
#include <doctest/doctest.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

using namespace tq;
using namespace tq::test;

namespace {

const std::string demo = TQ_SOURCE_DIR "/tools/demo-model/demo-q8_0.gguf";

Finished chat(const std::string& input, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {TQ_RUN, "chat", "--temp", "0"});
    Command command{more, input, {"TQ_DEMO_MODEL=" + demo}};
    return run(command);
}

std::vector<std::string> lines(const std::string& text) {
    std::vector<std::string> result;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) result.push_back(line);
    return result;
}

const std::string facts = "My name is Anna.\nWhat is my name?\n";

} // namespace

TEST_CASE("each line is a turn, the answers alone are on standard output") {
    for (const std::string type : {"tq4", "f16"}) {
        const Finished finished = chat(facts, {"-ctk", type, "-ctv", type, "--device", "0"});
        CHECK(finished.status == 0);
        const auto answers = lines(finished.output);
        REQUIRE(answers.size() == 2);
        CHECK(contains(answers[1], "Anna"));
        CHECK_FALSE(contains(finished.output, "\x1b"));
        CHECK(contains(finished.error, "model     "));
        CHECK(contains(finished.error, "sampling  greedy"));
        CHECK(contains(finished.error, " t/s | context "));
        CHECK(contains(finished.error, " of 2048 ]"));
        CHECK_FALSE(contains(finished.error, " 0.0 t/s"));
        CHECK(contains(finished.error, type + "/" + type));
        CHECK_FALSE(contains(finished.error, "\x1b"));
    }
}

TEST_CASE("commands") {
    const Finished again = chat(facts + "/regen\n", {"--device", "0"});
    const auto answers = lines(again.output);
    REQUIRE(answers.size() == 3);
    CHECK(answers[1] == answers[2]); // greedy: the same answer from the same history

    const Finished cleared = chat("My name is Anna.\n/clear\nWhat is my name?\n", {"--device", "cpu"});
    REQUIRE(lines(cleared.output).size() == 2);
    CHECK_FALSE(contains(cleared.output.substr(cleared.output.find('\n')), "Anna"));

    const Finished several = chat("/help\n/regen\n/nonsense\n\n  \n/exit\nnever asked\n", {"--device", "cpu"});
    CHECK(several.status == 0);
    CHECK(several.output == "");
    CHECK(contains(several.error, "/clear                begin a new"));
    CHECK(contains(several.error, "there is no answer yet"));
    CHECK(contains(several.error, "unknown command /nonsense"));

    // These lines go to the model, and a backslash joins lines.
    CHECK(lines(chat("Hello! /no_think\n/think\n/usr/bin is what?\nMy name\\\nis Anna.\n", {"--device", "cpu"}).output).size() ==
          4);
}

TEST_CASE("a single turn") {
    const Finished prompt = chat("not read\n", {"-st", "-p", "Hello!", "--device", "cpu"});
    CHECK(prompt.status == 0);
    CHECK(lines(prompt.output).size() == 1);
    CHECK_FALSE(
        contains(chat("", {"-st", "-p", "Hello!", "-n", "1", "--device", "cpu"}).error, "generation")); // no time was measured
    CHECK(chat("Hello!", {"-st", "--device", "cpu"}).output == prompt.output);
    CHECK(
        chat("Hello!\n", {"-p", "Hello!", "--device", "cpu"}).output.starts_with(prompt.output)); // then the conversation goes on
}

TEST_CASE("a full context: the oldest turns go and that is said, or the conversation ends with the numbers") {
    const std::string questions = "My name is Anna.\nHow are you?\nTell me a story.\nTell me another story.\n";
    const Finished shifted = chat(questions, {"-c", "60", "--device", "cpu", "-sys", "You are Mira."});
    CAPTURE(shifted.error);
    CHECK(shifted.status == 0);
    CHECK(lines(shifted.output).size() == 4);
    CHECK(contains(shifted.error, "the context of 60 tokens was full: the"));
    CHECK(contains(shifted.error, "dropped from it"));
    const Finished nearly = chat("My name is Anna.\n", {"-c", "38", "--device", "cpu", "--system", "You are Mira."});
    CHECK(contains(nearly.error, "% full: when there is no more room, the oldest turns are dropped"));

    // Turns that left the context are still in the conversation, and a larger context has them again.
    const TemporaryDirectory directory;
    const std::string file = (directory.path() / "talk.json").string();
    const Finished saved = chat(questions + "/save " + file + "\n", {"-c", "60", "--device", "cpu", "-sys", "You are Mira."});
    CHECK(contains(saved.error, "dropped from it, not from the conversation"));
    CHECK(contains(saved.error, ": 4 turns are saved"));
    const Finished again = chat("/load " + file + "\nWhat is my name?\n", {"-c", "512", "--device", "cpu"});
    CHECK(contains(again.error, ": 4 turns are loaded"));
    CHECK(contains(again.output, "Anna"));

    // Asked again, a question finds the context that it had, and no turn is dropped twice. What is taken back leaves it at once.
    const Finished regen =
        chat(questions + "What is my name?\nHow old are you?\n/regen\n/undo\n/undo\n/undo\n/undo\n/undo\n/stats\n",
             {"-c", "96", "--device", "cpu"});
    CAPTURE(regen.error);
    REQUIRE(lines(regen.output).size() == 7);
    CHECK(lines(regen.output)[5] == lines(regen.output)[6]);
    CHECK_FALSE(contains(regen.error, "4 oldest turns"));
    CHECK(regen.error.rfind("dropped from it") < regen.error.find("the last turn is taken back; 5 are left"));
    CHECK(contains(regen.error, "context   27 of 96 tokens"));
    const Finished order =
        chat(questions, {"-c", "60", "--device", "cpu"}); // in the third answer one turn goes, then none is left
    CHECK(order.error.find("29 tokens, is dropped") < order.error.find("the context of 60 tokens is full"));

    for (const std::vector<std::string>& off : {std::vector<std::string>{"--context-shift", "off"}, {"--no-context-shift"}}) {
        std::vector<std::string> flags{"-c", "40", "--device", "cpu"};
        flags.insert(flags.end(), off.begin(), off.end());
        const Finished finished = chat(questions, flags);
        CAPTURE(finished.error);
        CHECK(finished.status == 1);
        CHECK(contains(finished.error, "the context is full: the conversation has "));
        CHECK(contains(finished.error, " tokens and the question "));
        CHECK(contains(finished.error, "but the context holds 40: /undo takes"));
    }

    const Finished cut = chat("Tell me a story.\n", {"-c", "24", "--device", "cpu"}); // there is no older turn to drop
    CHECK(contains(cut.error, "the context of 24 tokens is full"));
    const Finished single = chat("This question is longer than sixteen tokens, which is all there is room for here.\n",
                                 {"-c", "16", "--device", "cpu"});
    CHECK(single.status == 1);
    CHECK(contains(single.error, "the question does not fit: it has "));
}

TEST_CASE("a conversation is saved, loaded, taken back and set") {
    const TemporaryDirectory directory;
    const std::string file = (directory.path() / "talk.json").string(), other = (directory.path() / "other").string();
    directory.write("other", "{\"format\": 1}");
    const Finished first = chat("My name is Anna.\n/set temp 0\n/save " + file + "\n/save " + other + "\n", {"--device", "cpu"});
    CHECK(contains(first.error, "talk.json: 1 turn is saved"));
    CHECK(contains(first.error, "other exists and is not a saved conversation"));

    const Finished second = chat("/load " + file + "\nWhat is my name?\n/undo\n/undo\nWhat is my name?\n", {"--device", "cpu"});
    CAPTURE(second.error);
    REQUIRE(lines(second.output).size() == 2);
    CHECK(contains(lines(second.output)[0], "Anna"));
    CHECK_FALSE(contains(lines(second.output)[1], "Anna"));

    directory.write("cut.json",
                    R"({"format": "tq-run conversation", "version": 1, "messages": [{"role": "user", "content": "x"}]})");
    const std::string cut = (directory.path() / "cut.json").string();
    const Finished refused = chat("My name is Anna.\n/load " + cut + "\n/load " + other +
                                      "\n/load nowhere\n/set temp 200\n/set x 1\n"
                                      "What is my name?\n",
                                  {"--device", "cpu"});
    CAPTURE(refused.error);
    CHECK(refused.status == 0);
    CHECK(contains(refused.error, "cut.json is damaged: its last question has no answer"));
    CHECK(contains(refused.error, "other is not a conversation"));
    CHECK(contains(refused.error, "temp must be a number from 0 to 100"));
    CHECK(contains(refused.error, "unknown setting x"));
    CHECK(contains(refused.output, "Your name is Anna")); // nothing has changed
}

TEST_CASE("a text that is read goes before the next question; what is no text is refused") {
    const TemporaryDirectory directory;
    directory.write("fact.txt", "My name is Anna.");
    directory.write("binary", std::string("a\0b", 3));
    const std::string at = directory.path().string() + '/';
    const Finished finished =
        chat("/read " + at + "binary\n/read " + at + "\n/read " + at + "fact.txt\nWhat is my name?\n", {"--device", "cpu"});
    CAPTURE(finished.error);
    CHECK(contains(finished.error, "binary is not a text in UTF-8"));
    CHECK(contains(finished.error, " is not a file"));
    CHECK(contains(finished.error, "fact.txt: 16 bytes are read"));
    CHECK(contains(finished.output, "Anna"));
}

TEST_CASE("a slash word with more after it is no question") {
    const Finished finished = chat("/foo bar\n/exit now\n/save\n", {"--device", "cpu"});
    CHECK(finished.output == "");
    CHECK(contains(finished.error, "unknown command /foo"));
    CHECK(contains(finished.error, "/exit takes nothing after it"));
    CHECK(contains(finished.error, "/save needs a name or a file"));
}

TEST_CASE("invalid UTF-8 ends a pipe with one clear line") {
    const Finished finished = chat("Hello!\nbad \xff\n", {"--device", "cpu"});
    CHECK(finished.status == 1);
    CHECK(contains(finished.error, "tq-run: the text is not valid UTF-8 at byte 4"));
    CHECK(lines(finished.output).size() == 1);
}

namespace {

void write_model_with_template(const std::filesystem::path& path, std::string_view chat_template) {
    const VocabularyFile tokens = small_vocabulary();
    auto keys = tokens.keys();
    keys["tokenizer.chat_template"] = chat_template;
    GgufWriter writer;
    for (const auto& [key, value] : keys) writer.set(key, value);
    const TemporaryFile vocabulary(writer.zeros());
    write_random_model(path, {.config = small_config(), .vocabulary = vocabulary.path()});
}

} // namespace

TEST_CASE("thinking stays in a conversation where the template keeps it") {
    const TemporaryFile model;
    const TemporaryDirectory directory;
    for (const std::string effort : {"low", "medium"})
        for (const bool keeps : {true, false}) {
            write_model_with_template(model.path(), keeps ? "<parameter= enable_thinking preserve_thinking is undefined"
                                                          : "<parameter= enable_thinking is defined");
            const std::string saved = (directory.path() / ("talk-" + effort + (keeps ? "-kept.json" : ".json"))).string();
            const Finished finished =
                chat("aa\n/save " + saved + "\n/load " + saved + "\n/save " + saved + "\n/stats\n",
                     {"-m", model.path().string(), "-n", "5", "--ignore-eos", "--reasoning-effort", effort, "--device", "cpu"});
            CAPTURE(finished.error);
            CHECK(finished.status == 0);
            CHECK(finished.output == "\n"); // five tokens, all of them of the thinking that the prompt has opened
            nlohmann::json conversation;
            std::ifstream(saved) >> conversation;
            CHECK(conversation["messages"][1]["content"] == "");
            CHECK(conversation["messages"][1].contains("reasoning_content") == keeps);
        }
}

TEST_CASE("thinking is not part of the answer") {
    const TemporaryFile model;
    write_model_with_template(model.path(), "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}");
    const Finished finished = chat("", {"-m", model.path().string(), "-p", "aa", "-st", "-n", "5", "--ignore-eos", "--no-think",
                                        "--device", "cpu", "--color", "on"});
    CHECK(finished.status == 0);
    CAPTURE(finished.error);
    CHECK(finished.output == "\n"); // five tokens, all of them of the thinking
    CHECK(contains(finished.error, "this model always thinks: --no-think has no effect"));
    CHECK(contains(finished.error, "stopped after 5 tokens"));
    CHECK(contains(finished.error, "\x1b[2m"));
}

#ifndef _WIN32
namespace {

// An answer that ends only with the context.
Command endless() {
    static const TemporaryFile model;
    static const bool written = [] {
        write_random_model(model.path(), {.config = small_config()});
        return true;
    }();
    return {{TQ_RUN, "generate", "-p", "Hello", "--ignore-eos", "-m", model.path().string(), "--device", "cpu"},
            std::string(written ? "" : " "),
            {}};
}

} // namespace

TEST_CASE("Ctrl-C stops an answer and keeps what came") {
    const std::string until_output = R"("$@" >"$out" & p=$!; while [ ! -s "$out" ] && kill -0 $p; do sleep 0.05; done; )";
    Command command = endless();
    command.arguments.insert(command.arguments.end(), {"-c", "1000000"});
    const Finished finished = run_in_shell(command, until_output + "kill -INT $p; wait $p");
    CHECK(finished.status == 130);
    CHECK(finished.output.ends_with("\n"));
    CHECK(contains(finished.error, ", first after "));
}

TEST_CASE("a reader that goes away ends the program without complaint") {
    Command command = endless();
    command.arguments.insert(command.arguments.end(), {"-n", "2000"});
    const Finished killed = run_in_shell(command, R"({ "$@"; echo $? >"$out"; } | true)");
    CHECK(killed.output == "141\n"); // SIGPIPE
    CHECK(killed.error == "");
    const Finished ignored = run_in_shell(command, R"(trap '' PIPE; { "$@"; echo $? >"$out"; } | true)");
    CHECK(ignored.output == "1\n");
    CHECK(ignored.error == "");
}
#endif

TEST_CASE("a conversation is resumed where it was left, without its tokens being run again") {
    const TemporaryDirectory directory;
    const std::string home = "XDG_DATA_HOME=" + directory.path().string();
    const auto talk = [&](const std::string& input, std::vector<std::string> more = {}) {
        more.insert(more.begin(), {TQ_RUN, "chat", "--temp", "0", "--device", "cpu", "--cache-disk", "100", "--cache-dir",
                                   (directory.path() / "pages").string()});
        return run(Command{more, input, {"TQ_DEMO_MODEL=" + demo, home}});
    };
    CHECK(talk("", {"--resume"}).status == 1);
    CHECK(contains(talk("", {"--resume"}).error, "there is no conversation to resume"));
    CHECK(talk("", {"--resume", "../x"}).status == 2);
    const Finished first = talk("My name is Anna.\n/save anna\nI like soup.\n");
    CHECK(contains(first.error, "anna: 1 turn is saved"));

    const Finished second = talk("What is my name?\n/stats\n", {"--resume"});
    CAPTURE(second.error);
    CHECK(second.status == 0);
    CHECK(contains(second.error, "anna: 2 turns are loaded")); // each answer is kept
    CHECK(contains(second.error, " in the cache"));
    CHECK(contains(second.error, "> My name is Anna."));
    CHECK(contains(second.error, "> I like soup."));
    CHECK(contains(second.output, "Anna"));
    const Finished same = talk("My name is Anna.\nI like soup.\nWhat is my name?\n");
    REQUIRE(lines(same.output).size() == 3);
    CHECK(lines(second.output).at(0) == lines(same.output)[2]); // it goes on as if it had not been left

    const Finished forked = talk("/fork other\nMy name is Tom.\n/fork anna\n/fork bad/name\n", {"--resume", "anna"});
    CHECK(contains(forked.error, "goes on as other, and anna stays as it is"));
    CHECK(contains(forked.error, "there is a conversation anna already"));
    CHECK(contains(forked.error, "/fork needs a name"));
    CHECK(contains(talk("", {"--resume", "anna"}).error, "anna: 3 turns are loaded"));
    CHECK(contains(talk("", {"--resume", "other"}).error, "other: 4 turns are loaded"));
    CHECK(contains(talk("", {"--resume"}).error, "other: "));
    CHECK(contains(talk("/load anna\n").error, "anna: 3 turns are loaded"));
    CHECK(talk("", {"--resume", "nobody"}).status == 1);
}
