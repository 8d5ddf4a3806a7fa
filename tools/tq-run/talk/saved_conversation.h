// A conversation as a file of readable JSON: /save and /load of chat.
#pragma once
#include "tools/tq-run/talk/chat_settings.h"
#include "tools/tq-run/talk/chat_turns.h"

namespace tq {

// {"format": "tq-run conversation", "version": 1, "model": NAME, "settings": {...}, "messages": [{"role", "content"}, ...],
// "tokens": [...]}; written completely or not at all. tokens: the ids that were run; the conversation goes on with them. Throws
// Error.
void save_conversation(const std::string& path, const std::string& model, const ChatSettings& settings, const ChatTurns& from,
                       std::span<const uint32_t> tokens);

bool is_saved_conversation(const std::string& path);

// Reads the file, but not yet what is in its messages. Throws an Error that names it if it is no conversation, or another
// version's.
nlohmann::json read_conversation(const std::string& path);

struct LoadedConversation {
    std::string model;            // that it was saved with
    std::vector<uint32_t> tokens; // empty if the file has none
};
// Replaces both with the file's contents. Throws an Error that names the file if it is damaged or something else; nothing is
// changed then.
LoadedConversation load_conversation(const std::string& path, ChatSettings& settings, ChatTurns& to);

} // namespace tq
