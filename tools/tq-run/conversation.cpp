#include "tools/tq-run/conversation.h"
#include "base/ensure.h"

namespace tq {

Conversation::Conversation(const Tokenizer& tokenizer, ChatOptions options, std::string system)
    : tokenizer_(tokenizer), options_(options), system_(std::move(system)) {
    tokenizer_.encode(system_); // only for its complaint, whose byte offset then counts from the text's own beginning
    clear();
}

void Conversation::ask(std::string question) {
    tokenizer_.encode(question); // likewise
    messages_.push_back({{"role", "user"}, {"content", std::move(question)}});
}

void Conversation::answer(std::string text) { messages_.push_back({{"role", "assistant"}, {"content", std::move(text)}}); }

void Conversation::take_back_question() {
    ENSURE(!messages_.empty() && messages_.back()["role"] == "user", "no open question");
    messages_.erase(messages_.size() - 1);
}

bool Conversation::take_back_answer() {
    if (messages_.empty() || messages_.back()["role"] != "assistant") return false;
    messages_.erase(messages_.size() - 1);
    return true;
}

void Conversation::clear() {
    messages_ = nlohmann::ordered_json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
}

std::vector<uint32_t> Conversation::prompt() const { return tokenizer_.encode(render_chat(messages_, nullptr, options_)); }

} // namespace tq
