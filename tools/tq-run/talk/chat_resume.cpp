// Conversations that go on: --resume, what is kept after each answer, and the tokens of the next turn that are known already.
#include "base/error.h"
#include "base/interrupt.h"
#include "base/standard_streams.h"
#include "model/engine/session.h"
#include "model/text/unicode.h"
#include "tools/tq-run/talk/chat_session.h"
#include "tools/tq-run/talk/history.h"
#include "tools/tq-run/talk/kept_conversation.h"
#include <algorithm>

namespace tq {

void Chat::resume() {
    load(conversation_to_resume(arguments_.resume), true);
    show_conversation();
}

// Flags of the command line have precedence over what a conversation was saved with.
ChatSettings Chat::with_flags(const ChatSettings& saved) const {
    ChatSettings settings{arguments_.sampling.options(saved.sampling), saved.max_tokens};
    if (!arguments_.sampling.seed) settings.sampling.seed = saved.sampling.seed;
    if (arguments_.sampling.predict) settings.max_tokens = arguments_.sampling.max_tokens();
    return settings;
}

void Chat::show_conversation() const {
    for (const auto& message : turns_.messages()) {
        const std::string role = message["role"], text = harmless(message["content"].get<std::string>());
        if (role == "system") continue;
        write_error(role == "user" ? fmt::format("> {}\n", text) : console_.dim(text) + "\n");
    }
}

// Conversations at a terminal are kept without being asked for.
void Chat::begin_kept() {
    named_by_time_ = console_.input_is_terminal() && !arguments_.single_turn && !arguments_.no_history && !history_path().empty();
    name_ = named_by_time_ ? new_conversation_name() : "";
}

// A conversation that cannot be kept is reported once.
void Chat::keep() {
    if (name_.empty()) return;
    try {
        make_conversations_directory();
        write_to(conversation_path(name_));
    } catch (const Error& error) {
        note(fmt::format("[ the conversation is not kept: {} ]", error.what()));
        file_ = conversation_path(std::exchange(name_, ""));
    }
}

// Most templates drop the thinking of earlier answers, so that the answer has to be run again without it. That is done now, until
// the user types something, instead of before the next answer.
// The ids that the next prompt will begin with do not depend on the question, but where they end does: a tokenizer may join the
// template's last characters with the question's first. So two questions that share no beginning are rendered, and the ids that
// both prompts begin with are run.
void Chat::run_ahead() {
    constexpr size_t worthwhile = 8; // tokens
    if (turns_.turns() == 0 || last_stop_ == Stop::interrupted || leaving_) return;
    std::vector<uint32_t> prompts[2];
    for (const int i : {0, 1}) { // what is common to any two questions is common to all
        ChatTurns next = turns_;
        next.ask(i == 0 ? "a" : "The");
        prompts[i] = next.prompt();
    }
    const auto& cached = session_.cached_ids();
    const auto common = std::ranges::mismatch(prompts[0], prompts[1]).in1;
    const std::vector<uint32_t> ids(prompts[0].begin(), common);
    const size_t known = size_t(std::ranges::mismatch(ids, cached).in1 - ids.begin());
    if (ids.size() < known + worthwhile || ids.size() >= context_size() || input_is_waiting()) return;
    const auto quiet = questions_.while_answering();
    try {
        session_.prefill(ids, [](uint32_t, uint32_t) { return !interrupted() && !input_is_waiting(); });
    } catch (const OutOfMemory&) { // the next question will say so
    }
    clear_interrupt();
}

} // namespace tq
