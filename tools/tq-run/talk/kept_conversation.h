// The conversations that chat keeps by their names, to be resumed: /save NAME, /load NAME, --resume.
#pragma once
#include <optional>
#include <string>

namespace tq {

// A name has letters, digits, - and _; anything else that /save and /load take is the path of a file.
bool is_conversation_name(const std::string& text);

// Returns the path of the file of this name, in conversations/ beside the history (history.h). Throws Error where there is no
// directory for it.
std::string conversation_path(const std::string& name);
// Creates that directory, which only its user may read. Throws Error.
void make_conversations_directory();

// Returns the name of the conversation that was kept last; nothing where there is none.
std::optional<std::string> latest_conversation();

// Returns a name that no conversation has: the time, "2026-11-24-1314".
std::string new_conversation_name();

} // namespace tq
