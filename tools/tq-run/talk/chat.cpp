// tq-run chat: a conversation, at a terminal or in a pipe, where each line of input is a turn.
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/ranks.h"
#include "tools/tq-run/talk/chat_session.h"
#include "tools/tq-run/talk/kept_conversation.h"

namespace tq {
namespace {

int run(const ChatArguments& arguments) {
    if (const auto status = run_as_rank(arguments.model)) return *status;
    Console console = arguments.console.console();
    arguments.prompt_cache.check();
    arguments.speculation.check();
    arguments.grammar.compile(arguments.sampling.ignore_end); // for its errors, before the model is loaded
    if (arguments.resume != "-") read_conversation(conversation_path(conversation_to_resume(arguments.resume)));
    return Chat(arguments, console).run();
}

// "--context-shift" alone is on, as in llama.cpp.
void add_context_shift(ArgumentParser& command, bool& shift) {
    const auto to_bool = [](std::string& text) {
        const bool off = text == "off", on = text.empty() || text == "{}" || text == "on" || text == "true";
        text = off ? "false" : "true";
        return on || off ? std::string() : std::string("it must be on or off");
    };
    add_option(command, "--context-shift", shift, "[on|off]",
               "on or off: drop the oldest turns when the context is full, never the system prompt; default: on")
        .expected(0, 1)
        .values("on off")
        .transform(to_bool);
    add_flag(command, "--no-context-shift{false}", shift, "the same as --context-shift off");
}

// "--resume" alone is the latest conversation.
void add_resume(ArgumentParser& command, std::string& name) {
    const auto to_name = [](std::string& text) {
        if (text == "{}") text.clear();
        return text.empty() || is_conversation_name(text) ? std::string()
                                                          : std::string("it must be a name of letters, digits, - and _");
    };
    add_option(command, "--resume", name, "[NAME]", "go on with a conversation: the latest one, or the one of this name")
        .expected(0, 1)
        .transform(to_name);
}

} // namespace

void add_chat(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, ChatArguments& a) {
        add_flags(command, a.prompt);
        add_flags(command, a.prompt_cache);
        add_flags(command, a.prefix);
        add_option(command, "--system-prompt", a.system, "TEXT",
                   "system prompt; '': none; default: what the model's chat template has, if anything")
            .may_be_empty();
        add_flag(command, "--single-turn", a.single_turn, "answer one question, then exit");
        add_context_shift(command, a.context_shift);
        add_resume(command, a.resume);
        add_flag(command, "--no-history", a.no_history, "do not save the questions for the Up key of later runs");
        auto think =
            add_flag(command, "--think", a.think, "let the model think before it answers; default: as its chat template does");
        add_flag(command, "--no-think", a.no_think, "do not let the model think before it answers").excludes(think);
        add_flags(command, a.effort);
        add_flags(command, a.sampling);
        add_flags(command, a.speculation);
        add_flags(command, a.grammar);
        add_flags(command, a.model);
        add_flags(command, a.console);
    };
    add_command<ChatArguments>(app, action, "chat", "Chat with a model", flags, run);
}

} // namespace tq
