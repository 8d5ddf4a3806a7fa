// tq-run chat: a conversation, at a terminal or in a pipe, where each line of input is a turn.
#include "base/error.h"
#include "base/interrupt.h"
#include "tools/tq-run/answer.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/conversation.h"
#include "tools/tq-run/engine.h"
#include "tools/tq-run/prompt_cache.h"

namespace tq {
namespace {

struct ChatArguments {
    ConsoleArguments console;
    ModelArguments model;
    SamplingArguments sampling;
    PromptArguments prompt;
    PromptCacheArguments prompt_cache;
    std::string system;
    bool single_turn = false, think = false, no_think = false;
};

constexpr std::string_view help = "/clear   forget the conversation\n"
                                  "/regen   answer the last question again\n"
                                  "/help    this list\n"
                                  "/exit    leave (also /quit, Ctrl-D, Ctrl-C)\n"
                                  "A \\ at the end of a line continues it on the next. Ctrl-C stops an answer, twice leaves.\n"
                                  "/think and /no_think are for the model, as is any other line.\n";

ChatOptions chat_options(const ChatArguments& arguments, const Model& model) {
    if (arguments.think && model.chat == ChatVariant::instruct)
        write_error("tq-run: this model never thinks: --think has no effect\n");
    if (arguments.no_think && model.chat == ChatVariant::thinking)
        write_error("tq-run: this model always thinks: --no-think has no effect\n");
    return {.variant = model.chat, .add_generation_prompt = true, .enable_thinking = !arguments.no_think};
}

bool thinks(const ChatOptions& options) {
    return options.variant == ChatVariant::thinking || (options.variant == ChatVariant::hybrid && options.enable_thinking);
}

class Chat {
  public:
    Chat(const ChatArguments& arguments, Console& console)
        : arguments_(arguments), console_(console), engine_(start_engine(arguments.model, console)), session_(*engine_->forward),
          options_(chat_options(arguments, engine_->model)),
          sampler_(arguments.sampling.options(recommended_sampling(engine_->model.file, thinks(options_))),
                   engine_->unsampled(arguments.sampling.ignore_end)),
          conversation_(engine_->model.tokenizer, options_, arguments.system),
          prompt_cache_(arguments.prompt_cache, *engine_, session_, console) {}

    int run();

  private:
    int converse();
    void print_banner() const;
    std::optional<std::string> read_turn() const;
    bool obey(const std::string& line); // false when it is a question
    void ask(std::string question);
    void refuse(const std::string& why) const;
    std::vector<uint32_t> prompt();
    void reply();
    void explain(const Generated& result) const;

