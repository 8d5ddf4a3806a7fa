// tq-run launch: starts a coding agent that uses a server of ours, and the server if none answers.
// Order: the client must be installed; /health is asked; if nobody answers, `tq-run serve` is started as a child in a process
// group of its own, so that Ctrl-C reaches the client alone; /v1/models tells name and context; the client runs in the foreground
// with the terminal. When it ends, a server that was started for it is asked to end, with 30 s to write its prefix cache. Logs
// and the client's file are in a directory that only this user can read, and go with it.
// A server is only started for an address of this machine; another's must be running.
#include "base/child_process.h"
#include "base/environment.h"
#include "base/executable.h"
#include "base/file_system.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "tools/server/http_client.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/serve/clients.h"
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

namespace tq {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;

constexpr int stopped_by_user = 130, not_found = 127;
constexpr uint32_t room_to_work = 12'000; // tokens beyond the instructions: files that are read, answers

struct LaunchArguments {
    std::vector<std::string> words;
};

struct Launch {
    const Client& client;
    std::string url, key;
    std::vector<std::string> serve_flags, client_words;
};

std::string client_names() {
    std::string names;
    for (const Client& client : clients()) names += fmt::format("{}{}", names.empty() ? "" : ", ", client.name);
    return names;
}

// If a flag is given several times, the last value counts.
// Returns the value of a flag of tq-run serve, "--port 80" or "--port=80"; empty if it is missing.
std::string value_of(const std::vector<std::string>& words, const std::string& flag) {
    std::string value;
    for (size_t i = 0; i < words.size(); i++) {
        if (words[i].starts_with(flag + "=")) value = words[i].substr(flag.size() + 1);
        if (words[i] == flag && i + 1 < words.size()) value = words[++i];
    }
    return value;
}

// The words are flags of two programs: flags before "--" are for a server, flags after it for the client. launch must know two
// of the server's flags, the port and the key, and it has one of its own, --url. It does not parse the others: `tq-run serve`
// complains about them itself.
Launch read(const std::vector<std::string>& words) {
    if (words.empty()) throw UsageError(fmt::format("launch needs the name of a client: {}", client_names()));
    const auto client = std::ranges::find(clients(), words[0], [](const Client& one) { return std::string(one.name); });
    if (client == clients().end())
        throw UsageError(fmt::format("{} is no client that launch knows: {}", printable(words[0]), client_names()));
    const auto dashes = std::find(words.begin() + 1, words.end(), "--");
    Launch launch{*client, {}, {}, {words.begin() + 1, dashes}, {}};
    if (dashes != words.end()) launch.client_words.assign(dashes + 1, words.end());
    auto& flags = launch.serve_flags;
    if (const auto at = std::ranges::find(flags, "--url"); at != flags.end()) {
        if (at + 1 == flags.end()) throw UsageError("--url needs a value, such as http://127.0.0.1:8080");
        launch.url = at[1];
        while (launch.url.ends_with('/')) launch.url.pop_back();
        flags.erase(at, at + 2);
    }
    const std::string keys = value_of(flags, "--api-key"), port = value_of(flags, "--port");
    launch.key = keys.substr(0, keys.find(','));
    if (launch.url.empty()) launch.url = fmt::format("http://127.0.0.1:{}", port.empty() ? "8080" : port);
    return launch;
}

// A directory for files of this run, which only its user can read.
class OwnDirectory {
  public:
    OwnDirectory() : path_(std::filesystem::temp_directory_path() / fmt::format("tq-run-launch-{:08x}", std::random_device()())) {
        if (!std::filesystem::create_directory(path_)) fail("{} exists already: try once more", utf8_text(path_));
        std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
    }
    ~OwnDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    OwnDirectory(const OwnDirectory&) = delete;
    OwnDirectory& operator=(const OwnDirectory&) = delete;
    const std::filesystem::path& path() const { return path_; }

