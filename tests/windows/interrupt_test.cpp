// Ctrl-C and Ctrl-Break on Windows, in every state of tq-run: it ends, or goes on, as it does elsewhere, and never hangs.
#include "base/child_process.h"
#include "base/windows_handle.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <algorithm>
#include <chrono>
#include <doctest/doctest.h>
#include <functional>
#include <thread>
#include <utility>

using namespace tq;
using namespace tq::test;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto patience = 60s;   // for a state to be reached
constexpr auto prompt_end = 30s; // from the event to the end
constexpr DWORD no_event = ~DWORD(0);
const std::string demo = TQ_SOURCE_DIR "/tools/demo-model/demo-q8_0.gguf";

BOOL WINAPI ignore_event(DWORD) { return TRUE; }

// An event reaches every program of a console, so this one and its children have a console of their own.
void press(DWORD event) {
    static const bool own_console = [] {
        ::FreeConsole();
        const bool made = ::AllocConsole();
        ::SetConsoleCtrlHandler(nullptr, FALSE); // whatever started this may have it ignore Ctrl-C, and so its children
        return ::SetConsoleCtrlHandler(ignore_event, TRUE) && made;
    }();
    REQUIRE_MESSAGE(own_console, "no console: error ", ::GetLastError());
    if (event == no_event || ::GenerateConsoleCtrlEvent(event, 0)) return;
    REQUIRE_MESSAGE(event == CTRL_BREAK_EVENT, "error ", ::GetLastError()); // which Wine does not send
    MESSAGE("Ctrl-Break cannot be sent here, so Ctrl-C is: error ", ::GetLastError());
    REQUIRE(::GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0));
}
void prepare_console() { press(no_event); }

// Input that somebody types slowly: a pipe that stays open.
class Typed {
  public:
    Typed() : name_(LR"(\\.\pipe\tq-test-)" + new_temporary_path().filename().wstring()) {
        pipe_.handle = ::CreateNamedPipeW(name_.c_str(), PIPE_ACCESS_OUTBOUND, PIPE_TYPE_BYTE, 1, 65536, 65536, 0, nullptr);
        REQUIRE(pipe_.valid());
    }
    std::filesystem::path path() const { return name_; }
    void type(const std::string& text) {
        DWORD bytes = 0;
        REQUIRE(::WriteFile(pipe_.handle, text.data(), DWORD(text.size()), &bytes, nullptr));
    }
    void end() { ::CloseHandle(std::exchange(pipe_.handle, nullptr)); }

  private:
    std::wstring name_;
    WindowsHandle pipe_;
};

std::vector<std::string> on_cpu(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TQ_RUN);
    arguments.insert(arguments.end(), {"--device", "cpu", "-m", demo});
    return arguments;
}

// tq-run, with its output and its messages in files.
class Program {
  public:
    explicit Program(std::vector<std::string> arguments, const std::filesystem::path& input = {})
        : child_((prepare_console(), on_cpu(std::move(arguments))), {"NO_COLOR=1", "TQ_CACHE_DISK=0"},
                 {input, output_.path(), error_.path()}) {}

    std::string output() const { return slurp(output_.path()); }
    std::string error() const { return slurp(error_.path()); }

    void until(const std::function<bool()>& reached) {
        for (const auto end = Clock::now() + patience; !reached(); std::this_thread::sleep_for(5ms)) {
            REQUIRE_MESSAGE(Clock::now() < end, "not reached: ", output(), error());
            REQUIRE_MESSAGE(!child_.wait(0ms), "it has ended: ", output(), error());
        }
    }
    // The status after `event`; it is to end promptly.
    int interrupted(DWORD event) {
        press(event);
        return end();
    }
    int end() {
        const auto from = Clock::now();
        const auto status = child_.wait(prompt_end);
        REQUIRE_MESSAGE(status, "it runs on after the event: ", output(), error());
        slowest = std::max(slowest, std::chrono::duration<double>(Clock::now() - from).count());
        return *status;
    }
    static inline double slowest = 0; // seconds from an event to the end

  private:
    const TemporaryFile output_, error_;
    ChildProcess child_;
};

constexpr DWORD both[] = {CTRL_C_EVENT, CTRL_BREAK_EVENT};

std::string story(int sentences) {
    std::string text;
    for (int i = 0; i < sentences; i++) text += "Once upon a time there was a fox. ";
    return text;
}

} // namespace

TEST_CASE("generate: at any moment of its beginning, while the model is loaded") {
    for (const auto after : {0ms, 5ms, 10ms, 20ms, 40ms, 80ms}) {
        Program program({"generate", "-p", "Once upon a time", "-n", "100000", "--ignore-eos", "-c", "32k", "--warmup"});
        program.until([&] { return contains(program.error(), "ignored, as without effect here: --warmup"); });
        std::this_thread::sleep_for(after);
        CAPTURE(after.count());
        CHECK(program.interrupted(CTRL_C_EVENT) == 130);
    }
}

