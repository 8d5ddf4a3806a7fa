// A conversation: ask, prompt, generate, reply. The session keeps the tokens of the last turn in its slot and finds the longest
// beginning that a new prompt shares with it, so each turn runs only what is new.
// The context is full: the oldest turns are dropped from the prompt, not from the conversation (make_room), down to three
// quarters of the context, so that it need not be run again each turn. That may happen in the middle of an answer; generate()
// then runs the shorter prompt with the answer so far and goes on. The system prompt always stays. A question that has no room
// even alone is refused and drops nothing.
// A question without an answer is no turn: if it does not fit, after an error, or after Ctrl-C before the first token, the
// conversation is what it was before the question, or before /regen took the old answer away (reply).
#include "tools/tq-run/talk/chat_session.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "model/forward.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/engine/generation_text.h"
#include "tools/tq-run/talk/answer_printer.h"

namespace tq {
namespace {

constexpr uint32_t nearly_full_percent = 80;

ChatOptions chat_options(const ChatArguments& arguments, const Model& model) {
    if (arguments.think && !may_think(model.chat)) write_error("tq-run: this model never thinks: --think has no effect\n");
    if (arguments.no_think && model.chat == ChatVariant::thinking)
        write_error("tq-run: this model always thinks: --no-think has no effect\n");
    ChatOptions options{.variant = model.chat};
    if (arguments.think || arguments.no_think) options.enable_thinking = arguments.think;
    options.effort = arguments.effort.effort().value_or(options.effort);
    return options;
}

// A grammar describes the answer, not the thinking before it. If the template has opened the thinking already, the first token
// is part of it.
GrammarStart grammar_start(const ChatOptions& options) {
    if (options.opens_thinking()) return GrammarStart::in_thinking;
    return options.thinks() ? GrammarStart::before_thinking : GrammarStart::at_once;
}

// Joins two parts of one answer: tokens that were run again in between count as time, not as a prompt.
void append(Generated& all, Generated part) {
    all.ids.insert(all.ids.end(), part.ids.begin(), part.ids.end());
    all.stop = part.stop;
    all.reason = std::move(part.reason);
    all.timings.decoded_tokens += part.timings.decoded_tokens + (part.ids.empty() ? 0 : 1);
    all.timings.decode_ns += part.timings.prompt_ns + part.timings.decode_ns;
    all.timings.drafted_tokens += part.timings.drafted_tokens;
    all.timings.accepted_tokens += part.timings.accepted_tokens;
}

std::string turns_text(size_t n) { return n == 1 ? "the oldest turn" : fmt::format("the {} oldest turns", n); }

} // namespace

Chat::Chat(const ChatArguments& arguments, Console& console)
    : arguments_(arguments), console_(console),
      engine_(start_engine(arguments.model, console, arguments.speculation.drafting(arguments.prompt_cache.path))),
      drafts_(start_speculation(arguments.speculation, *engine_, arguments.model.threads, console)),
      prefix_(open_prefix_cache(arguments.prefix, *engine_, console, arguments.console.verbose)),
      session_(*engine_->forward, prefix_.get()), options_(chat_options(arguments, engine_->model)),
      settings_{arguments.sampling.options(recommended_sampling(engine_->model.file, options_.thinks())),
                arguments.sampling.max_tokens()},
      constraint_(arguments.grammar.constraint(engine_->model.tokenizer, grammar_start(options_))),
      sampler_(settings_.sampling, engine_->unsampled(arguments.sampling.ignore_end)),
      turns_(engine_->model.tokenizer, options_, arguments.system.value_or(engine_->model.system)),
      prompt_cache_(arguments.prompt_cache, *engine_, session_, console),
      questions_(console, complete_chat_line, !arguments.no_history) {
    sampler_.constrain(constraint_.get());
}

void Chat::note(const std::string& text) const { write_error(console_.dim(text) + "\n"); }

void Chat::print_banner() const {
    const Model& model = engine_->model;
    const Forward& forward = *engine_->forward;
    const uint64_t cache_bytes =
        forward.kv_bytes_per_token() * forward.context_size() + kv_window_bytes(model.config, forward.kv());
    const double cache_mib = double(cache_bytes) / (1 << 20);
    write_error(fmt::format("{}\nmodel     {}\ndevice    {}\ncontext   {} tokens, up to {:.1f} MiB of cache: {}\nsampling  {}\n",
                            build_description(), model.name, engine_->device_name, forward.context_size(), cache_mib,
                            kv_description(*engine_), sampling_description(settings_.sampling)));
    if (drafts_) write_error(fmt::format("drafts    {}\n", drafts_->description));
    if (arguments_.console.verbose) write_error(load_description(*engine_) + "\n");
    if (!console_.input_is_terminal() || arguments_.single_turn) return;
    if (arguments_.console.verbose && console_.edits() && !questions_.edits())
        write_error("only the terminal edits lines: this tq-run was built without libedit\n");
    write_error("/help lists the commands\n");
}

// The text that /read has read stays for the next question if this one gets no answer.
void Chat::ask(std::string question) {
    const ChatTurns before = turns_;
    try {
        turns_.ask(read_text_.empty() ? std::move(question) : read_text_ + "\n\n" + question);
    } catch (const Error& error) {
        return refuse(error.what());
    }
    if (reply(before)) read_text_.clear();
}

// At a terminal another question can be asked; in a pipe nobody can.
void Chat::refuse(const std::string& why) const {
    if (!console_.input_is_terminal()) throw Error(why);
    write_error(why + "\n");
}

// Lets the context begin at a later turn: the first with which the prompt has at most three quarters of the context, so that it
// need not be run again soon; the last turn if no turn qualifies. The search renders few prompts, also of thousands of turns.
bool Chat::make_room(size_t answered) {
    const size_t enough = context_size() - context_size() / 4, before = turns_.prompt().size();
    const size_t now = turns_.first_turn_in_context(), last = turns_.turns() - 1;
    if (now >= last) return false;
    size_t begin = now + 1, end = last; // the turn looked for is one of begin .. end
    while (begin < end) {
        const size_t middle = begin + (end - begin) / 2;
        if (turns_.prompt_from(middle).size() + answered <= enough)
            end = middle;
        else
            begin = middle + 1;
    }
    turns_.begin_context_at(begin);
    dropped_turns_ += begin - now;
    dropped_tokens_ += before - turns_.prompt().size();
    warned_ = false;
    return true;
}

void Chat::say_dropped() {
    if (dropped_turns_ == 0) return;
    note(fmt::format("[ the context of {} tokens was full: {}, {} tokens, {} dropped from it, not from the conversation "
                     "(--context-shift off drops none) ]",
                     context_size(), turns_text(dropped_turns_), dropped_tokens_, dropped_turns_ == 1 ? "is" : "are"));
    dropped_turns_ = dropped_tokens_ = 0;
}

std::string Chat::too_long() const {
    const size_t tokens = turns_.prompt().size(), alone = turns_.prompt_from(turns_.turns() - 1).size();
    if (alone > context_size())
        return fmt::format(
            "the question does not fit: it has {} tokens{} but the context holds {}: shorten it, or ask for a larger "
            "context with -c",
            alone, turns_.system().empty() ? "" : " with the system prompt", context_size());
    ChatTurns before = turns_;
    before.take_back_question();
    const size_t earlier = before.prompt().size();
    return fmt::format(
        "the context is full: the conversation has {} tokens and the question {}, but the context holds {}: /undo takes "
        "the last turn back, /clear starts a new conversation, --context-shift on drops the oldest turns, -c asks for a "
        "larger context",
        earlier, tokens - std::min(tokens, earlier), context_size());
}

// Returns no ids if the conversation does not fit; it is then `before`.
std::vector<uint32_t> Chat::prompt(const ChatTurns& before) {
    auto ids = turns_.prompt();
    // If the question has no room even without earlier turns, none is dropped for it.
    const auto alone = [&] { return turns_.prompt_from(turns_.turns() - 1).size(); };
    if (ids.size() > context_size() && arguments_.context_shift && alone() <= context_size() && make_room(0))
        ids = turns_.prompt();
    if (ids.size() <= context_size()) {
        say_dropped();
        return ids;
    }
    const std::string why = too_long();
    turns_ = before;
    refuse(why);
    return {};
}

// If the context is full in the middle of an answer, the oldest turns make room for the rest of it.
Generated Chat::generate(std::vector<uint32_t> ids, AnswerPrinter& answer) {
    const Tokenizer& tokenizer = engine_->model.tokenizer;
    GenerateOptions options = interruptible(console_);
    options.max_tokens = settings_.max_tokens;
    options.speculation = drafts_ ? drafts_->speculation.get() : nullptr;
    options.is_end = [&](uint32_t id) { return tokenizer.is_end_of_generation(id); };
    options.on_token = [&](uint32_t id) { answer.push(id); };
    options.after_prompt = [&] { prompt_cache_.after_prompt(); };
    options.marks = message_marks(tokenizer, ids);
    Generated all = session_.generate(ids, sampler_, options);
    options.on_prompt = {}; // its line would appear where the answer is
    while (all.stop == Stop::context_full && arguments_.context_shift && make_room(all.ids.size())) {
        ids = turns_.prompt();
        ids.insert(ids.end(), all.ids.begin(), all.ids.end());
        if (ids.size() >= context_size()) continue;
        options.max_tokens = settings_.max_tokens - uint32_t(all.ids.size());
        options.marks = message_marks(tokenizer, ids);
        append(all, session_.generate(ids, sampler_, options));
    }
    return all;
}

// Answers the last question. Returns false if there is no answer, as the question was refused, an error came, or an interruption
// before the first token; the conversation is then `before`.
// The constraint starts anew with each answer, and Ctrl-C from before is forgotten. What was answered is kept on the disk at once
// (keep()), and then the idle time is used for the next turn's prompt (run_ahead()).
bool Chat::reply(const ChatTurns& before) {
    const auto ids = prompt(before);
    if (ids.empty()) return false;
    AnswerPrinter answer(engine_->model.tokenizer, console_, options_.opens_thinking());
    if (constraint_) constraint_->restart();
    clear_interrupt();
    Generated result;
    try {
        const auto quiet = questions_.while_answering();
        result = generate(ids, answer);
    } catch (const OutOfMemory& error) {
        console_.clear_status();
        turns_ = before;
        refuse(error.what());
        return false;
    } catch (...) {
        turns_ = before;
        throw;
    }
    answer.finish();
    last_stop_ = result.stop;
    const bool answered = result.stop != Stop::interrupted || !answer.empty();
    if (answered)
        turns_.answer(answer.text(), answer.thought());
    else
        turns_ = before;
    explain(result, answered);
    if (answered) keep();
    clear_interrupt();
    if (!arguments_.single_turn) run_ahead();
    return answered;
}

// Says below an answer why it ended early, what was dropped from the context for it, and its numbers, which are added to the
// totals.
void Chat::explain(const Generated& result, bool answered) {
    say_dropped();
    if (result.stop == Stop::interrupted)
        note(answered ? "[ interrupted ]" : "[ interrupted: the conversation is as it was before ]");
    if (result.stop == Stop::length) note(fmt::format("[ stopped after {} tokens (-n) ]", result.ids.size()));
    if (result.stop == Stop::context_full)
        note(fmt::format(
            "[ the context of {} tokens is full: /undo takes this turn back, /clear starts a new conversation, -c asks for a "
            "larger context ]",
            context_size()));
    if (result.stop == Stop::memory_full) note(fmt::format("[ {} ]", result.reason));
    totals_.answers += 1;
    totals_.tokens += result.ids.size();
    totals_.prompt_tokens += result.timings.prompt_tokens;
    totals_.reused_tokens += result.timings.reused_tokens;
    totals_.drafted += result.timings.drafted_tokens;
    totals_.accepted += result.timings.accepted_tokens;
    totals_.ns += result.timings.prompt_ns + result.timings.decode_ns;
    note(generation_line(result, session_.cached_ids().size(), context_size()));
    warn_of_full_context(result);
    report(prefix_.get(), arguments_.console.verbose);
    report_profile(*engine_);
}

void Chat::warn_of_full_context(const Generated& result) {
    const uint64_t percent = 100 * uint64_t(session_.cached_ids().size()) / context_size();
    if (warned_ || percent < nearly_full_percent || result.stop == Stop::context_full) return;
    warned_ = true;
    note(fmt::format("[ the context is {} % full: {}; /clear starts a new conversation, -c asks for a larger context ]", percent,
                     arguments_.context_shift ? "when there is no more room, the oldest turns are dropped"
                                              : "when there is no more room, the conversation ends"));
}

int Chat::run() {
    print_banner();
    catch_interrupts();
    int status = 0;
    try {
        status = converse();
    } catch (const Error&) { // the conversation must survive an error of the model or the device, if possible
        prompt_cache_.finish();
        throw;
    }
    const bool saved = prompt_cache_.finish();
    return status != 0 || saved ? status : 1;
}

// The first turn may come from -p or -f, or with -st from a pipe as a whole. After that each line of input is a turn, at a
// terminal and in a pipe alike, until the input ends.
int Chat::converse() {
    if (arguments_.resume != "-")
        resume();
    else
        begin_kept();
    if (arguments_.prompt.given)
        ask(arguments_.prompt.read());
    else if (arguments_.single_turn && !console_.input_is_terminal())
        ask(read_input());
    else if (arguments_.single_turn)
        if (const auto turn = questions_.next()) ask(*turn);
    if (arguments_.single_turn) return last_stop_ == Stop::interrupted ? 130 : 0;
    while (!leaving_) {
        clear_interrupt();
        const auto turn = questions_.next();
        if (!turn) break;
        if (turn->find_first_not_of(" \t\n") == std::string::npos || obey(*turn)) continue;
        ask(*turn);
    }
    return 0;
}

} // namespace tq
