// The part of an answer that a grammar applies to. A model that thinks writes <think>, its thoughts and </think> before the text
// that the grammar describes; a model that may call tools writes free text until <tool_call>. The answer is therefore in one of
// five phases:
// - choice: the first token is <think>, or begins the grammar's text.
// - thinking: all tokens are allowed except those that end an answer, because the answer would be missing.
// - gap: after </think>, up to two newlines of the template, which are not the grammar's.
// - free: all tokens are allowed. <tool_call> begins the grammar.
// - grammar: the matcher's mask says which tokens are allowed.
// phases_ has the phase after each accepted token, with the number of tokens that the matcher had accepted then. rewind() needs
// both: speculative decoding accepts drafted tokens, and takes back those that the model rejects.
#include "model/text/grammar/constraint.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/text/tokenizer.h"
#include <algorithm>
#include <cmath>

namespace tq {
namespace {

constexpr uint8_t max_newlines = 2; // of the template, after </think>

uint32_t required_special(const Tokenizer& tokenizer, std::string_view literal) {
    const auto id = tokenizer.special(literal);
    if (!id) fail("this model has no token {}, after which the grammar would begin", literal);
    return *id;
}

// The mask has a bit for each token, in words of 64. Most words are 0 or all ones, and are treated as a whole. The logits may be
// more than the tokens, as models pad their vocabularies; padding is never allowed.
void forbid(std::span<float> logits, std::span<const uint64_t> mask, uint32_t vocab_size) {
    for (size_t word = 0; word < mask.size(); ++word) {
        const size_t begin = word * 64, end = std::min({begin + 64, logits.size(), size_t(vocab_size)});
        if (begin >= end || mask[word] == ~uint64_t(0)) continue;
        if (mask[word] == 0) {
            std::fill(logits.begin() + ptrdiff_t(begin), logits.begin() + ptrdiff_t(end), -INFINITY);
            continue;
        }
        for (size_t id = begin; id < end; ++id)
            if (!(mask[word] >> (id - begin) & 1)) logits[id] = -INFINITY;
    }
    if (logits.size() > vocab_size) std::fill(logits.begin() + vocab_size, logits.end(), -INFINITY);
}

} // namespace

GrammarConstraint::GrammarConstraint(std::shared_ptr<const grammar::Grammar> grammar,
                                     std::shared_ptr<const grammar::TokenTrie> tokens, const Tokenizer& tokenizer,
                                     GrammarStart start)
    : tokens_(std::move(tokens)), matcher_(std::move(grammar), tokens_), first_{Kind::grammar, 0, 0} {
    if (start == GrammarStart::in_thinking || start == GrammarStart::before_thinking) {
        think_ = required_special(tokenizer, "<think>");
        end_think_ = required_special(tokenizer, "</think>");
        first_.kind = start == GrammarStart::in_thinking ? Kind::thinking : Kind::choice;
        if (const auto call = tokenizer.special("<tool_call>"); call && may_begin_with(*call)) tool_call_ = call;
    }
    if (start == GrammarStart::at_tool_call) {
        tool_call_ = required_special(tokenizer, "<tool_call>");
        first_.kind = Kind::free;
    }
    for (uint32_t id = 0; id < tokens_->vocab_size(); ++id)
        if (tokens_->bytes(id) == "\n" || tokens_->bytes(id) == "\n\n") newlines_.push_back(id);
    phases_.push_back(first_);
}

bool GrammarConstraint::may_begin_with(uint32_t id) {
    const std::span<const uint64_t> mask = matcher_.mask();
    return id / 64 < mask.size() && (mask[id / 64] >> id % 64 & 1) != 0;
}

bool GrammarConstraint::is_newlines(uint32_t id) const { return std::ranges::find(newlines_, id) != newlines_.end(); }

void GrammarConstraint::apply(std::span<float> logits) {
    const Phase now = phase();
    if (now.kind == Kind::free) return;
    if (now.kind == Kind::thinking) {
        for (uint32_t id = 0; id < std::min<size_t>(logits.size(), tokens_->vocab_size()); ++id)
            if (tokens_->is_end(id)) logits[id] = -INFINITY;
        return;
    }
    std::vector<std::pair<uint32_t, float>> others; // that the grammar need not know
    const auto allow = [&](uint32_t id) {
        if (id < logits.size()) others.push_back({id, logits[id]});
    };
    if (now.kind == Kind::choice) allow(*think_);
    for (const uint32_t id : newlines_)
        if (now.kind == Kind::gap && tokens_->bytes(id).size() <= now.newlines) allow(id);
    forbid(logits, matcher_.mask(), tokens_->vocab_size());
    for (const auto& [id, logit] : others) logits[id] = logit;
}

void GrammarConstraint::match(uint32_t id) {
    if (!matcher_.accept(id)) fail("token {} does not follow the grammar", id);
}

GrammarConstraint::Phase GrammarConstraint::after(uint32_t id) {
    const Phase now = phase();
    switch (now.kind) {
    case Kind::choice:
        if (id == think_) return {Kind::thinking, 0, 0};
        break;
    case Kind::thinking:
        if (id == end_think_) return {Kind::gap, max_newlines, 0};
        if (id != tool_call_) return now;
        break; // some models forget to end it before a call
    case Kind::gap:
        if (is_newlines(id) && tokens_->bytes(id).size() <= now.newlines)
            return {Kind::gap, uint8_t(now.newlines - tokens_->bytes(id).size()), 0};
        break;
    case Kind::free:
        if (id != tool_call_) return now;
        break;
    case Kind::grammar: break;
    }
    match(id);
    return {Kind::grammar, 0, uint32_t(matcher_.accepted())};
}

void GrammarConstraint::accept(uint32_t id) { phases_.push_back(after(id)); }

void GrammarConstraint::restart() {
    matcher_.restart();
    phases_.assign(1, first_);
}

void GrammarConstraint::rewind(size_t n) {
    ENSURE(n <= accepted(), "to {} of {} tokens", n, accepted());
    phases_.resize(n + 1, first_);
    matcher_.rewind(phase().matched);
}

} // namespace tq
