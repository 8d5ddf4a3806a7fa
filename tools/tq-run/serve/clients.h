// The programs that tq-run launch starts, and what each must be told to use a server: by its environment, its command line and
// files of ours, never by the user's own settings.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tq {

// A server that answers.
struct ServedModel {
    std::string url; // "http://127.0.0.1:8080"
    std::string key; // empty: it wants none
    std::string name;
    uint32_t context = 0; // tokens; 0: not known
};

struct ClientStart {
    std::vector<std::string> arguments;   // after the program; the user's follow
    std::vector<std::string> environment; // NAME=value
    struct File {
        std::string name, content;
    };
    std::optional<File> file; // in a directory of ours, which is `directory` of start()
};

struct Client {
    std::string_view name, program, title;
    std::string_view install;     // the command
    uint32_t instructions_tokens; // of its first prompt, about
    ClientStart (*start)(const ServedModel& model, const std::filesystem::path& directory);
};

std::span<const Client> clients();

} // namespace tq
