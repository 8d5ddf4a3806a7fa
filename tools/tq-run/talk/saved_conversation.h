// A conversation as a file of readable JSON: /save and /load of chat.
#pragma once
#include "tools/tq-run/talk/chat_settings.h"
#include "tools/tq-run/talk/conversation.h"

namespace tq {

// {"format": "tq-run conversation", "version": 1, "model": NAME, "settings": {...}, "messages": [{"role", "content"}, ...]};
// written completely or not at all. Throws Error.
void save_conversation(const std::string& path, const std::string& model, const ChatSettings& settings, const Conversation& from);

// Replaces both with the file's contents, and returns the name of the model it was saved with. Throws an Error that names the
// file where it is damaged or something else; nothing is changed then.
std::string load_conversation(const std::string& path, ChatSettings& settings, Conversation& to);

} // namespace tq
