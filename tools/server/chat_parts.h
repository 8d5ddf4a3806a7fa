// What the requests of the agents' APIs (responses, messages) are made of: items of a conversation become turns, tools those that
// the chat template takes. Each read_ function throws an ApiError (400) that names the field.
#pragma once
#include "tools/server/json_fields.h"

namespace tq::server {

// "input[1]" from "input" and 1.
std::string entry_path(std::string_view path, size_t index);

// The entry of a list, which must be an object.
const Json& object_entry(const Json& list, size_t index, std::string_view path);
std::string required_text(const Json& object, const char* name, std::string_view path);
std::string required_name(const Json& object, std::string_view path); // "name", not empty
const Json& required_object(const Json& object, const char* name, std::string_view path);

void append_text(std::string& text, std::string_view more, std::string_view between);

// A text from JSON text, a string or null; what is no valid UTF-8 becomes U+FFFD.
std::string dump_text(const Json& json);

// Builds ChatTask::messages. What an assistant says, thinks and calls without anything in between is one turn, as it was when the
// model answered, so that the prompt begins as the one before did.
class Conversation {
  public:
    void lead(std::string_view text);                     // appends to the one system message at the beginning
    void turn(const char* role, const std::string& text); // user, or a system turn that stays where it is
    void reasoning(const std::string& text);
    void answer(const std::string& text);
    void call(const std::string& id, const std::string& name, Json arguments); // an object, or its text
    void result(const std::string& id, const std::string& text);

    bool empty() const { return messages_.empty(); }
    bool ends_with_answer() const; // of an assistant
    Json take();

  private:
    Json& assistant();
    void append(const char* name, const std::string& text);

    std::string system_;
    bool has_system_ = false;
    Json messages_ = Json::array();
};

// {"type": "function", "function": {...}}; null where there is no description, or no parameters.
Json function_tool(const std::string& name, const std::optional<std::string>& description, const Json* parameters);

// Sets the choice: a function by its name, or any. Throws where there is no such tool.
void require_tool(ChatTask& task, const std::string& name, std::string_view path);
void require_any_tool(ChatTask& task, std::string_view path);

// {"type": "text" | "json_object" | "json_schema", "schema"}; null: text.
Format read_format(const Json* format, std::string_view path);

// The fields of read_sampling(); what the task has already, max_tokens and stop, is kept. There is one choice.
void read_task_sampling(ChatTask& task, const Service& service, const Json& body);

} // namespace tq::server
