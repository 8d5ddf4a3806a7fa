// The conversations that chat keeps by their names, to be resumed: /save NAME, /load NAME, --resume.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace tq {

// A name has letters, digits, - and _; anything else that /save and /load take is the path of a file.
bool is_conversation_name(const std::string& text);

// Returns the path of the file of this name, in conversations/ beside the history (history.h). Throws Error if there is no
// directory for it.
std::string conversation_path(const std::string& name);
// Creates that directory, which only its user may read. Throws Error.
void make_conversations_directory();

struct KeptConversation {
    std::string name;
    std::filesystem::file_time_type time; // when it was kept
};
// Returns the kept conversations, the latest first; none if there is no directory for them.
std::vector<KeptConversation> kept_conversations();

// A line for each, for people: name, age, turns and first question, cut to `columns`; the first few of many.
std::string list_conversations(size_t columns);

// Returns the name that --resume means: this one, or the latest if it is empty. Throws an Error that names the conversations if
// there is none, or two are equally late.
std::string conversation_to_resume(const std::string& name);

// Returns a name that no conversation has: the time, "2026-11-24-1314".
std::string new_conversation_name();

} // namespace tq
