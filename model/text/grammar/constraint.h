// A grammar as a sampler's constraint: from the first token, after the thinking, or from a token on that triggers it.
#pragma once
#include "model/engine/sampling/constraint.h"
#include "model/text/grammar/matcher.h"
#include <memory>
#include <optional>
#include <string_view>

namespace tq {

class Tokenizer;

enum class GrammarStart {
    at_once,
    in_thinking,     // the prompt has opened <think>: the grammar begins after </think>, one of calls with their first token, too
    before_thinking, // the answer may begin with <think>: the grammar begins after </think>, or at once
    at_tool_call,    // the answer is free up to a token <tool_call>, which is the first that the grammar reads
};

class GrammarConstraint final : public TokenConstraint {
  public:
    // Throws an Error when the model lacks a special token that the grammar or `start` needs. `tokenizer` is used only here.
    GrammarConstraint(std::shared_ptr<const grammar::Grammar> grammar, std::shared_ptr<const grammar::TokenTrie> tokens,
                      const Tokenizer& tokenizer, GrammarStart start = GrammarStart::at_once);

    // Ids beyond the vocabulary may never follow. Up to two newlines may lie between </think> and the grammar's text, as in the
    // template. While the model thinks, every token may follow except those that end the generation.
    void apply(std::span<float> logits) override;
    // Throws an Error if apply() would not allow the token.
    void accept(uint32_t id) override;

    void restart();                                        // for another answer
    size_t accepted() const { return phases_.size() - 1; } // tokens since then
    // Goes back to the state after n accepted tokens, at most Matcher::max_rewind tokens back.
    void rewind(size_t n);
    // True when the grammar has begun and may end here.
    bool can_end() const { return phase().kind == Kind::grammar && matcher_.can_end(); }

  private:
    enum class Kind : uint8_t { choice, thinking, gap, free, grammar };
    struct Phase {
        Kind kind;
        uint8_t newlines; // that may still follow in the gap
        uint32_t matched; // tokens that the matcher has accepted
    };

    const Phase& phase() const { return phases_.back(); }
    bool is_newlines(uint32_t id) const;
    bool may_begin_with(uint32_t id); // the grammar
    Phase after(uint32_t id);
    void match(uint32_t id);

    std::shared_ptr<const grammar::TokenTrie> tokens_;
    grammar::Matcher matcher_;
    std::optional<uint32_t> think_, end_think_, tool_call_;
    std::vector<uint32_t> newlines_; // ids of "\n" and "\n\n"
    Phase first_;
    std::vector<Phase> phases_; // before the first token and after each
};

} // namespace tq
