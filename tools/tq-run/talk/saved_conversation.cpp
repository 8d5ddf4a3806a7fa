// A conversation as a file: {"format": "tq-run conversation", "version": 1, "model", "settings", "messages", "tokens"}. `tokens`
// are the ids in the cache when it was saved, by which the prefix cache can find them again; without them, or if they are no
// ids, the prompt is found or run as any other. An existing file is replaced only if it is a conversation or empty: /save talk.c
// must not destroy a source file.
#include "tools/tq-run/talk/saved_conversation.h"
#include "base/error.h"
#include "base/json.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/json.h"
#include "tools/tq-run/cli/byte_files.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tq {

constexpr const char* format = "tq-run conversation";
constexpr int version = 1;
constexpr uint64_t max_saved_bytes = 64u << 20;

static bool is_conversation(const nlohmann::json& json) {
    return json.is_object() && json.value("format", nlohmann::json()) == format;
}

// Half an emoji, where another program has cut a text, is U+FFFD.
static nlohmann::json read_saved(const std::filesystem::path& path) {
    return build_json(read_text_file(path, max_saved_bytes), utf8_text(path), {.lone_surrogates = true});
}

bool is_saved_conversation(const std::string& text) {
    const auto path = utf8_path(text);
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) return false;
    const std::string beginning = "{\n  \"format\": \"" + std::string(format) + '"'; // as save_conversation writes it
    std::ifstream file(path, std::ios::binary);
    std::string found(beginning.size(), '\0');
    if (file.read(found.data(), std::streamsize(found.size())) && found == beginning) return true;
    try {
        return is_conversation(read_saved(path)); // other programs order and indent it otherwise
    } catch (const Error&) {
        return false;
    }
}

// Throws unless the file is a saved conversation: no other file is overwritten.
static void require_own(const std::string& text) {
    const auto path = utf8_path(text);
    std::error_code error;
    if (!is_there(path) || std::filesystem::file_size(path, error) == 0) return;
    if (!is_saved_conversation(text))
        fail("{} exists and is not a saved conversation: name another file, or delete it first", printable(text, 200));
}

void save_conversation(const std::string& path, const std::string& model, const ChatSettings& settings, const ChatTurns& from,
                       std::span<const uint32_t> tokens) {
    const nlohmann::ordered_json json{{"format", format},
                                      {"version", version},
                                      {"model", model},
                                      {"settings", settings.to_json()},
                                      {"messages", from.messages()}};
    std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
    text.resize(text.find_last_not_of("\n}") + 1); // the tokens in one line
    text += fmt::format(",\n  \"tokens\": {}\n}}\n", nlohmann::json(tokens).dump());
    if (text.size() > max_saved_bytes) // it could not be loaded
        fail("{} is not written: the conversation has more than {} MiB: /clear starts a new one", printable(path, 200),
             max_saved_bytes >> 20);
    require_own(path);
    ByteOutput file(path, ByteInput("-"));
    file.write({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    file.commit();
}

nlohmann::json read_conversation(const std::string& path) {
    const std::string name = printable(path, 200);
    std::error_code error;
    if (std::filesystem::exists(utf8_path(path), error) && !std::filesystem::is_regular_file(utf8_path(path), error))
        fail("{} is not a file", name);
    auto json = read_saved(utf8_path(path));
    if (!is_conversation(json)) fail("{} is not a conversation that chat's /save has written", name);
    if (json.value("version", nlohmann::json()) != version)
        fail("{} has another version than {}, the only one that this program reads", name, version);
    return json;
}

LoadedConversation load_conversation(const std::string& path, ChatSettings& settings, ChatTurns& to) {
    const auto json = read_conversation(path);
    try {
        const ChatSettings read = ChatSettings::from_json(json.value("settings", nlohmann::json::object()), settings);
        to.replace(json.value("messages", nlohmann::json()));
        settings = read;
    } catch (const Error& reason) {
        fail("{} is damaged: {}", printable(path, 200), reason.what());
    }
    const auto model = json.value("model", nlohmann::json()), tokens = json.value("tokens", nlohmann::json::array());
    LoadedConversation loaded{model.is_string() ? model.get<std::string>() : "", {}};
    const auto is_id = [](const nlohmann::json& id) { return id.is_number_unsigned() && id.get<uint64_t>() <= UINT32_MAX; };
    if (tokens.is_array() && std::ranges::all_of(tokens, is_id)) loaded.tokens = tokens.get<std::vector<uint32_t>>();
    return loaded;
}

} // namespace tq
