// tq-run at a terminal: status lines, the editing of questions, Ctrl-C, and text typed while the model answers.
#ifndef _WIN32
#include "tests/support/temporary_file.h"
#include "tests/support/terminal.h"
#include "tests/support/text.h"
#include <algorithm>
#include <cctype>
#include <csignal>
#include <doctest/doctest.h>
#include <fstream>
#include <sstream>

using namespace tq;
using namespace tq::test;

namespace {

const std::string demo = TQ_SOURCE_DIR "/tools/demo-model/demo-q8_0.gguf";

Command command(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
    arguments.insert(arguments.begin(), TQ_RUN);
    environment.push_back("TQ_DEMO_MODEL=" + demo);
    return {std::move(arguments), {}, std::move(environment)};
}

size_t count(const std::string& text, const std::string& part) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
    return n;
}

Command chat(const TemporaryDirectory& home, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"chat", "--temp", "0", "--device", "cpu"});
    return command(more, {"XDG_DATA_HOME=" + home.path().string(), "NO_COLOR=1"}); // the prompt is then "> ", without escapes
}

const std::string ctrl_c = "\x03", ctrl_d = "\x04", up = "\x1b[A";

} // namespace

TEST_CASE("a status line is never wider than the terminal, and tells what is left") {
    std::string story;
    for (int i = 0; i < 110; ++i) story += "Once upon a time there was a fox. ";
    const TemporaryDirectory directory;
    const std::string cache = (directory.path() / "a-name-that-is-much-longer-than-the-terminal-is-wide.kv").string();
    TerminalSession terminal(
        command({"generate", "-p", story, "-n", "1", "--device", "cpu", "-t", "1", "-b", "16", "--prompt-cache", cache}), 40);
    CHECK(terminal.wait_for("saving /"));
    terminal.resize(25);
    CHECK(terminal.wait_for_end() == 0);
    CAPTURE(terminal.output());
    CHECK(count(terminal.output(), "\r\x1b[K") > 3);
    CHECK(terminal.output().find("reading the prompt: ") != std::string::npos);
    CHECK(widest_status(terminal.output()) < 40);
    CHECK(terminal.output().find("...") != std::string::npos); // the name is shortened, not the rest
    CHECK(terminal.output().find(".kv: 100 % of ") != std::string::npos);
}

TEST_CASE("no line of a table is wider than a terminal of 80 columns") {
    const TemporaryDirectory directory;
    const std::string one = (directory.path() / "one.json").string(), other = (directory.path() / "other.json").string();
    const std::vector<std::string> bench{"bench", "-p",      "8",           "-n",         "4",        "-r",  "2",  "-d",  "0,64",
                                         "-ctk",  "f16,tq4", "--no-limits", "--no-check", "--device", "cpu", "-o", "json"};
    directory.write("one.json", run(command(bench)).output);
    directory.write("other.json", slurp(one));
    const std::string third = (directory.path() / "third.json").string();
    std::string renamed = slurp(one); // rows of another model, so that its name stays in the table
    for (size_t at = 0; (at = renamed.find("tq-run demo", at)) != std::string::npos; at++)
        renamed.replace(at, 11, "tq-run demo of another name");
    directory.write("third.json", renamed);
    for (const std::vector<std::string>& words : {std::vector<std::string>{"validate", "--device", "cpu", "-p", "Hi", "-n", "2"},
                                                  {"codec", "info", "--vectors", "50"},
                                                  {"bench", "--compare", one, other},
                                                  {"bench", "--compare", one, other, third}}) {
        TerminalSession terminal(command(words), 80);
        CHECK(terminal.wait_for_end() == 0);
        CAPTURE(terminal.output());
        std::istringstream lines(terminal.output());
        for (std::string line; std::getline(lines, line);) {
            line = line.substr(0, line.find_last_not_of('\r') + 1);
            line = line.substr(line.rfind('\r') + 1); // behind a status line
            CHECK(std::ranges::count_if(line, [](char c) { return (c & 0xc0) != 0x80; }) < 80);
        }
    }
}

