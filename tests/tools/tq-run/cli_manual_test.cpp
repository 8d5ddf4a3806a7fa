// The hidden commands complete, completion, man and environment: what shells and packages get.
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <filesystem>
#include <sstream>

using namespace tq::test;

namespace {

using Words = std::vector<std::string>;

// The words that a Tab after the last word offers, without the explanations.
Words offered(const Words& typed) {
    Words words{"complete", "tq-run"};
    words.insert(words.end(), typed.begin(), typed.end());
    const Finished finished = tq_run(words);
    CHECK(finished.status == 0);
    CHECK(finished.error == "");
    std::istringstream lines(finished.output);
    Words out;
    for (std::string line; std::getline(lines, line);) out.push_back(line.substr(0, line.find('\t')));
    return out;
}

bool has(const Words& words, const std::string& word) { return std::ranges::find(words, word) != words.end(); }

} // namespace

TEST_CASE("commands, flags and their values are completed") {
    CHECK(offered({"gene"}) == Words{"generate"});
    CHECK(offered({"cache", "ver"}) == Words{"verify"});
    CHECK(offered({"help", "tok"}) == Words{"tokenize"});
    CHECK(offered({"chat", "--ctx"}) == Words{"--ctx-size"});
    CHECK(offered({"chat", "--kv", "com"}) == Words{"compact", ":files"});
    CHECK(offered({"chat", "--kv=bal"}) == Words{"--kv=balanced", ":files"});
    CHECK(offered({"chat", "-ctk", "tq3"}) == offered({"bench", "--cache-type-v", "tq3"}));
    CHECK(has(offered({"chat", "-ctk", ""}), "tq3t"));
    CHECK(offered({"chat", "--color", "o"}) == Words{"on", "off"});
    CHECK(offered({"bench", "-o", ""}) == Words{"md", "csv", "json", "jsonl", "sql"});
    CHECK(offered({"chat", "-m", "x"}) == Words{":files"});
    CHECK(offered({"chat", "--cache-dir", ""}) == Words{":directories"});
    CHECK(has(offered({"launch", ""}), "claude"));
    CHECK(has(offered({"chat", "-c"}), "-ctk"));
    CHECK(has(offered({"chat", "-c"}), "-c"));
}

TEST_CASE("completion knows where it is on the line") {
    const Words flags = offered({"chat", ""});
    CHECK(has(flags, "--model"));
    CHECK(!has(flags, "-m"));
    CHECK(offered({"chat", "-p", "--kv", "--mo"}) == offered({"chat", "--mo"})); // --kv is the prompt
    CHECK(offered({"chat", "--resume", "--mo"}) == offered({"chat", "--mo"}));
    CHECK(offered({"chat", "--no-think", "--mo"}) == offered({"chat", "--mo"}));
    CHECK(offered({"chat", "--", "--mo"}).empty());
    CHECK(offered({"chat", "--n-prompt", "--mo"}) == offered({"chat", "--mo"})); // no flag of chat
    CHECK(offered({"chat", "-n", ""}).empty());
    CHECK(offered({"nothing", "gene"}).empty());
    CHECK(offered({"chat", "--unknown=x"}).empty());
    CHECK(offered({"chat", "="}).empty());
}

TEST_CASE("what is hidden stays so") {
    const Words commands = offered({""});
    CHECK(commands.size() >= 20);
    for (const char* name : {"complete", "completion", "environment", "man"}) CHECK(!has(commands, name));
    CHECK(!has(offered({"chat", "--kv-"}), "--kv-recent"));
    const std::string help = tq_run({"--help"}).output;
    CHECK(!contains(help, "completion"));
    CHECK(!contains(tq_run({"man"}).output, "completion"));
}

TEST_CASE("odd words break nothing") {
    CHECK(tq_run({"complete"}).status == 0);
    CHECK(tq_run({"complete", "tq-run"}).output == "");
    CHECK(offered({"--help", "--mo"}).empty());
    CHECK(offered({"chat", "--kv", "\xff\xfe"}) == Words{":files"});
    CHECK(offered(Words(2000, "chat")).empty());
    const Finished unknown = tq_run({"completion", "tcsh"});
    CHECK(unknown.status == 2);
    CHECK(contains(unknown.error, "it must be bash, zsh or fish, not tcsh"));
    CHECK(tq_run({"completion"}).status == 2);
}

