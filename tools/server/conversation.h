// The messages of all APIs become one conversation by one set of rules, so that the same words are the same prompt whatever API
// they came by. A mistake in the history is never an error: a client would send it again with every request.
#pragma once
#include "tools/server/json_fields.h"
#include <functional>
#include <map>
#include <set>
#include <span>

namespace tq::server {

// Builds ChatTask::messages. What an assistant says, thinks and calls without anything in between is one turn, as it was when the
// model answered, so that the prompt begins as the one before did.
class Conversation {
  public:
    // System texts at the beginning are one message. Later ones stay where they are, so that what precedes them stays in the
    // cache.
    void system(const std::string& text);
    void user(const std::string& text);
    void reasoning(const std::string& text);
    void answer(const std::string& text);
    // `arguments`: an object or its text, null for none. A text that was cut off is shown as it is, a call without a name is left
    // out.
    void call(const std::string& id, const std::string& name, const Json* arguments);
    void result(const std::string& id, const std::string& text);
    // The same for a tool that another server ran: the call is shown before its result, if that is text.
    void foreign_call(const std::string& id, const std::string& name, const Json* arguments);
    void foreign_result(const std::string& id, const std::string& text);
    // Returns the text that stands for a part that is no text: "[image is left out: the model reads only text]".
    std::string left_out(std::string_view type);

    void ignore(std::string what) { ignored_.insert(std::move(what)); } // for the log

    bool empty() const { return messages_.empty(); }
    const std::set<std::string>& ignored() const { return ignored_; }
    Json take();

  private:
    Json& assistant();
    void append(const char* name, const std::string& text);

    std::string system_;
    bool has_system_ = false;
    Json messages_ = Json::array();
    std::set<std::string> ignored_;
    std::map<std::string, std::pair<std::string, Json>> foreign_; // calls without a result yet: names and arguments by ids
};

// Appends a message: {role, content, ...} of any of the APIs, with its other fields (tool_calls, reasoning_content). `roles`:
// the roles that the API has. Throws an ApiError (400) that names the field if a content
// has another type; ids, names and calls of the history may be any.
void read_message(Conversation& conversation, const Json& message, std::span<const std::string_view> roles, const Limits& limits,
                  const std::string& path);

// Appends a system text, without the line of Claude Code that changes with every request.
void read_system(Conversation& conversation, const Json& object, const char* name, const Limits& limits, const std::string& path);

// Reads what a tool has returned: a text, a list of parts, or anything else as its JSON.
std::string read_result(Conversation& conversation, const Json& object, const char* name, const Limits& limits,
                        const std::string& path);

// Returns a text of the history. Other types are no mistake that matters there: they are shown as JSON. {"value": TEXT} is the
// text of OpenAI's threads.
std::string shown_text(const Json& object, const char* name);

// The text within what a tool has returned that another server ran.
std::string read_foreign_text(Conversation& conversation, const Json& value, const Limits& limits, const std::string& path);

// Calls `read` with each part of a content, its type and path. A text is a part, also in a list; null is none.
using ReadPart = std::function<void(const Json& part, const std::string& type, const std::string& path)>;
void each_part(const Json& object, const char* name, const Limits& limits, std::string_view path, const ReadPart& read);

} // namespace tq::server
