// Constraints of an answer: grammars of formats and tool calls, and a limit of the thinking.
#pragma once
#include "model/text/grammar/constraint.h"
#include "tools/server/generation.h"

namespace tq::server {

// The beginning of an answer.
struct Thinking {
    bool open = false;              // the prompt has opened <think>
    bool possible = false;          // the answer may begin with <think>
    std::optional<uint32_t> budget; // tokens of the thinking; then </think> is the only one that may follow
};

// Whether calls have tags that are tokens of the vocabulary.
bool has_call_tags(const Tokenizer& tokenizer);

class Constraints {
  public:
    // Throw ApiError (400), with what is wrong with the grammar, or a schema that is strict. If a schema is not strict, the log
    // says what of it is not followed.
    Constraints(Service& service, const Format& format, bool ignore_end);
    Constraints(Service& service, const ChatTask& task, const Thinking& thinking);

    std::unique_ptr<TokenConstraint> make() const; // for one answer; null if every token may follow

  private:
    void set_format(const Format& format, bool ignore_end);
    std::shared_ptr<const grammar::Grammar> compile_schema(const Format& format);
    void set_calls(const ChatTask& task);

    Service& service_;
    Thinking thinking_;
    std::shared_ptr<const grammar::Grammar> format_, calls_;
    const char* format_field_ = ""; // of the request
    bool must_call_ = false;
};

} // namespace tq::server