TEST_CASE("every command has a man page") {
    const TemporaryDirectory directory;
    REQUIRE(tq_run({"man", "--write", directory.path().string()}).status == 0);
    size_t pages = 0;
    for (const auto& file : std::filesystem::directory_iterator(directory.path())) {
        const std::string text = slurp(file.path()), name = file.path().stem().string();
        CAPTURE(name);
        CHECK(text.starts_with(".TH TQ-RUN"));
        CHECK(contains(text, "\n.SH NAME\ntq\\-run"));
        CHECK(contains(text, "\n.SH OPTIONS\n"));
        pages++;
    }
    CHECK(pages == 1 + offered({""}).size());
    const std::string page = tq_run({"man", "chat"}).output;
    CHECK(page == slurp(directory.path() / "tq-run-chat.1"));
    CHECK(contains(page, "\\fB\\-m\\fR, \\fB\\-\\-model\\fR \\fIPATH\\fR\n"));
    CHECK(contains(tq_run({"man", "launch"}).output, ".SH NOTES\n"));
}

TEST_CASE("help and the man page list the same environment variables") {
    const Finished help = tq_run({"help", "environment"});
    CHECK(help.status == 0);
    const std::string page = tq_run({"man"}).output, section = page.substr(std::min(page.find(".SH ENVIRONMENT\n"), page.size()));
    const size_t begin = help.output.find("Variables:\n");
    REQUIRE(begin != std::string::npos);
    std::istringstream lines(help.output.substr(begin));
    std::string line;
    std::getline(lines, line);
    Words names;
    while (std::getline(lines, line) && line.starts_with("  ")) {
        names.push_back(line.substr(2, line.find("   ", 2) - 2));
        CAPTURE(names.back());
        CHECK(contains(section, ".TP\n\\fB" + names.back() + "\\fR\n"));
    }
    size_t in_page = 0;
    for (size_t at = 0; (at = section.find(".TP\n", at)) != std::string::npos; at++) in_page++;
    CHECK(names.size() == in_page);
    for (const char* name : {"TQ_CACHE_DIR", "TQ_PROVE", "HF_TOKEN", "NO_COLOR"}) CHECK(has(names, name));
    CHECK(!contains(help.output, "TQ_SYSFS")); // for tests
    CHECK(contains(tq_run({"environment"}).output, help.output.substr(begin, help.output.find("\n\n", begin) - begin)));
    CHECK(contains(tq_run({"--help"}).output, "tq-run help environment"));
}

TEST_CASE("man refuses what is not there") {
    const Finished unknown = tq_run({"man", "nothing"});
    CHECK(unknown.status == 2);
    CHECK(contains(unknown.error, "there is no command nothing"));
    const Finished nowhere = tq_run({"man", "--write", "/nonexistent/directory"});
    CHECK(nowhere.status == 1);
    CHECK(contains(nowhere.error, "cannot write /nonexistent/directory/tq-run.1"));
}

TEST_CASE("each command has examples of its own, whose flags it knows, and says what its exit statuses mean") {
    const std::string all = tq_run({"--help"}).output;
    std::istringstream lines(all.substr(all.find("Commands:")));
    std::string line;
    std::getline(lines, line);
    size_t commands = 0;
    while (std::getline(lines, line) && line.starts_with("  ")) {
        if (line[2] == ' ') continue;
        const std::string command = line.substr(2, line.find(' ', 2) - 2), help = tq_run({command, "--help"}).output;
        CAPTURE(command);
        const size_t begin = help.find("Examples:\n"), end = help.find("Exit status:\n");
        REQUIRE(begin != std::string::npos);
        REQUIRE(end != std::string::npos);
        CHECK(contains(help.substr(end), "  0     success\n"));
        std::istringstream examples(help.substr(begin, end - begin));
        size_t count = 0;
        for (std::string example; std::getline(examples, example);) {
            if (!example.starts_with("  ")) continue;
            CHECK(example.starts_with("  tq-run " + command));
            const std::string typed = example.substr(2, example.find("   ", 2) - 2);
            std::istringstream words(typed.substr(typed.find(command)));
            Words flags;
            for (std::string word; words >> word;)
                if (word[0] == '-' && word.size() > 1) flags.push_back(word);
            const std::string inner = typed.find(' ', typed.find(command)) == std::string::npos
                                          ? ""
                                          : typed.substr(typed.find(' ', typed.find(command)) + 1);
            const bool has_commands = contains(help, "\nCommands:");
            const std::string known = has_commands ? tq_run({command, inner.substr(0, inner.find(' ')), "--help"}).output : help;
            for (const std::string& flag : flags)
                CHECK_MESSAGE((contains(known, flag + ",") || contains(known, flag + " ")), flag);
            count++;
        }
        CHECK(count > 0);
        const std::string page = tq_run({"man", command}).output;
        CHECK(contains(page, ".SH EXAMPLES\n"));
        CHECK(contains(page, ".SH EXIT STATUS\n"));
        commands++;
    }
    CHECK(commands >= 20);
    CHECK(contains(tq_run({"conformance", "--help"}).output, "  77    nothing was tested"));
}