  private:
    const std::filesystem::path path_;
};

enum class Health { nobody, loading, ready };

Health health(const std::string& url) {
    const auto answer = server::http_get(url, "/health", "", seconds(2));
    if (!answer) return Health::nobody;
    if (answer->status == 503) return Health::loading;
    if (answer->status != 200) fail("what answers at {} is no model server: /health gave {}", url, answer->status);
    return Health::ready;
}

// A server that was started for the client, and ends after it.
class OwnServer {
  public:
    OwnServer(const Launch& launch, const std::filesystem::path& directory)
        : log_(directory / "server.log"), child_(command(launch), {}, redirection(directory)) {}
    ~OwnServer() {
        child_.ask_to_end();
        child_.wait(seconds(30)); // what it has computed goes to the disk
    }

    // Throws Error with what it said when it has ended.
    void check() {
        const auto status = child_.wait(milliseconds(0));
        if (!status) return;
        const std::string said = last_line();
        fail("the server ended with {}{}", describe_exit(*status), said.empty() ? "" : fmt::format(": {}", said));
    }
    std::string last_line() const {
        std::ifstream file(log_);
        std::string line, last;
        while (std::getline(file, line))
            if (!line.empty()) last = printable(line, 300);
        return last;
    }
    const std::filesystem::path& log() const { return log_; }

  private:
    static std::vector<std::string> command(const Launch& launch) {
        constexpr std::string_view local = "http://127.0.0.1:", name = "http://localhost:";
        const bool is_local = launch.url.starts_with(local) || launch.url.starts_with(name);
        if (!is_local)
            fail("nobody answers at {}: start a server there, or leave out --url for one on this machine", printable(launch.url));
        std::vector<std::string> all{utf8_text(executable_path()), "serve"};
        all.insert(all.end(), launch.serve_flags.begin(), launch.serve_flags.end());
        if (value_of(launch.serve_flags, "--port").empty())
            all.insert(all.end(), {"--port", launch.url.substr(launch.url.rfind(':') + 1)});
        return all;
    }
    static Redirection redirection(const std::filesystem::path& directory) {
        Redirection files;
        files.output = directory / "server.out";
        files.error = directory / "server.log";
        files.own_group = true; // Ctrl-C is the client's
        return files;
    }

