// Text that is held back, and why. A token's bytes pass three stages before they are an event, and each may keep an end of them:
// 1. Utf8Stream keeps a character that is not whole.
// 2. While the answer may think, `undecided_` keeps what may be the beginning of <think> or </think>. Phase::start lasts until
//    the first text that is not a blank shows whether the answer thinks; Phase::reasoning until </think>, or until the parser
//    sees a call, since some models forget to close the thinking first.
// 3. StopStrings keeps the longest end that may begin a stop string. It sees the content only, since a stop string does not end
//    the thinking. AnswerParser keeps calls of tools until it can name them.
// Tokens with logprobs wait in `pending_` with their place in the text, [begin, end) in bytes. A token goes out with the first
// event after the parser has got its last byte (`passed_`) (attach). What a stop string cut off takes its tokens with it
// (finish).
#include "tools/server/answer.h"
#include <algorithm>

namespace tq::server {
namespace {

using Kind = AnswerPart::Kind;

constexpr std::string_view open_thinking = "<think>", close_thinking = "</think>";

// Whether the bytes end with an incomplete character of UTF-8.
bool ends_within_character(std::string_view bytes) {
    for (size_t n = 1; n <= std::min<size_t>(bytes.size(), 3); ++n) {
        const uint8_t byte = uint8_t(bytes[bytes.size() - n]);
        if (byte < 0x80) return false;
        if (byte >= 0xC0) return n < (byte >= 0xF0 ? 4u : byte >= 0xE0 ? 3u : 2u);
    }
    return false;
}

} // namespace

Answer::Answer(const Tokenizer& tokenizer, Options options)
    : tokenizer_(tokenizer), options_(std::move(options)), phase_(!options_.chat         ? Phase::content
                                                                  : options_.in_thinking ? Phase::reasoning
                                                                                         : Phase::start),
      stop_(options_.stop), parser_(options_.in_thinking, options_.types, options_.untagged),
      was_thinking_(phase_ == Phase::reasoning) {}

uint32_t Answer::reasoning_tokens() const {
    return uint32_t(phase_ == Phase::reasoning ? ids_.size() : was_thinking_ ? reasoning_ids_ : 0);
}

TokenText Answer::token_text(const serving::Token& token) const {
    const auto bytes = [&](uint32_t id) { return id < tokenizer_.size() ? std::string(tokenizer_.bytes(id)) : std::string(); };
    TokenText text{bytes(token.id), token.logprob, {}};
    for (const auto& [id, logprob] : token.top) text.top.push_back({bytes(id), logprob});
    return text;
}

void Answer::push(const serving::Token& token, std::vector<Event>& events) {
    if (stop_.found()) return;
    ids_.push_back(token.id);
    const bool shown = token.id < tokenizer_.size() && !tokenizer_.is_control(token.id);
    const std::string_view bytes = shown ? tokenizer_.bytes(token.id) : std::string_view();
    const std::string text = utf8_.push(bytes);
    const size_t begin = produced_;
    produced_ += text.size();
    const bool incomplete = !bytes.empty() && (text.empty() || ends_within_character(bytes));
    if (options_.logprobs) pending_.push_back({token_text(token), begin, produced_ + (incomplete ? 1 : 0)});
    take(text, events);
}

// Returns how many bytes at the front of undecided_ are thinking. Moves on to the content if the thinking ends in them.
size_t Answer::reasoning_bytes() {
    if (phase_ == Phase::start) {
        const size_t begin = std::min(undecided_.find_first_not_of(" \t\r\n"), undecided_.size());
        const std::string_view text = std::string_view(undecided_).substr(begin);
        if (text.size() < open_thinking.size() && open_thinking.starts_with(text)) return 0;
        phase_ = text.starts_with(open_thinking) ? Phase::reasoning : Phase::content;
        was_thinking_ = phase_ == Phase::reasoning;
    }
    if (phase_ == Phase::content) return 0;
    const size_t close = undecided_.find(close_thinking);
    if (close != undecided_.npos) {
        phase_ = Phase::content;
        reasoning_ids_ = ids_.size();
        return close + close_thinking.size();
    }
    size_t begun = std::min(undecided_.size(), close_thinking.size() - 1);
    while (begun > 0 && !close_thinking.starts_with(std::string_view(undecided_).substr(undecided_.size() - begun))) --begun;
    return undecided_.size() - begun;
}

void Answer::take(std::string_view text, std::vector<Event>& events) {
    undecided_ += text;
    if (phase_ != Phase::content) {
        const size_t bytes = reasoning_bytes();
        show(parser_.push(std::string_view(undecided_).substr(0, bytes)), bytes, events);
        undecided_.erase(0, bytes);
        if (phase_ == Phase::reasoning && bytes > 0 && !parser_.in_thinking()) { // a call has ended it
            phase_ = Phase::content;
            reasoning_ids_ = ids_.size();
        }
        if (phase_ != Phase::content) return;
        while (bytes > 0 && !pending_.empty() && pending_.front().end <= passed_) pending_.pop_front(); // the tag's
    }
    const std::string certain = stop_.push(undecided_);
    undecided_.clear();
    show(options_.chat ? parser_.push(certain) : std::vector{AnswerPart{Kind::content, certain}}, certain.size(), events);
}

// Releases what was held back: the bytes of an incomplete character, and text that could have begun a tag or a stop string. After
// a stop string only the parser's call is ended, and tokens behind it are dropped.
void Answer::finish(std::vector<Event>& events, bool cut) {
    if (!stop_.found()) {
        const std::string tail = utf8_.flush();
        produced_ += tail.size();
        take(tail, events);
    }
    if (!stop_.found()) {
        std::string rest = phase_ == Phase::content ? stop_.finish() : std::move(undecided_);
        if (phase_ == Phase::start) { // it only began like <think>
            phase_ = Phase::content;
            rest = stop_.push(rest);
            rest += stop_.finish();
        }
        show(options_.chat ? parser_.push(rest) : std::vector{AnswerPart{Kind::content, rest}}, rest.size(), events);
    }
    const size_t first = events.size();
    if (options_.chat)
        for (AnswerPart& part : parser_.finish(cut && options_.calls)) add(std::move(part), events);
    while (stop_.found() && !pending_.empty() && pending_.back().begin >= passed_) pending_.pop_back();
    if (!pending_.empty() && events.size() == first) events.push_back({options_.choice, {Kind::content, ""}, {}});
    attach(events, first, true);
}

// `bytes`: what the parser got for the parts.
void Answer::show(std::vector<AnswerPart> parts, size_t bytes, std::vector<Event>& events) {
    passed_ += bytes;
    const size_t first = events.size();
    for (AnswerPart& part : parts) add(std::move(part), events);
    attach(events, first, false);
}

// Gives the tokens that are certain to the first of the new events.
void Answer::attach(std::vector<Event>& events, size_t first, bool all) {
    if (first == events.size()) return;
    for (; !pending_.empty() && (all || pending_.front().end <= passed_); pending_.pop_front())
        events[first].tokens.push_back(std::move(pending_.front().text));
}

void Answer::add(AnswerPart part, std::vector<Event>& events) {
    const bool is_text = part.kind == Kind::reasoning || part.kind == Kind::content;
    if (is_text && part.text.empty()) return;
    if (!is_text && !options_.calls) { // all of the call is text, which is known at its end
        if (part.kind == Kind::call_end) add({Kind::content, std::move(part.text)}, events);
        return;
    }
    switch (part.kind) {
    case Kind::reasoning: parsed_.reasoning += part.text; break;
    case Kind::content: parsed_.content += part.text; break;
    case Kind::call_begin: call_ = {part.text, {}}; break;
    case Kind::arguments: call_.arguments += part.text; break;
    case Kind::call_end:
        if (!part.cut) parsed_.calls.push_back(std::move(call_));
    }
    events.push_back({options_.choice, std::move(part), {}});
}

} // namespace tq::server
