// The turns of a chat, and the prompt they make.
#pragma once
#include "model/model.h"
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tq {

class ChatTurns {
  public:
    // Both throw Error when the text is not valid UTF-8.
    ChatTurns(const Tokenizer& tokenizer, ChatOptions options, std::string system);
    void ask(std::string question);

    // The thinking is kept if the template has it in the history, too.
    void answer(std::string text, std::string thought = {});
    void take_back_question(); // the last one, still without an answer
    bool take_back_answer();   // false when there is none
    void clear();              // the turns, not the system prompt

    size_t turns() const; // questions

    // The context may begin at a later turn than the first: prompt() leaves earlier ones out, messages() keeps them. Taking back
    // an answer lets it begin where it did before the question, and another conversation at the first.
    size_t first_turn_in_context() const { return begin_; }
    void begin_context_at(size_t turn) { begin_ = turn; } // less than turns()

    const std::string& system() const { return system_; }
    void set_system(std::string text); // throws Error when it is not valid UTF-8; empty: none

    // A list of {role, content, reasoning_content?}: the system prompt, if there is one, then user and assistant alternately.
    const nlohmann::ordered_json& messages() const { return messages_; }
    // Throws Error, and changes nothing, if it is no list of messages or does not end with an answer.
    void replace(const nlohmann::json& messages);

    // The history that is in the context, rendered by the model's template. Rendered and encoded again each time: the ids
    // always follow the template, and the session finds the longest prefix that is already in the cache.
    std::vector<uint32_t> prompt() const { return prompt_from(begin_); }
    // The prompt if the context began at that turn.
    std::vector<uint32_t> prompt_from(size_t turn) const;

  private:
    size_t first_message() const { return system_.empty() ? 0 : 1; }

    const Tokenizer* tokenizer_; // not null
    ChatOptions options_;
    std::string system_;
    nlohmann::ordered_json messages_; // all of them
    size_t begin_ = 0;                // turns before the context's first
    std::vector<size_t> begins_;      // begin_ when each turn was asked
};

} // namespace tq
