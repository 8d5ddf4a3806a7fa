// Conversations that have a name: files NAME.json beside the history. A name has letters, digits, - and _ only, so it cannot be a
// path, and a path (with a point or a slash) is never taken for a name. Those at a terminal are named by the time,
// "2026-01-31-1405", with -2 and so on if two begin within a minute. --resume without a name takes the latest by the file's
// time; if several are equally late, it asks for a name instead of guessing.
#include "tools/tq-run/talk/kept_conversation.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/json.h"
#include "tools/tq-run/cli/columns.h"
#include "tools/tq-run/cli/time_left.h"
#include "tools/tq-run/talk/history.h"
#include "tools/tq-run/talk/saved_conversation.h"
#include <algorithm>
#include <span>

namespace tq {
namespace {

namespace fs = std::filesystem;

constexpr size_t max_name = 64, max_listed = 50;

fs::path conversations_directory() {
    const fs::path history = history_path();
    if (history.empty()) fail("there is no directory for conversations: set XDG_DATA_HOME or HOME, or give a path with a /");
    return history.parent_path() / "conversations";
}

std::string age_text(fs::file_time_type time) {
    using namespace std::chrono;
    return duration_text(duration_cast<seconds>(fs::file_time_type::clock::now() - time).count());
}

// "3 turns: My name is Anna.", or what is wrong with the file.
std::string outline(const std::string& name) {
    try {
        const auto messages = read_conversation(conversation_path(name)).value("messages", nlohmann::json::array());
        size_t turns = 0;
        std::string first;
        for (const auto& message : messages) {
            if (!message.is_object() || message.value("role", nlohmann::json()) != "user") continue;
            const auto content = message.value("content", nlohmann::json());
            if (turns++ == 0 && content.is_string()) first = ": " + printable(content.get<std::string>(), 200);
        }
        return fmt::format("{} {}{}", turns, turns == 1 ? "turn" : "turns", first);
    } catch (const Error&) {
        return "its file is damaged";
    }
}

} // namespace

bool is_conversation_name(const std::string& text) {
    return !text.empty() && text[0] != '-' && text.size() <= max_name && std::ranges::all_of(text, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    });
}

std::string conversation_path(const std::string& name) { return utf8_text(conversations_directory() / (name + ".json")); }

// The directory is for the user alone: what people ask is private.
void make_conversations_directory() {
    const fs::path directory = conversations_directory();
    std::error_code error;
    if (fs::is_directory(directory, error)) return;
    fs::create_directories(directory, error);
    if (std::error_code unknown; !fs::is_directory(directory, unknown))
        fail("cannot create the directory {}: {}", printable(utf8_text(directory), 300), error.message());
    fs::permissions(directory, fs::perms::owner_all, error);
}

// The latest come first; of equally late ones the order is that of names, so that lists do not change from call to call. Files
// may vanish meanwhile, and then are left out.
std::vector<KeptConversation> kept_conversations() {
    std::vector<KeptConversation> all;
    if (history_path().empty()) return all;
    std::error_code error;
    for (fs::directory_iterator at(conversations_directory(), error), end; !error && at != end; at.increment(error)) {
        const std::string stem = utf8_text(at->path().stem());
        std::error_code gone;
        const auto time = last_modified(at->path(), gone);
        if (!gone && at->is_regular_file(gone) && at->path().extension() == ".json" && is_conversation_name(stem))
            all.push_back({stem, time});
    }
    std::ranges::sort(all, [](const auto& a, const auto& b) { return a.time != b.time ? a.time > b.time : a.name < b.name; });
    return all;
}

std::string list_conversations(size_t columns) {
    const auto all = kept_conversations();
    size_t width = 0;
    for (const KeptConversation& one : all) width = std::max(width, one.name.size());
    std::string text;
    for (const KeptConversation& one : std::span(all).first(std::min(all.size(), max_listed)))
        text += cut_end(fmt::format("{:<{}}  {:>9}  {}", one.name, width, age_text(one.time), outline(one.name)), columns) + '\n';
    if (all.size() > max_listed)
        text += fmt::format("and {} older ones in {}\n", all.size() - max_listed,
                            printable(utf8_text(conversations_directory()), 200));
    return text;
}

// An exact name always wins. Without a name the latest conversation is meant, and if several have the same time, nobody is
// guessed for. Messages name at most five, as there may be hundreds.
std::string conversation_to_resume(const std::string& name) {
    const auto all = kept_conversations();
    if (!name.empty() && is_there(utf8_path(conversation_path(name)))) return name;
    if (all.empty()) fail("there is no conversation to resume: chat at a terminal keeps them, and so does /save NAME");
    const size_t equal = size_t(std::ranges::count(all, all[0].time, &KeptConversation::time));
    if (name.empty() && equal == 1) return all[0].name;
    const auto few = std::span(all).first(std::min<size_t>(all.size(), name.empty() ? equal : 5));
    std::string names;
    for (const KeptConversation& one : few) names += (names.empty() ? "" : ", ") + one.name;
    if (name.empty()) fail("{} conversations are equally late, so give --resume a name: {}", equal, names);
    fail("there is no conversation {}: the latest of {} are {}; /list in chat lists them", name, all.size(), names);
}

std::string new_conversation_name() {
    const std::string text = local_time_text("%Y-%m-%d-%H%M");
    std::string name = text;
    for (int i = 2; is_there(utf8_path(conversation_path(name))); i++) name = fmt::format("{}-{}", text, i);
    return name;
}

} // namespace tq