    const ChatArguments& arguments_;
    Console& console_;
    const std::unique_ptr<Engine> engine_;
    Session session_;
    const ChatOptions options_;
    Sampler sampler_;
    Conversation conversation_;
    PromptCache prompt_cache_;
    bool leaving_ = false;
    Stop last_stop_ = Stop::end_of_generation;
};

void Chat::print_banner() const {
    const Model& model = engine_->model;
    const Forward& forward = *engine_->forward;
    const uint64_t cache_bytes =
        forward.kv_bytes_per_token() * forward.context_size() + kv_recent_bytes(model.config, forward.kv());
    const double cache_mib = double(cache_bytes) / (1 << 20);
    write_error(fmt::format("{}\nmodel     {}\ndevice    {}\ncontext   {} tokens, up to {:.1f} MiB of cache: {}\nsampling  {}\n",
                            build_description(), model.name, engine_->device_name, forward.context_size(), cache_mib,
                            kv_description(*engine_), sampling_description(sampler_.options())));
    if (console_.input_is_terminal() && !arguments_.single_turn) write_error("/help lists the commands\n");
}

// A line, or several joined by a backslash at their ends.
std::optional<std::string> Chat::read_turn() const {
    std::string turn;
    for (const char* sign = "> ";; sign = ". ") {
        if (console_.input_is_terminal()) write_error(console_.bold(sign));
        const auto line = read_line();
        if (!line) {
            if (console_.input_is_terminal()) write_error("\n");
            return turn.empty() || interrupted() ? std::nullopt : std::optional(turn);
        }
        turn += *line;
        if (!turn.ends_with('\\')) return turn;
        turn.back() = '\n';
    }
}

bool Chat::obey(const std::string& line) {
    const std::string_view word = std::string_view(line).substr(0, line.find_last_not_of(' ') + 1);
    if (!word.starts_with('/') || word.starts_with("/think") || word.starts_with("/no_think")) return false;
    if (word == "/exit" || word == "/quit") {
        leaving_ = true;
    } else if (word == "/clear") {
        conversation_.clear();
        write_error("the conversation is forgotten\n");
    } else if (word == "/help") {
        write_error(help);
    } else if (word == "/regen") {
        if (conversation_.take_back_answer())
            reply();
        else
            write_error("there is no answer yet\n");
    } else if (word.substr(1).find_first_of("/ \n") != std::string_view::npos) {
        return false; // a path, or a sentence
    } else {
        write_error(fmt::format("there is no command {}: /help lists them; a space before it sends the line to the model\n",
                                harmless(word)));
    }
    return true;
}

void Chat::ask(std::string question) {
    try {
        conversation_.ask(std::move(question));
    } catch (const Error& error) {
        return refuse(error.what());
    }
    reply();
}

// At a terminal another question can be asked; in a pipe nobody is there to do so.
void Chat::refuse(const std::string& why) const {
    if (!console_.input_is_terminal()) throw Error(why);
    write_error(why + "\n");
}

// Empty, with the question taken back, when the conversation no longer fits.
std::vector<uint32_t> Chat::prompt() {
    auto ids = conversation_.prompt();
    try {
        session_.require_fits(ids);
        return ids;
    } catch (const Error& error) {
        conversation_.take_back_question();
        refuse(fmt::format("{}{}", error.what(), session_.cached_ids().empty() ? "" : "; /clear starts a new conversation"));
        return {};
    }
}

void Chat::reply() {
    const auto ids = prompt();
    if (ids.empty()) return;
    const Tokenizer& tokenizer = engine_->model.tokenizer;
    Answer answer(tokenizer, console_, options_.variant == ChatVariant::thinking);
    GenerateOptions generate = interruptible(console_);
    generate.max_tokens = arguments_.sampling.max_tokens();
    generate.is_end = [&](uint32_t id) { return tokenizer.is_end_of_generation(id); };
    generate.on_token = [&](uint32_t id) { answer.push(id); };
    generate.after_prompt = [&] { prompt_cache_.after_prompt(); };
    clear_interrupt();
    Generated result;
    try {
        result = session_.generate(ids, sampler_, generate);
    } catch (const OutOfMemory& error) {
        console_.clear_status();
        conversation_.take_back_question();
        return refuse(error.what());
    }
    answer.finish();
    last_stop_ = result.stop;
    if (result.stop == Stop::interrupted && answer.empty())
        conversation_.take_back_question();
    else
        conversation_.answer(answer.text());
    explain(result);
    clear_interrupt();
}

void Chat::explain(const Generated& result) const {
    const auto note = [&](const std::string& text) { write_error(console_.dim(text) + "\n"); };
    if (result.stop == Stop::interrupted)
        note(result.ids.empty() ? "[ interrupted: the question is taken back ]" : "[ interrupted ]");
    if (result.stop == Stop::length) note(fmt::format("[ stopped after {} tokens (-n) ]", result.ids.size()));
    if (result.stop == Stop::context_full)
        note(fmt::format("[ the context of {} tokens is full: /clear starts a new conversation, -c asks for a larger one ]",
                         engine_->forward->context_size()));
    if (result.stop == Stop::memory_full) note(fmt::format("[ {} ]", result.reason));
    note(timing_line(*engine_, result.timings));
    report_profile(*engine_);
}

int Chat::run() {
    print_banner();
    catch_interrupts();
    const int status = converse();
    const bool saved = prompt_cache_.finish();
    return status != 0 || saved ? status : 1;
}

int Chat::converse() {
    if (arguments_.prompt.given)
        ask(arguments_.prompt.read());
    else if (arguments_.single_turn && !console_.input_is_terminal())
        ask(read_input());
    else if (arguments_.single_turn)
        if (const auto turn = read_turn()) ask(*turn);
    if (arguments_.single_turn) return last_stop_ == Stop::interrupted ? 130 : 0;
    while (!leaving_) {
        clear_interrupt();
        const auto turn = read_turn();
        if (!turn) break;
        if (turn->find_first_not_of(" \t\n") == std::string::npos || obey(*turn)) continue;
        ask(*turn);
    }
    return 0;
}

int run(const ChatArguments& arguments) {
    Console console = arguments.console.console();
    arguments.prompt_cache.check();
    return Chat(arguments, console).run();
}

} // namespace

void add_chat(CLI::App& app, Action& action) {
    const auto flags = [](CLI::App& command, ChatArguments& a) {
        add_flags(command, a.prompt);
        add_flags(command, a.prompt_cache);
        command.add_option("--system-prompt", a.system, "what the model is told before the conversation")->option_text("TEXT");
        command.add_flag("--single-turn", a.single_turn, "one question, one answer");
        auto* think = command.add_flag("--think", a.think, "let a model that can think do so (the default)");
        command.add_flag("--no-think", a.no_think, "answer at once")->excludes(think);
        add_flags(command, a.sampling);
        add_flags(command, a.model);
        add_flags(command, a.console);
    };
    add_command<ChatArguments>(app, action, "chat", "Talk with a model", flags, run);
}

} // namespace tq
