// The turns of a chat, and the prompt they make.
#pragma once
#include "model/model.h"
#include <string>
#include <vector>

namespace tq {

class Conversation {
  public:
    // Both throw Error when the text is not valid UTF-8.
    Conversation(const Tokenizer& tokenizer, ChatOptions options, std::string system);
    void ask(std::string question);

    void answer(std::string text); // without its thinking, which the template drops from the history anyway
    void take_back_question();     // the last one, still without an answer
    bool take_back_answer();       // false when there is none
    void clear();

    // The whole history by the model's template. Rendered and encoded anew each time: the ids are always those of the template,
    // and the session finds the longest part that is in the cache already.
    std::vector<uint32_t> prompt() const;

  private:
    const Tokenizer& tokenizer_;
    ChatOptions options_;
    std::string system_;
    nlohmann::ordered_json messages_;
};

} // namespace tq
