#include "tools/tq-run/talk/saved_conversation.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/printable.h"
#include "model/formats/json.h"
#include "tools/tq-run/byte_files.h"
#include <nlohmann/json.hpp>

namespace tq {

constexpr const char* format = "tq-run conversation";
constexpr int version = 1;
constexpr uint64_t max_saved_bytes = 64u << 20;

// Throws unless the file is a saved conversation: only those are overwritten.
static void require_own(const std::string& path) {
    std::error_code error;
    if (!is_there(utf8_path(path)) || std::filesystem::file_size(utf8_path(path), error) == 0) return;
    const std::string beginning = "{\n  \"format\": \"" + std::string(format) + '"';
    std::ifstream file(utf8_path(path), std::ios::binary);
    std::string found(beginning.size(), '\0');
    if (!file.read(found.data(), std::streamsize(found.size())) || found != beginning)
        fail("{} exists and is not a saved conversation: name another file, or delete it first", printable(path, 200));
}

void save_conversation(const std::string& path, const std::string& model, const ChatSettings& settings,
                       const Conversation& from) {
    const nlohmann::ordered_json json{{"format", format},
                                      {"version", version},
                                      {"model", model},
                                      {"settings", settings.to_json()},
                                      {"messages", from.messages()}};
    const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
    require_own(path);
    ByteOutput file(path, ByteInput("-"));
    file.write({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    file.commit();
}

std::string load_conversation(const std::string& path, ChatSettings& settings, Conversation& to) {
    const std::string name = printable(path, 200);
    std::error_code error;
    if (std::filesystem::exists(utf8_path(path), error) && !std::filesystem::is_regular_file(utf8_path(path), error))
        fail("{} is not a file", name);
    const auto json = read_json_file(utf8_path(path), max_saved_bytes);
    if (!json.is_object() || json.value("format", nlohmann::json()) != format)
        fail("{} is not a conversation that chat's /save has written", name);
    if (json.value("version", nlohmann::json()) != version)
        fail("{} has another version than {}, the only one that this program reads", name, version);
    try {
        const ChatSettings read = ChatSettings::from_json(json.value("settings", nlohmann::json::object()), settings);
        to.replace(json.value("messages", nlohmann::json()));
        settings = read;
    } catch (const Error& reason) {
        fail("{} is damaged: {}", name, reason.what());
    }
    const auto model = json.value("model", nlohmann::json());
    return model.is_string() ? model.get<std::string>() : "";
}

} // namespace tq
