// An answer while its tokens come: their bytes become characters, the thinking is told apart, stop strings end the rest, and what
// is certain becomes events.
#pragma once
#include "model/engine/serving/request.h"
#include "tools/server/generation.h"
#include "tools/server/stop_strings.h"
#include <deque>

namespace tq::server {

class Answer {
  public:
    struct Options {
        uint32_t choice = 0;
        bool chat = false;                            // else all is content
        bool in_thinking = false;                     // the prompt has opened <think>
        bool calls = false;                           // tool calls are told apart; else they are content
        UntaggedCalls untagged = UntaggedCalls::none; // which calls are told apart though they have no tags
        ToolTypes types;
        std::vector<std::string> stop; // of the content and the calls, not of the thinking
        bool logprobs = false;
    };

    Answer(const Tokenizer& tokenizer, Options options);

    // Appends to `events` what became certain. Tokens after a stop string are ignored.
    void push(const serving::Token& token, std::vector<Event>& events);
    void finish(std::vector<Event>& events, bool cut); // once, at the end; `cut`: the model did not end it

    TokenText token_text(const serving::Token& token) const;
    const std::optional<std::string>& stop_string() const { return stop_.found(); }
    uint32_t reasoning_tokens() const; // with the tags
    // Returns the answer so far. Calls that were cut off are left out.
    const ParsedAnswer& parsed() const { return parsed_; }
    const std::vector<uint32_t>& ids() const { return ids_; }

  private:
    enum class Phase { start, reasoning, content };
    struct Pending { // a token that is in no event yet
        TokenText text;
        size_t begin, end; // in the text
    };

    void take(std::string_view text, std::vector<Event>& events);
    size_t reasoning_bytes();
    void show(std::vector<AnswerPart> parts, size_t bytes, std::vector<Event>& events);
    void add(AnswerPart part, std::vector<Event>& events);
    void attach(std::vector<Event>& events, size_t first, bool all);

    const Tokenizer& tokenizer_;
    const Options options_;
    Utf8Stream utf8_;
    Phase phase_;
    std::string undecided_; // text that may be thinking or not, or the beginning of the tag that ends it
    StopStrings stop_;
    AnswerParser parser_;
    std::deque<Pending> pending_;
    size_t produced_ = 0, passed_ = 0; // bytes of all text, and of the text that the parser got
    std::vector<uint32_t> ids_;
    size_t reasoning_ids_ = 0;
    bool was_thinking_;
    ParsedAnswer parsed_;
    ParsedAnswer::Call call_;
};

} // namespace tq::server
