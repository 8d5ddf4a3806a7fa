// llama.cpp's command lines: flags that are accepted, ignored with a message, refused, or unknown.
#include "base/error.h"
#include "tests/support/child_process.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

using namespace tq::test;

namespace {

using Arguments = std::vector<std::string>;

Arguments split_words(const std::string& text) {
    std::istringstream in(text);
    Arguments words;
    for (std::string word; in >> word;) words.push_back(word);
    return words;
}

Arguments operator+(Arguments a, const Arguments& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// Makes a command read all its flags and end soon: the model does not exist.
const Arguments absent{"-m", "/nonexistent.gguf", "--device", "cpu"};

// The ignored ones of `flags`, from the one line that lists them; the flags are all valid.
std::string left_out(const char* command, const Arguments& flags) {
    const Finished finished = tq_run(Arguments{command} + flags + absent);
    INFO(finished.error);
    CHECK(finished.status == 1);
    const std::string end = "tq-run: cannot open /nonexistent.gguf";
    const size_t at = finished.error.find(end);
    REQUIRE(at != std::string::npos);
    const std::string note = finished.error.substr(0, at), begin = "tq-run: ignored, as without effect here: ";
    if (note.empty()) return "";
    REQUIRE(note.starts_with(begin));
    CHECK(std::count(note.begin(), note.end(), '\n') == 1);
    return note.substr(begin.size(), note.size() - begin.size() - 1);
}

struct Case {
    Arguments arguments;
    std::string text;
};

void check_refused(const std::vector<Case>& cases) {
    for (const Case& c : cases) {
        std::string line;
        for (const std::string& argument : c.arguments) line += argument + ' ';
        CAPTURE(line);
        const Finished finished = tq_run(c.arguments);
        CAPTURE(finished.error);
        CHECK(finished.status == 2);
        CHECK(finished.output == "");
        CHECK(finished.error.starts_with("tq-run: "));
        CHECK(std::count(finished.error.begin(), finished.error.end(), '\n') == 1);
        CHECK(contains(finished.error, c.text));
    }
}

} // namespace

TEST_CASE("a command line of llama.cpp runs as it is, and one line says what has no effect") {
    const Arguments line{"-ngl",    "99",        "-fa", "on",     "-c",  "8192", "-ctk",   "q8_0",    "-ctv",
                         "Q8_0",    "-t",        "8",   "--temp", "0.7", "-p",   "x",      "-no-cnv", "--jinja",
                         "--mlock", "--no-mmap", "-b",  "2048",   "-ub", "512",  "--seed", "1"};
    CHECK(left_out("chat", line) == "-fa on, -no-cnv, --jinja, --mlock, --no-mmap, -b 2048 (-ub is used)");
    CHECK(left_out("generate", {"-p", "x", "-b", "512"}) == "");
    CHECK(left_out("generate", {"-p", "x", "-n", "-2", "-t", "-1", "--color", "--temperature", "0", "-co", "on"}) == "");
    CHECK(left_out("generate", {"-p", "-ngl", "-n", "4"}) == ""); // a text
    CHECK(left_out("generate", {"--prompt=-fa on", "-n=4"}) == "");
    CHECK(left_out("bench", {"-ngl", "99", "-fa", "0,1", "-mmp", "0", "-nkvo", "0", "-sm", "none", "-r", "1"}) ==
          "-fa 0,1, -mmp 0, -nkvo 0, -sm none");
}

TEST_CASE("the placement of layers has llama.cpp's flags, in all their spellings") {
    for (const Arguments& flags : {Arguments{"-ngl", "99"},
                                   {"--gpu-layers", "all"},
                                   {"--n-gpu-layers", "-1"},
                                   {"-ts", "1,1"},
                                   {"--tensor-split", "3,1"},
                                   {"-ncmoe", "2"},
                                   {"--n-cpu-moe", "2"},
                                   {"-cmoe"},
                                   {"--cpu-moe"},
                                   {"-fit", "on"},
                                   {"--fit", "off"}})
        for (const char* command : {"chat", "generate"}) CHECK(left_out(command, flags + Arguments{"-p", "x"}) == "");
    check_refused({{{"chat", "-ngl", "many"}, "it must be a number, auto or all, not many"},
                   {{"chat", "-ngl", "3.5"}, "it must be a number, auto or all"},
                   {{"chat", "--n-cpu-moe", "-1"}, "--n-cpu-moe"},
                   {{"chat", "-ts", "3,x"}, "it must be a list of numbers such as 3,1, not 3,x"},
                   {{"chat", "--fit", "perhaps"}, "it must be on or off, not perhaps"}});
}

TEST_CASE("each of llama.cpp's flags that does no harm, in all its spellings") {
    const std::vector<std::string> with_value{"-sm row",
                                              "--split-mode none",
                                              "-mg 0",
                                              "--main-gpu 1",
                                              "-ot exps=CPU",
                                              "--override-tensor x=y",
                                              "-tb 4",
                                              "--threads-batch -1",
                                              "-C 0xff",
                                              "--cpu-mask ff",
                                              "-Cr 0-3",
                                              "--cpu-range 0-3",
                                              "--cpu-strict 1",
                                              "--prio -1",
                                              "--poll 50",
                                              "--numa distribute",
                                              "-lm mmap",
                                              "--load-mode none",
                                              "--keep -1",
                                              "-np 1",
                                              "--parallel 4",
                                              "-dt 0.1",
                                              "--log-file x.log",
                                              "-lv 3",
                                              "--verbosity 1",
                                              "--reasoning-format none",
                                              "-ngld 99",
                                              "-ctkd f16",
                                              "--typical 1.0",
                                              "--mirostat 0",
                                              "--xtc-probability 0.0",
                                              "--top-nsigma -1",
                                              "--dry-multiplier 0",
                                              "--dry-base 1.75",
                                              "--dynatemp-range 0",
                                              "--reasoning-budget -1",
                                              "-rea auto",
                                              "--rope-freq-scale 1",
                                              "--cache-reuse 0"};
    const std::vector<std::string> alone{"-fa",
                                         "--flash-attn",
                                         "-nkvo",
                                         "--no-kv-offload",
                                         "-kvo",

                                         "--no-host",
                                         "--mlock",
                                         "--mmap",
                                         "--no-mmap",
                                         "--warmup",
                                         "--no-warmup",
                                         "--perf",
                                         "--no-perf",
                                         "-e",
                                         "--escape",
                                         "--no-escape",
                                         "-i",
                                         "--interactive",
                                         "-if",
                                         "--interactive-first",
                                         "-cnv",
                                         "--conversation",
                                         "-no-cnv",
                                         "--no-conversation",
                                         "-mli",
                                         "--multiline-input",
                                         "--jinja",
                                         "--no-jinja",
                                         "--check-tensors",
                                         "--swa-full",
                                         "-kvu",
                                         "--no-repack",
                                         "-nr",
                                         "--log-disable",
                                         "--log-prefix",
                                         "--log-timestamps",
                                         "--no-display-prompt",
                                         "--verbose-prompt",
                                         "-cb",
                                         "--no-mmproj"};
    Arguments flags;
    std::string expected;
    for (const std::string& flag : with_value) {
        flags = flags + Arguments{flag.substr(0, flag.find(' ')), flag.substr(flag.find(' ') + 1)};
        expected += (expected.empty() ? "" : ", ") + flag;
    }
    for (const std::string& flag : alone) {
        flags.push_back(flag);
        expected += ", " + flag;
    }
    const TemporaryFile text("A text.");
    for (const char* command : {"chat", "generate", "perplexity"})
        CHECK(left_out(command, flags + (command == std::string("perplexity") ? Arguments{"-f", text.path().string()}
                                                                              : Arguments{"-p", "x"})) == expected);
    CHECK(left_out("perplexity", {"-f", text.path().string(), "--cache-ram", "0"}) == "--cache-ram 0");
    const Arguments draft{"-md", "x.gguf", "-devd", "cpu", "-td", "2", "--draft-max", "16", "--draft-min", "1"};
    for (const char* command : {"chat", "generate"}) CHECK(left_out(command, draft + Arguments{"-p", "x"}) == "");
    CHECK(left_out("perplexity", draft + Arguments{"-f", text.path().string()}) ==
          "-md x.gguf, -devd cpu, -td 2, --draft-max 16, --draft-min 1");
    for (const char* how : {"on", "off", "auto", "1"}) CHECK(left_out("chat", {"-fa", how}) == std::string("-fa ") + how);
}

TEST_CASE("flags that would change the results are refused with a sentence") {
    std::vector<Case> cases;
    for (const char* sampler :
         {"--typical 0.5", "--mirostat 2", "--xtc-probability 0.1", "--dry-multiplier 0.8", "--top-nsigma 1"})
        cases.push_back({{"chat", std::string(sampler).substr(0, std::string(sampler).find(' ')),
                          std::string(sampler).substr(std::string(sampler).find(' ') + 1)},
                         "is not supported: use --temp"});
    for (const char* flag : {"--grammar", "-j", "--json-schema", "--grammar-file", "-jf"})
        cases.push_back(
            {{"perplexity", flag, "x"}, std::string(flag) + " is not supported: only tq-run generate and chat have it"});
    for (const char* flag : {"--lora", "--control-vector"}) cases.push_back({{"chat", flag, "x"}, "into the model"});
    for (const char* flag : {"--mmproj", "-mm", "--image"}) cases.push_back({{"chat", flag, "x"}, "text only"});
    for (const char* flag : {"--port", "--host"}) cases.push_back({{"chat", flag, "1"}, "only tq-run serve has it"});
    cases.insert(cases.end(), {{{"chat", "--chat-template", "chatml"}, "the chat template is always"},
                               {{"chat", "-mu", "http://x"}, "-hf user/repository"},
                               {{"chat", "--rope-freq-scale", "0.25"}, "use its inverse, --rope-scale"},
                               {{"chat", "--override-kv", "a=int:1"}, "can be overridden"},
                               {{"chat", "-l", "15043+1"}, "the logits of single tokens"},
                               {{"chat", "-r", "User:"}, "-r is not supported: "},
                               {{"generate", "-bf", "f"}, "a prompt is text: use -f FILE"},
                               {{"chat", "--reasoning-budget", "100"}, "--no-think"},
                               {{"perplexity", "-f", "x", "--hellaswag"}, "measures perplexity and KL divergence only"}});
    check_refused(cases);
}

TEST_CASE("an unknown flag or command names the nearest one, and is never split into short ones") {
    check_refused({
        {{"chat", "--temperatur", "1"}, "unknown flag --temperatur: did you mean --temp"},
        {{"chat", "--ctx", "4096"}, "unknown flag --ctx: did you mean --ctx-size?"},
        {{"chat", "--sys", "x"}, "unknown flag --sys: did you mean --system-prompt?"},
        {{"chat", "--devcie", "cpu"}, "unknown flag --devcie: did you mean --device?"},
        {{"chat", "-ctx", "4096"}, "unknown flag -ctx"},
        {{"chat", "-t4"}, "unknown flag -t4: did you mean -t 4?"},
        {{"chat", "-sx", "1"}, "unknown flag -sx"},
        {{"chat", "-tx"}, "unknown flag -tx"},
        {{"chat", "-nx", "1"}, "unknown flag -nx"},
        {{"chat", "-cx"}, "unknown flag -cx"},
        {{"bench", "-rr", "1"}, "unknown flag -rr"},
        {{"chat", "--frobnicate"}, "unknown flag --frobnicate (see tq-run chat --help)"},
        {{"codec", "encode", "--typ", "tq4"}, "unknown flag --typ: did you mean --type? (see tq-run codec encode --help)"},
        {{"chatt"}, "unknown command chatt: did you mean chat?"},
        {{"codec", "enocde"}, "unknown command enocde: did you mean encode?"},
        {{"help", "chatt"}, "unknown command chatt: did you mean chat?"},
        {{"-m", "x.gguf"}, "unknown flag -m: a command comes first, such as tq-run chat -m"},
        {{"chat", "-ngl"}, "--gpu-layers needs a value"},
        {{"chat", "-n"}, "--predict needs a value"},
    });
}

TEST_CASE("help and version by other names") {
    const std::string version = tq_run({"--version"}).output;
    for (const char* name : {"version", "-V", "-v"}) CHECK(tq_run({name}).output == version);
    CHECK(version.starts_with("tq-run "));
    const size_t open = version.find('('), comma = version.find(", ", open);
    REQUIRE(comma != std::string::npos);
    const std::string commit = version.substr(open + 1, comma - open - 1);
    const std::string digits = commit.substr(0, commit.find('-'));
    CHECK((commit == "unknown" || (digits.size() >= 7 && digits.find_first_not_of("0123456789abcdef") == std::string::npos)));
    CHECK(tq_run({"help"}).output == tq_run({"--help"}).output);
    CHECK(tq_run({"help", "chat"}).output == tq_run({"chat", "--help"}).output);
    CHECK(tq_run({"chat", "--usage"}).output == tq_run({"chat", "--help"}).output);
    CHECK(contains(tq_run({"--help"}).output, "tq-run chat -hf Qwen/"));
}

TEST_CASE("flags that mean one of ours") {
    const TemporaryFile system("You are Mira.");
    CHECK(left_out("chat", {"-sysf", system.path().string(), "-rea", "off", "--single-turn"}) == "");
    CHECK(left_out("chat", {"--reasoning-budget", "0"}) == "");
    CHECK(left_out("chat", {"--reasoning-effort", "default"}) == "");
    CHECK(left_out("chat", {"--reasoning-effort=low"}) == "");
    CHECK(contains(tq_run({"chat", "--reasoning-effort", "huge"}).error, "it must be low, medium, high or xhigh, not huge"));
    CHECK(tq_run({"chat", "-rea", "off", "--think"}).status == 2); // only --no-think is accepted
    CHECK(tq_run({"chat", "-sysf", "/nonexistent.txt"}).status == 1);
}

TEST_CASE("with --deterministic the blocks of a prompt do not matter") {
    std::string prompt;
    for (int i = 0; i < 12; i++) prompt += "Once upon a time there was a cat. ";
    const auto output = [&](const char* command, const char* device, const char* blocks, const Arguments& more) {
        const Finished finished = tq_run(Arguments{command, "--device", device, "-p", prompt, "-b", blocks} + more);
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        return finished.output;
    };
    const auto logits = [&](const char* device, const char* blocks, const Arguments& more) {
        return output("logits", device, blocks, more);
    };
    std::vector<const char*> devices{"cpu"};
    if (tq_run({"devices"}).status == 0) devices.push_back("0");
    for (const char* device : devices) {
        CAPTURE(device);
        const std::string expected = logits(device, "128", {"--deterministic"});
        CHECK(logits(device, "5", {"--deterministic"}) == expected);
        // Else this test shows nothing; but of products in integers, and in a window, blocks round as single tokens do.
        const Arguments coded{"-ctk", "tq4", "-ctv", "tq4"};
        if (device != std::string("cpu"))
            CHECK(logits(device, "128", coded) != logits(device, "128", coded + Arguments{"--deterministic"}));
        const Arguments sampled{"--deterministic", "-n", "20", "--temp", "1", "-s", "3", "--ignore-eos"};
        CHECK(output("generate", device, "5", sampled) == output("generate", device, "128", sampled));
    }
}

#ifndef _WIN32
TEST_CASE("an answer that cannot be written is a failure") {
    if (!std::filesystem::exists("/dev/full")) {
        tq::test::skip("this system has no /dev/full");
        return;
    }
    for (const char* flag : {"--help", "--version"}) {
        const Finished finished = run_in_shell({{TQ_RUN, flag}, {}, {}}, "\"$@\" >/dev/full");
        CHECK(finished.status == 1);
        CHECK(contains(finished.error, "cannot write to standard output"));
    }
}
#endif

TEST_CASE("commands of ollama and others are told what does the same") {
    for (const auto& [word, text] : {std::pair("list", "tq-run models"),
                                     {"ls", "tq-run models"},
                                     {"pull", "-hf"},
                                     {"run", "tq-run chat -hf"},
                                     {"rm", "tq-run models remove"},
                                     {"ps", "tq-run serve"},
                                     {"stop", "Ctrl-C"},
                                     {"show", "tq-run plan"},
                                     {"create", "system prompt"},
                                     {"cp", "--alias"},
                                     {"push", "uploads nothing"}}) {
        const Finished finished = tq_run({word, "llama3"});
        CAPTURE(finished.error);
        CHECK(finished.status == 2);
        CHECK(contains(finished.error, fmt::format("tq-run: there is no command {}: ", word)));
        CHECK(contains(finished.error, text));
    }
    CHECK(contains(tq_run({"chta"}).error, "did you mean chat?"));
    CHECK(contains(tq_run({"cache", "rm"}).error, "tq-run cache prune does that"));
    CHECK(contains(tq_run({"cache", "nosuch"}).error, "unknown command nosuch"));
    CHECK(tq_run({"tune", "--help"}).output == tq_run({"mix", "--help"}).output); // its former name
}

namespace {

struct Line {
    std::string names, value; // of a flag; of a command its name
};

// Returns the lines of a part of the help. "Options" has the lines of all groups.
std::vector<Line> help_lines(const std::string& command, bool commands) {
    std::istringstream help(tq_run(split_words("help " + command)).output);
    std::vector<Line> lines;
    bool in_commands = false;
    for (std::string line; std::getline(help, line);) {
        if (line.ends_with(':')) in_commands = line == "Commands:";
        if (line == "Examples:") break;
        if (!line.starts_with("  ") || line.starts_with("   ") || in_commands != commands) continue;
        std::istringstream words(line);
        Line one;
        words >> one.names;
        if (!commands && !one.names.starts_with('-')) continue; // a positional
        const size_t end = line.find(one.names) + one.names.size();
        if (end + 1 < line.size() && line[end + 1] != ' ') words >> one.value;
        lines.push_back(one);
    }
    return lines;
}

// Returns each flag with a value, of the command and of the commands below it.
void check_empty_values(const std::string& command, size_t& refused) {
    for (const Line& below : help_lines(command, true)) check_empty_values(command + " " + below.names, refused);
    const std::set<std::string> may_be_empty{"--prompt", "--text", "--system-prompt"};
    for (const auto& [names, value] : help_lines(command, false)) {
        if (value.empty()) continue;
        const std::string flag = names.substr(names.rfind(',') + 1);
        Arguments words = split_words(command);
        words.insert(words.end(), {flag, ""});
        if (may_be_empty.contains(flag) && !(command == "grammar" || command == "bench")) continue;
        const Finished finished = tq_run(words);
        CAPTURE(command);
        CAPTURE(flag);
        CHECK_MESSAGE(finished.status == 2, finished.error);
        CHECK_MESSAGE(contains(finished.error, ": it is empty: give it a value, or leave it out"), finished.error);
        CHECK(contains(finished.error, "tq-run: -"));
        refused++;
    }
}

} // namespace

TEST_CASE("an empty value is an error that names the flag, of every flag") {
    size_t refused = 0;
    for (const Line& command : help_lines("", true)) check_empty_values(command.names, refused);
    CHECK(refused > 200);
    CHECK(contains(tq_run({"chat", "--device="}).error, "tq-run: --device: it is empty"));
    CHECK(contains(tq_run({"chat", "-ts", ""}).error, "tq-run: --tensor-split: it is empty"));
    CHECK(contains(tq_run({"chat", "--resume="}).error, "tq-run: --resume: it is empty"));
    CHECK(tq_run({"tokenize", "--text", ""}).status == 0);
    CHECK(tq_run({"chat", "--device", "cpu", "-st", "-p", "Hi", "-n", "1", "--system-prompt", ""}).status == 0);
}

TEST_CASE("words of other programs for commands below others have a hint") {
    check_refused({{{"models", "rm", "x/y"}, "there is no command tq-run models rm: tq-run models remove does that"},
                   {{"models", "ls"}, "tq-run models list does that"},
                   {{"cache", "clear"}, "tq-run cache prune does that"},
                   {{"models", "frobnicate"}, "unknown command frobnicate"}});
}
