#include "tools/tq-run/talk/kept_conversation.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/formats/json.h"
#include "tools/tq-run/talk/history.h"
#include <algorithm>
#include <ctime>

namespace tq {
namespace {

namespace fs = std::filesystem;

constexpr size_t max_name = 64;

fs::path conversations_directory() {
    const fs::path history = history_path();
    if (history.empty()) fail("there is no directory for conversations: set XDG_DATA_HOME or HOME, or give a path with a /");
    return history.parent_path() / "conversations";
}

} // namespace

bool is_conversation_name(const std::string& text) {
    return !text.empty() && text[0] != '-' && text.size() <= max_name && std::ranges::all_of(text, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    });
}

std::string conversation_path(const std::string& name) { return utf8_text(conversations_directory() / (name + ".json")); }

void make_conversations_directory() {
    const fs::path directory = conversations_directory();
    std::error_code error;
    if (fs::is_directory(directory, error)) return;
    fs::create_directories(directory, error);
    if (!fs::is_directory(directory))
        fail("cannot create the directory {}: {}", printable(utf8_text(directory), 300), error.message());
    fs::permissions(directory, fs::perms::owner_all, error);
}

std::optional<std::string> latest_conversation() {
    std::optional<std::string> name;
    fs::file_time_type latest{};
    std::error_code error;
    for (fs::directory_iterator at(conversations_directory(), error), end; !error && at != end; at.increment(error)) {
        const std::string stem = utf8_text(at->path().stem());
        std::error_code gone;
        const auto time = at->last_write_time(gone);
        if (gone || at->path().extension() != ".json" || !is_conversation_name(stem) || (name && time <= latest)) continue;
        name = stem;
        latest = time;
    }
    return name;
}

std::string new_conversation_name() {
    const std::time_t now = std::time(nullptr);
    char text[32] = "";
    if (const std::tm* local = std::localtime(&now)) std::strftime(text, sizeof text, "%Y-%m-%d-%H%M", local);
    std::string name = text;
    for (int i = 2; is_there(utf8_path(conversation_path(name))); i++) name = fmt::format("{}-{}", text, i);
    return name;
}

} // namespace tq
