// A run of tq-run chat: lines are answered as questions or run as commands.
#pragma once
#include "model/engine/session.h"
#include "tools/tq-run/cli/grammar_arguments.h"
#include "tools/tq-run/engine/engine.h"
#include "tools/tq-run/engine/prefix.h"
#include "tools/tq-run/engine/speculation.h"
#include "tools/tq-run/talk/chat_turns.h"
#include "tools/tq-run/talk/prompt_cache.h"
#include "tools/tq-run/talk/question_reader.h"
#include "tools/tq-run/talk/saved_conversation.h"

namespace tq {

struct ChatArguments {
    ConsoleArguments console;
    ModelArguments model;
    SamplingArguments sampling;
    SpeculationArguments speculation;
    EffortArguments effort;
    GrammarArguments grammar; // of each answer, after its thinking
    PromptArguments prompt;
    PromptCacheArguments prompt_cache;
    PrefixArguments prefix;
    std::optional<std::string> system; // none: the template's own
    std::string resume = "-";          // the name of a conversation; empty: the latest; "-": a new one
    bool single_turn = false, think = false, no_think = false, context_shift = true, no_history = false;
};

// The engine stands first among what owns something: drafts, prefix cache, session and prompt cache refer to it, and are
// destroyed before it. A line is obeyed as a command (obey) or asked as a question (ask). If a question or its answer does not
// fit, earlier turns leave the context (make_room), though not the conversation, unless --no-context-shift forbids it.
// Three lists of the same text differ. The conversation has all turns. The context has the turns from
// ChatTurns::first_turn_in_context() on, rendered by the template. The session's slot has the ids whose keys and values are
// in the cache. Each prompt is rendered from the conversation anew, and only the part that the slot lacks is run.
class Chat {
  public:
    // Both outlive this object.
    Chat(const ChatArguments& arguments, Console& console);
    int run();

  private:
    struct Totals {
        uint64_t answers = 0, tokens = 0, prompt_tokens = 0, reused_tokens = 0, ns = 0, drafted = 0, accepted = 0;
    };

    int converse();
    void print_banner() const;
    void note(const std::string& text) const;

    // chat_commands.cpp
    bool obey(const std::string& line); // false when it is a question
    bool run_command(std::string_view word, const std::string& argument);
    void change_system(const std::string& text);
    void change_setting(const std::string& argument);
    void read_file(const std::string& path);
    void save(const std::string& name_or_path);
    void require_free(const std::string& name_or_path) const;
    void load(const std::string& name_or_path, bool resumed = false); // resumed: flags have precedence
    ChatSettings with_flags(const ChatSettings& saved) const;
    void fork(const std::string& name);
    void write_to(const std::string& path) const;
    void undo();
    void answer_again();
    void clear();
    void print_statistics() const;
    void restart(); // after another conversation replaced this one

    void ask(std::string question);
    void refuse(const std::string& why) const;
    uint32_t context_size() const { return session_.context_size(); }
    bool make_room(size_t answered); // the context then begins at a later turn; false if it begins at the last already
    void say_dropped();
    std::string too_long() const;
    size_t conversation_tokens() const { return turns_.turns() == 0 ? 0 : turns_.prompt().size(); } // in the context
    std::vector<uint32_t> prompt(const ChatTurns& before);
    bool reply(const ChatTurns& before);
    Generated generate(std::vector<uint32_t> ids, class AnswerPrinter& answer);
    void explain(const Generated& result, bool answered);
    void resume(); // the conversation of --resume
    void show_conversation() const;
    void keep();       // the conversation, by its name
    void begin_kept(); // the new conversation gets a name made of the time, if it is to be kept
    void run_ahead();
    void warn_of_full_context(const Generated& result);

    const ChatArguments& arguments_;
    Console& console_;
    const std::unique_ptr<Engine> engine_;
    const std::unique_ptr<Speculator> drafts_; // none: null
    const std::shared_ptr<PrefixCache> prefix_;
    Session session_;
    const ChatOptions options_;
    ChatSettings settings_;
    const std::unique_ptr<GrammarConstraint> constraint_; // null: none
    Sampler sampler_;
    ChatTurns turns_;
    PromptCache prompt_cache_;
    QuestionReader questions_;
    std::string read_text_;      // by /read, for the next question
    std::string name_;           // by which the conversation is kept after each answer; empty: not kept
    bool named_by_time_ = false; // name_ is one that nobody gave
    std::string file_;           // that /save or /load had last; empty: none
    Totals totals_;
    size_t dropped_turns_ = 0, dropped_tokens_ = 0; // not yet reported
    bool warned_ = false, leaving_ = false;
    Stop last_stop_ = Stop::end_of_generation;
};

// The possible completions of the last word at chat's prompt.
std::vector<std::string> complete_chat_line(std::string_view before);

} // namespace tq