TEST_CASE("generate: in the prompt, before any token") {
    const TemporaryFile text(story(700)); // of some 7000 tokens, whose trellis codes take their time
    for (const DWORD event : both) {
        Program program({"generate", "-f", text.path().string(), "-n", "8", "-c", "8192", "-t", "1", "-b", "16", "-ctk", "tq4t",
                         "-ctv", "tq4t", "-v"});
        program.until([&] { return contains(program.error(), "of weights loaded"); });
        std::this_thread::sleep_for(200ms);
        CHECK(program.output() == "");
        CHECK(program.interrupted(event) == 130);
        CHECK(contains(program.error(), "[ 0 tokens"));
        CHECK(program.output() == "\n");
    }
}

TEST_CASE("generate: in the answer") {
    for (int i = 0; i < 4; i++) {
        Program program({"generate", "-p", "Once upon a time", "-n", "100000", "--ignore-eos", "-c", "32k"});
        program.until([&] { return program.output().size() > 20; });
        CHECK(program.interrupted(both[i % 2]) == 130);
        CHECK(contains(program.error(), " tokens in "));
    }
}

TEST_CASE("chat: in an answer, which is noted, and the next question is answered") {
    for (const DWORD event : both) {
        Typed typed;
        Program program({"chat", "--ignore-eos", "-n", "100000", "-c", "32k", "--temp", "0"}, typed.path());
        typed.type("Tell me a story about Tom.\n");
        program.until([&] { return program.output().size() > 20; });
        press(event);
        program.until([&] { return contains(program.error(), "[ interrupted ]"); });
        const size_t before = program.output().size();
        typed.type("/clear\nMy name is Mira.\n");
        program.until([&] { return program.output().find("Mira", before) != std::string::npos; });
        press(event);
        program.until([&] { return program.error().rfind("[ interrupted ]") != program.error().find("[ interrupted ]"); });
        typed.end();
        CHECK(program.end() == 0);
    }
}

TEST_CASE("chat: with one question, in its answer") {
    Program program({"chat", "-st", "-p", "Tell me a story.", "--ignore-eos", "-n", "100000", "-c", "32k"});
    program.until([&] { return program.output().size() > 20; });
    CHECK(program.interrupted(CTRL_C_EVENT) == 130);
    CHECK(contains(program.error(), "[ interrupted ]"));
}

TEST_CASE("chat: while it waits for a question from a pipe, which ends it") {
    for (const DWORD event : both) {
        Typed typed;
        Program program({"chat", "--temp", "0"}, typed.path());
        typed.type("My name is Mira.\n");
        program.until([&] { return contains(program.error(), " tokens in "); });
        std::this_thread::sleep_for(200ms);
        CHECK(program.interrupted(event) == 0);
    }
}

TEST_CASE("generate: while it waits for its prompt from a pipe") {
    Typed typed;
    Program program({"generate", "-n", "4", "--warmup"}, typed.path());
    program.until([&] { return contains(program.error(), "ignored"); });
    std::this_thread::sleep_for(1s);
    CHECK(program.interrupted(CTRL_C_EVENT) == 130);
}

TEST_CASE("chat: while it waits at the console, first for a second Ctrl-C") {
    ChildProcess chat((prepare_console(), on_cpu({"chat", "--temp", "0", "--no-history"})), {"NO_COLOR=1", "TQ_CACHE_DISK=0"},
                      {"CONIN$", {}, "CONOUT$"});
    std::this_thread::sleep_for(3s);
    press(CTRL_C_EVENT);
    CHECK_MESSAGE(!chat.wait(1s), "it ended without asking");
    press(CTRL_C_EVENT);
    const auto status = chat.wait(prompt_end);
    REQUIRE(status);
    CHECK(*status == 0);
}

TEST_CASE("serve: while it loads, and while it waits for requests") {
    for (const DWORD event : both) {
        Program program({"serve", "--port", "0"});
        program.until([&] { return contains(program.error(), "loading the model"); });
        const int status = program.interrupted(event);
        CHECK_MESSAGE((status == 130 || contains(program.error(), "no more requests are taken")), status, program.error());
    }
    for (const DWORD event : both) {
        Program program({"serve", "--port", "0"});
        program.until([&] { return contains(program.error(), "open http"); });
        CHECK(program.interrupted(event) == 0);
        CHECK(contains(program.error(), "no more requests are taken"));
    }
}

TEST_CASE("it ended promptly each time") {
    MESSAGE("at the latest ", Program::slowest, " s after the event");
    CHECK(Program::slowest < prompt_end.count());
}
