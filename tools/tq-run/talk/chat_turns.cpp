// Messages as the chat template takes them: at most one system message, then question and answer by turns. Every text is given to
// the tokenizer when it comes in, for its error alone (invalid UTF-8): later, within a prompt, the error's place would be that of
// the whole rendering. replace() takes messages from a file that anybody may have written, so it checks roles, their order and
// their types before anything changes.
// prompt_from(turn) renders the system prompt and the turns from one on. It does not cut tokens off a longer prompt, since
// templates treat first and last messages otherwise.
#include "tools/tq-run/talk/chat_turns.h"
#include "base/ensure.h"
#include "base/error.h"
#include "model/files/formats/json.h"

namespace tq {
namespace {

nlohmann::ordered_json message(const char* role, std::string content) {
    return {{"role", role}, {"content", std::move(content)}};
}

const std::string& text_of(const nlohmann::json& message, const char* what) {
    const auto found = message.is_object() ? message.find(what) : message.end();
    if (!message.is_object() || found == message.end() || !found->is_string()) fail("a message has no text \"{}\"", what);
    return found->get_ref<const std::string&>();
}

} // namespace

ChatTurns::ChatTurns(const Tokenizer& tokenizer, ChatOptions options, std::string system)
    : tokenizer_(&tokenizer), options_(options), system_(std::move(system)) {
    tokenizer_->encode(system_); // only for its error, whose byte offset then counts from the text's own beginning
    clear();
}

void ChatTurns::ask(std::string question) {
    tokenizer_->encode(question); // for its error
    messages_.push_back(message("user", std::move(question)));
    begins_.push_back(begin_);
}

void ChatTurns::answer(std::string text, std::string thought) {
    messages_.push_back(message("assistant", std::move(text)));
    if (options_.keeps_thinking() && !thought.empty()) messages_.back()["reasoning_content"] = std::move(thought);
}

void ChatTurns::take_back_question() {
    ENSURE(!messages_.empty() && messages_.back()["role"] == "user", "no open question");
    messages_.erase(messages_.size() - 1);
    begins_.pop_back();
}

bool ChatTurns::take_back_answer() {
    if (messages_.empty() || messages_.back()["role"] != "assistant") return false;
    messages_.erase(messages_.size() - 1);
    begin_ = begins_.back();
    return true;
}

void ChatTurns::clear() {
    begin_ = 0;
    begins_.clear();
    messages_ = nlohmann::ordered_json::array();
    if (!system_.empty()) messages_.push_back(message("system", system_));
}

size_t ChatTurns::turns() const { return (messages_.size() - first_message() + 1) / 2; }

void ChatTurns::set_system(std::string text) {
    tokenizer_->encode(text); // for its error
    if (!system_.empty()) messages_.erase(size_t(0));
    system_ = std::move(text);
    if (!system_.empty()) messages_.insert(messages_.begin(), message("system", system_));
}

void ChatTurns::replace(const nlohmann::json& messages) {
    if (!messages.is_array()) fail("its messages are {}, not a list", kind_of(messages));
    std::string system;
    auto read = nlohmann::ordered_json::array();
    for (size_t i = 0; i < messages.size(); ++i) {
        const std::string &role = text_of(messages[i], "role"), &content = text_of(messages[i], "content");
        const bool is_system = i == 0 && role == "system";
        const char* expected = is_system ? "system" : (read.size() + (system.empty() ? 0 : 1)) % 2 == 0 ? "user" : "assistant";
        if (role != expected || (is_system && content.empty())) fail("message {} does not have the role \"{}\"", i + 1, expected);
        tokenizer_->encode(content); // for its error
        if (is_system) system = content;
        read.push_back(message(expected, content));
        if (const auto thought = messages[i].find("reasoning_content"); thought != messages[i].end()) {
            tokenizer_->encode(text_of(messages[i], "reasoning_content")); // for its error
            read.back()["reasoning_content"] = *thought;
        }
    }
    if (read.size() % 2 != (system.empty() ? 0 : 1)) fail("its last question has no answer");
    system_ = std::move(system);
    messages_ = std::move(read);
    begin_ = 0;
    begins_.assign(turns(), 0);
}

std::vector<uint32_t> ChatTurns::prompt_from(size_t turn) const {
    if (turn == 0) return tokenizer_->encode(render_chat(messages_, nullptr, options_));
    auto sent = nlohmann::ordered_json::array();
    if (!system_.empty()) sent.push_back(messages_[0]);
    for (size_t i = first_message() + 2 * turn; i < messages_.size(); i++) sent.push_back(messages_[i]);
    return tokenizer_->encode(render_chat(sent, nullptr, options_));
}

} // namespace tq
