// A conversation as the templates get it, and the prompt that they make of it.
#pragma once
#include "model/text/tokenizer.h"
#include <nlohmann/json.hpp>

namespace tq {

struct ChatMessage {
    enum class Role { system, user, assistant, tool };
    struct ToolCall {
        std::string name;
        nlohmann::ordered_json arguments; // a string holds JSON

        std::string text() const;
        // The arguments as an object. Throws an Error with the index of the message if they are no object.
        nlohmann::ordered_json object(size_t message) const;
    };

    Role role;
    std::string content;
    std::optional<std::string> reasoning_content;
    std::vector<ToolCall> tool_calls;
};

// An assistant message in two parts. Without reasoning_content they are separated by the tags in the content.
struct DividedAnswer {
    std::string_view reasoning, content;
};
DividedAnswer divide_answer(const std::optional<std::string>& reasoning_content, std::string_view content);

// Returns the last message that a person wrote: a user message that is not a tool response; the last message of all when there
// is none. `stripped`: white space around a tool response does not make it another message.
size_t last_query(const std::vector<ChatMessage>& messages, bool stripped = false);

// The template's own text is markup, the callers' text is not.
class PromptPieces {
  public:
    void markup(std::string_view text) { add(text, true); }
    void content(std::string_view text) { add(text, false); }
    std::vector<Piece> take() { return std::move(pieces_); }

  private:
    void add(std::string_view text, bool markup) {
        if (text.empty()) return;
        if (pieces_.empty() || pieces_.back().markup != markup) pieces_.push_back({{}, markup});
        pieces_.back().text += text;
    }

    std::vector<Piece> pieces_;
};

} // namespace tq