TEST_CASE("Ctrl-C clears a line, then asks, then leaves; the terminal is as it was") {
    const TemporaryDirectory home;
    TerminalSession terminal(chat(home), 80);
    REQUIRE(terminal.wait_for("> "));
    terminal.type("half a question");
    REQUIRE(terminal.wait_for("question"));
    terminal.type(ctrl_c);
    REQUIRE(terminal.wait_for("^C\r\n"));
    terminal.type(ctrl_c);
    CHECK(terminal.wait_for("press Ctrl-C again, or Ctrl-D, to leave"));
    terminal.type("My name is Anna.\r");
    CHECK_MESSAGE(terminal.wait_for("Anna!"), terminal.output());
    REQUIRE(terminal.wait_for("> "));
    terminal.type(ctrl_c);
    CHECK(terminal.wait_for("press Ctrl-C again"));
    REQUIRE(terminal.wait_for("> "));
    terminal.type(ctrl_c);
    CHECK(terminal.wait_for_end() == 0);
    CAPTURE(terminal.output());
    CHECK(count(terminal.output(), " tokens in ") == 1); // the incomplete question was not sent
}

#ifdef TQ_HAS_LINE_EDITOR
TEST_CASE("lines are edited, and are there in the next run") {
    const TemporaryDirectory home;
    {
        TerminalSession terminal(chat(home), 80);
        REQUIRE(terminal.wait_for("> "));
        CHECK_FALSE(terminal.echoes());
        // Unknown keys; a wide character that is erased; words at the start and in the middle.
        terminal.type("\x1b[15~\x1b[6~name is Annab\u65e5\x7f\x7f.\x01My \r");
        CHECK(terminal.wait_for("Nice to meet you, Anna!"));
        REQUIRE(terminal.wait_for(" tokens in "));
        REQUIRE(terminal.wait_for("> "));
        terminal.type("\x1b[200~What is\nmy name?\x1b[201~\r"); // a paste of two lines: one question
        CHECK(terminal.wait_for(" tokens in "));                // of the answer to it
        REQUIRE(terminal.wait_for("> "));
        terminal.type("/he\t\r");
        CHECK(terminal.wait_for("/clear "));
        REQUIRE(terminal.wait_for("> "));
        terminal.type(ctrl_d);
        CHECK(terminal.wait_for_end() == 0);
        CHECK(count(terminal.output(), " tokens in ") == 2);
    }
    const auto file = home.path() / "tq-run" / "chat_history";
    CHECK((std::filesystem::status(file).permissions() & std::filesystem::perms::all) ==
          (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
    TerminalSession terminal(chat(home), 80);
    REQUIRE(terminal.wait_for("> "));
    terminal.type("\x12meet me\x15\x07" + ctrl_c); // a search that finds nothing
    REQUIRE(terminal.wait_for("> "));
    terminal.type(up + up + up + "\r");
    CHECK(terminal.wait_for("Nice to meet you, Anna!"));
    REQUIRE(terminal.wait_for("> "));
    terminal.type("\x12is\r"); // Ctrl-R
    CHECK(terminal.wait_for(" tokens in "));
}

TEST_CASE("a paste of 20 KB arrives whole") {
    const TemporaryDirectory home;
    TerminalSession terminal(chat(home, {"-c", "256", "--no-history"}), 80);
    REQUIRE(terminal.wait_for("> "));
    std::string text;
    for (int i = 0; i < 500; ++i) text += "Line " + std::to_string(i) + " of a text that is pasted here.\n";
    terminal.type("\x1b[200~" + text + "\x1b[201~\r");
    CHECK(terminal.wait_for("the question does not fit: it has "));
    const std::string rest = terminal.output().substr(terminal.output().rfind("it has ") + 7);
    CHECK(std::stoi(rest) > 4500); // tokens; 4095 bytes are some 1500
    CHECK_FALSE(std::filesystem::exists(home.path() / "tq-run" / "chat_history"));
}

TEST_CASE("a question that has no room at all is refused, and the conversation is as it was, also on the disk") {
    const TemporaryDirectory home;
    TerminalSession terminal(chat(home, {"-c", "128"}), 80);
    REQUIRE(terminal.wait_for("> "));
    terminal.type("My name is Anna.\r");
    REQUIRE(terminal.wait_for("generation"));
    REQUIRE(terminal.wait_for("> "));
    terminal.type("/save talk\r");
    REQUIRE(terminal.wait_for("1 turn is saved"));
    REQUIRE(terminal.wait_for("> "));
    std::string question;
    for (int i = 0; i < 200; i++) question += "word ";
    terminal.type(question + "\r");
    CHECK(terminal.wait_for("the question does not fit: it has "));
    REQUIRE(terminal.wait_for("> "));
    terminal.type("What is my name?\r");
    CHECK(terminal.wait_for("Anna"));
    REQUIRE(terminal.wait_for("generation"));
    CHECK(terminal.output().find("dropped") == std::string::npos);
    terminal.type(ctrl_d);
    CHECK(terminal.wait_for_end() == 0);
    const std::string kept = slurp(home.path() / "tq-run" / "conversations" / "talk.json");
    CHECK(count(kept, "My name is Anna.") == 1);
    CHECK(count(kept, "What is my name?") == 1);
}

namespace {

const std::string conversations = "tq-run/conversations/";

// The conversation `talk` with one turn, whose question has over a thousand tokens.
void make_long_talk(const TemporaryDirectory& home) {
    std::string question = "My name is Anna.";
    for (int i = 0; i < 400; i++) question += " I like soup.";
    Command made = chat(home, {"-n", "4", "-c", "2048"});
    made.input = question + "\n/save talk\n";
    REQUIRE(run(made).status == 0);
}

// Types a line and then, when the model reads the prompt, Ctrl-C.
void interrupt_prompt_of(TerminalSession& terminal, const std::string& line) {
    terminal.type(line + "\r");
    REQUIRE(terminal.wait_for("reading the prompt"));
    terminal.signal(SIGINT);
    REQUIRE(terminal.wait_for("interrupted: the conversation is as it was before"));
    REQUIRE(terminal.wait_for("> "));
}

} // namespace

TEST_CASE(
    "/regen without a new answer, as it does not fit or is interrupted, leaves the conversation and its file as they were") {
    const TemporaryDirectory home;
    make_long_talk(home);
    const auto file = home.path() / (conversations + "talk.json");
    const std::string before = slurp(file);
    {
        TerminalSession terminal(chat(home, {"--resume", "talk", "-c", "2048", "-t", "1", "-b", "16"}), 80);
        REQUIRE(terminal.wait_for("turn is loaded"));
        REQUIRE(terminal.wait_for("> "));
        interrupt_prompt_of(terminal, "/regen");
        terminal.type(ctrl_d);
        CHECK(terminal.wait_for_end() == 0);
    }
    CHECK(slurp(file) == before);
    TerminalSession terminal(chat(home, {"--resume", "talk", "-c", "128", "-n", "4"}), 80);
    REQUIRE(terminal.wait_for("turn is loaded"));
    REQUIRE(terminal.wait_for("> "));
    terminal.type("/regen\r");
    REQUIRE(terminal.wait_for("the question does not fit: it has "));
    REQUIRE(terminal.wait_for("> "));
    CHECK(slurp(file) == before);
    terminal.type("What is my name?\r");
    REQUIRE(terminal.wait_for("generation"));
    REQUIRE(terminal.wait_for("> "));
    const std::string kept = slurp(file);
    CHECK(count(kept, "My name is Anna.") == 1);
    CHECK(count(kept, "\"role\": \"assistant\"") == 2);
}

TEST_CASE("a text that was read stays for the next question if the answer is interrupted before it begins") {
    const TemporaryDirectory home;
    std::string text = "My name is Anna.";
    for (int i = 0; i < 400; i++) text += " I like soup.";
    home.write("fact.txt", text);
    TerminalSession terminal(chat(home, {"-c", "2048", "-t", "1", "-b", "16", "-n", "4"}), 300);
    REQUIRE(terminal.wait_for("> "));
    terminal.type("/read " + (home.path() / "fact.txt").string() + "\r");
    REQUIRE(terminal.wait_for("will precede your next question"));
    REQUIRE(terminal.wait_for("> "));
    interrupt_prompt_of(terminal, "What is my name?");
    terminal.type("And what do I like?\r");
    REQUIRE(terminal.wait_for("generation"));
    REQUIRE(terminal.wait_for("> "));
    terminal.type("/save talk\r");
    REQUIRE(terminal.wait_for("1 turn is saved"));
    const std::string kept = slurp(home.path() / (conversations + "talk.json"));
    CHECK(count(kept, "My name is Anna.") == 1);
    CHECK(count(kept, "And what do I like?") == 1);
}

TEST_CASE("/clear at a terminal begins a conversation of another name") {
    const TemporaryDirectory home;
    TerminalSession terminal(chat(home, {"-n", "4"}), 80);
    REQUIRE(terminal.wait_for("> "));
    terminal.type("/clear\r");
    CHECK(terminal.wait_for("the conversation is forgotten"));
    for (const char* question : {"My name is Anna.\r", "My name is Tom.\r"}) {
        REQUIRE(terminal.wait_for("> "));
        terminal.type(question);
        REQUIRE(terminal.wait_for("generation"));
        REQUIRE(terminal.wait_for("> "));
        terminal.type("/clear\r");
        CHECK(terminal.wait_for("a new conversation begins; the one before is kept as 20"));
    }
    std::string all;
    for (const auto& file : std::filesystem::directory_iterator(home.path() / conversations)) all += slurp(file.path());
    CHECK(count(all, "My name is Anna.") == 1);
    CHECK(count(all, "My name is Tom.") == 1);
}

TEST_CASE("what is typed during an answer is not shown in it, and is the next question's beginning") {
    const TemporaryDirectory home;
    TerminalSession terminal(chat(home), 80);
    REQUIRE(terminal.wait_for("> "));
    terminal.type("Tell me a story about Tom.\rMy name");
    REQUIRE(terminal.wait_for(" tokens in "));
    CHECK(terminal.output().find("My name") > terminal.output().find(" tokens in "));
    REQUIRE(terminal.wait_for("My name"));
    terminal.type(" is Anna.\r");
    CHECK(terminal.wait_for("Anna!"));
    terminal.signal(SIGTERM);
    CHECK(terminal.wait_for_end() == 128 + SIGTERM);
    CHECK(terminal.output().ends_with("\x1b[?2004l")); // bracketed paste is off again
}
#endif

TEST_CASE("answers are broken between words") {
    const TemporaryDirectory home;
    const Command question = chat(home, {"-st", "-p", "Tell me a story about Tom."});
    const std::string expected = run(question).output; // not on a terminal: one line
    TerminalSession terminal(question, 30);
    CHECK(terminal.wait_for_end() == 0);
    std::string shown = terminal.output();
    shown.erase(0, shown.rfind("\x1b[K") + 3); // the status before it
    shown.erase(shown.rfind("\r\n", shown.find(" tokens in ")) + 2);
    CAPTURE(shown);
    CHECK(count(shown, "\r\n") > expected.size() / 30);
    for (size_t at = 0, end = 0; (end = shown.find("\r\n", at)) != std::string::npos; at = end + 1) {
        CHECK(end - at <= 30);
        shown.replace(end, 2, end + 2 == shown.size() ? "\n" : " ");
    }
    CHECK(shown == expected);
}

namespace {

size_t characters(const std::string& text) {
    return size_t(std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// The lines as a terminal shows them, without escape sequences.
std::vector<std::string> shown_lines(const std::string& output) {
    std::vector<std::string> lines(1);
    for (size_t i = 0; i < output.size(); i++) {
        if (output[i] == '\x1b') {
            while (i + 1 < output.size() && std::isalpha(static_cast<unsigned char>(output[++i])) == 0) {
            }
        } else if (output[i] == '\n') {
            lines.emplace_back();
        } else if (output[i] == '\r') {
            if (i + 1 < output.size() && output[i + 1] != '\n') lines.back().clear(); // a status that is overwritten
        } else {
            lines.back() += output[i];
        }
    }
    return lines;
}

} // namespace

TEST_CASE("names that Tab offers are broken between names") {
    const TemporaryDirectory home;
    const auto folder = home.path() / "tq-run" / "conversations";
    std::filesystem::create_directories(folder);
    for (int i = 10; i < 40; i++) std::ofstream(folder / ("conversation-" + std::to_string(i) + ".json")) << "{}";
    TerminalSession terminal(chat(home), 40);
    REQUIRE(terminal.wait_for("> "));
    const size_t begin = terminal.output().size();
    terminal.type("/load conversation-\t");
    REQUIRE(terminal.wait_for("conversation-39"));
    const std::string offered = terminal.output().substr(begin);
    for (const std::string& line : shown_lines(offered)) CHECK(characters(line) <= 40);
    CHECK(count(offered, "conversation-") > 30);
}

TEST_CASE("messages, help and reports are broken between words at any width") {
    for (const unsigned columns : {40u, 60u, 80u}) {
        const TemporaryDirectory home;
        for (const std::vector<std::string>& command :
             std::vector<std::vector<std::string>>{{"chat", "--device", "cpu", "-st", "-p", "Hi", "-n", "4"},
                                                   {"help", "chat"},
                                                   {"plan", "--synthetic", "qwen3-8b:q4_k_m", "--memory", "8G"},
                                                   {"plan", "--synthetic", "qwen3-8b:q4_k_m", "--predict", "RTX 4090"},
                                                   {"chat", "--device", "cpu", "--modle", "x"},
                                                   {"bench", "--device", "cpu", "-p", "8", "-n", "4,6", "-r", "1"},
                                                   {"list"}}) {
            std::vector<std::string> words{TQ_RUN};
            words.insert(words.end(), command.begin(), command.end());
            const Command run_it{words, "", {"TQ_CACHE_DIR=" + home.path().string(), "XDG_DATA_HOME=" + home.path().string()}};
            TerminalSession terminal(run_it, columns);
            terminal.wait_for_end();
            CAPTURE(command[0]);
            CAPTURE(columns);
            for (const std::string& line : shown_lines(terminal.output())) {
                if (line.starts_with("|") && command[0] != "bench") continue;
                std::istringstream words_of_line(line);
                size_t longest = 0;
                for (std::string word; words_of_line >> word;) longest = std::max(longest, word.size());
                CAPTURE(line);
                const size_t indent = std::min(line.find_first_not_of(' '), line.size());
                CHECK((characters(line) <= columns || indent + longest > columns)); // a long path may be wider
            }
        }
    }
}

TEST_CASE("rows of plan's tables are not broken at 80 columns") {
    for (const std::vector<std::string>& how :
         std::vector<std::vector<std::string>>{{"--memory", "8G"}, {"--predict", "RTX 4090"}}) {
        TerminalSession terminal({{TQ_RUN, "plan", "--synthetic", "qwen3-8b:q4_k_m", how[0], how[1]}, "", {}}, 80);
        terminal.wait_for_end();
        const std::vector<std::string> lines = shown_lines(terminal.output());
        auto line = std::ranges::find_if(lines, [](const std::string& l) { return l.starts_with("cache (keys/values)"); });
        size_t rows = 0;
        for (; line != lines.end() && !line->empty(); ++line, ++rows) {
            CAPTURE(*line);
            CHECK(std::isalpha(static_cast<unsigned char>(line->front())) != 0); // and no number, which a broken row goes on with
            CHECK(characters(*line) < 80);
        }
        CHECK(rows >= 4);
        CHECK(contains(terminal.output(), how[0] == "--memory" ? "16 GiB" : "32768"));
        if (how[0] == "--predict") CHECK(contains(terminal.output(), " (H200 reached 0.42 of such)"));
    }
}

TEST_CASE("a typed line is shown once after the terminal has another size") {
    const TemporaryDirectory home;
    TerminalSession terminal(chat(home, {}), 80);
    REQUIRE(terminal.wait_for("> "));
    terminal.type("typed meanwhile");
    REQUIRE(terminal.wait_for("typed meanwhile"));
    terminal.resize(60);
    REQUIRE(terminal.wait_for("\r\x1b[J"));
    REQUIRE(terminal.wait_for("typed meanwhile"));
    terminal.type("\x03\x03\x03");
    CHECK(terminal.wait_for_end() >= 0);
    const std::vector<std::string> lines = shown_lines(terminal.output());
    for (const std::string& line : lines) CHECK(line.find("meanwhile") == line.rfind("meanwhile"));
}
#endif