    const std::filesystem::path log_;
    ChildProcess child_;
};

// Waits until a server is ready, and starts it if there is none. False: the user stopped it.
bool wait_for_server(const Launch& launch, const OwnDirectory& directory, std::unique_ptr<OwnServer>& own) {
    Console console(ColorMode::automatic, false);
    if (health(launch.url) == Health::nobody) {
        own = std::make_unique<OwnServer>(launch, directory.path());
        write_error(fmt::format("tq-run: nobody answers at {}: a server is started for {}\n", launch.url, launch.client.title));
    } else if (!launch.serve_flags.empty() && launch.serve_flags != std::vector<std::string>{"--api-key", launch.key}) {
        write_error(
            fmt::format("tq-run: a server answers at {} already, so that flags for a new one have no effect\n", launch.url));
    }
    while (health(launch.url) != Health::ready) {
        if (interrupted()) return false;
        if (own) own->check();
        console.status("the server", own ? own->last_line() : "loading the model");
        std::this_thread::sleep_for(milliseconds(100));
    }
    console.clear_status();
    return true;
}

// The answer is another program's, maybe another server's than ours, so each field is looked at before it is used. Without a
// context length the client's default stays.
ServedModel ask_model(const Launch& launch) {
    const auto answer = server::http_get(launch.url, "/v1/models", launch.key, seconds(10));
    if (!answer) fail("the server at {} does not answer /v1/models", launch.url);
    if (answer->status == 401) fail("the server at {} wants an API key: give it with --api-key", launch.url);
    const auto json = nlohmann::json::parse(answer->body, nullptr, false);
    if (!json.is_object() || !json.contains("data") || !json["data"].is_array() || json["data"].empty() ||
        !json["data"][0].is_object() || !json["data"][0].contains("id") || !json["data"][0]["id"].is_string())
        fail("the server at {} names no model in /v1/models (status {})", launch.url, answer->status);
    const auto& model = json["data"][0];
    ServedModel served{launch.url, launch.key, model["id"], 0};
    if (const auto meta = model.find("meta"); meta != model.end() && meta->is_object() && meta->contains("n_ctx"))
        if ((*meta)["n_ctx"].is_number_unsigned()) served.context = (*meta)["n_ctx"];
    return served;
}

void warn_of_small_context(const Client& client, uint32_t context) {
    const uint32_t needed = (client.instructions_tokens + room_to_work + 8191) / 8192 * 8192;
    if (context == 0 || context >= needed) return;
    write_error(fmt::format("tq-run: {} begins with about {} tokens of instructions, and the server's context is {}: start the "
                            "server with -c {} or more, or long conversations will be refused\n",
                            client.title, client.instructions_tokens, context, needed));
}

int start_client(const Launch& launch, const ServedModel& model, const OwnDirectory& directory) {
    const ClientStart start = launch.client.start(model, directory.path());
    if (start.file) append_private(directory.path() / start.file->name, start.file->content);
    std::vector<std::string> command{std::string(launch.client.program)};
    command.insert(command.end(), start.arguments.begin(), start.arguments.end());
    command.insert(command.end(), launch.client_words.begin(), launch.client_words.end());
    return run_in_foreground(command, start.environment);
}

// Looked up in PATH before anything is started, so that a model is not loaded for a client that is missing.
bool is_installed(std::string_view program) {
#ifdef _WIN32
    constexpr char separator = ';';
    const std::string name = fmt::format("{}.exe", program);
#else
    constexpr char separator = ':';
    const std::string name(program);
#endif
    std::istringstream directories(environment_variable("PATH").value_or(""));
    for (std::string directory; std::getline(directories, directory, separator);) {
        std::error_code missing;
        if (std::filesystem::is_regular_file(utf8_path(directory) / name, missing)) return true;
    }
    return false;
}

int run(const LaunchArguments& arguments) {
    const Launch launch = read(arguments.words);
    if (!is_installed(launch.client.program)) {
        write_error(
            fmt::format("tq-run: {} is not installed, or not in PATH: {}\n", launch.client.program, launch.client.install));
        return not_found;
    }
    catch_interrupts();
    catch_termination();
    const OwnDirectory directory;
    std::unique_ptr<OwnServer> own;
    if (!wait_for_server(launch, directory, own)) return stopped_by_user;
    const ServedModel model = ask_model(launch);
    warn_of_small_context(launch.client, model.context);
    write_error(fmt::format("tq-run: {} with {} at {}{}\n", launch.client.title, printable(model.name, 100), model.url,
                            own ? fmt::format("; the server's log is {}", utf8_text(own->log())) : ""));
    return start_client(launch, model, directory);
}

} // namespace

void add_launch(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, LaunchArguments& a) {
        std::string client_words;
        for (const Client& client : clients()) client_words += fmt::format("{}{}", client_words.empty() ? "" : " ", client.name);
        add_option(command, "words", a.words, "CLIENT [--url URL] [SERVE-FLAGS...] [-- ARGUMENTS...]",
                   fmt::format("{}; flags of tq-run serve for a server of its own; arguments of the client", client_names()))
            .values(client_words)
            .take_all();
        command.footer(
            "Starts the client with a server at --url (default: http://127.0.0.1:8080), and that server, too, where none\n"
            "answers. Its own settings are not changed. Example:\n"
            "  tq-run launch claude -hf Qwen/Qwen3-4B-GGUF:Q4_K_M -c 64k -- --continue");
    };
    add_command<LaunchArguments>(app, action, "launch", "Start a coding agent with a server: Claude Code, Codex and others",
                                 flags, run);
}

} // namespace tq
