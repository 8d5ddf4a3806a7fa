// From streams of tokens to events of text. A task has prompts, each of which has `choices` answers; each answer is a stream
// of the scheduler. All of them ring one bell, so one thread, the handler's, waits for all. Prompts begin up to as many at a
// time as there are slots, but their events are told in the order of the prompts: the tokens of a later prompt wait in their
// streams. The choices of one prompt are told as they come.
// Nobody may hold a slot for a client that is gone: run_generation() looks at the connection every 50 ms, also while there is
// no news, and the end of a Choice cancels its stream, however it comes about. A stop string can end an answer before the
// scheduler knows; what it has sampled meanwhile is not told.
// run_ahead() puts the next prompt's beginning into the cache while the user reads: the answer without its thinking, in the
// form that the template will give it. It is work in the background, and the first request ends it.
#include "tools/server/generation.h"
#include "tools/server/answer.h"
#include "tools/server/prompt.h"
#include <algorithm>
#include <random>
#include <span>

namespace tq::server {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds look_at_client{50};
constexpr size_t min_run_ahead_tokens = 16; // fewer are run with the next prompt

// The seed of a prompt whose request gives none. Each prompt of the request has its own.
uint64_t random_seed() {
    std::random_device random;
    return uint64_t(random()) << 32 | random();
}

std::shared_ptr<serving::Stream> submit(Service& service, serving::Request request) {
    try {
        return service.scheduler.submit(std::move(request));
    } catch (const serving::QueueFull& full) {
        ApiError error(429, "rate_limit_error", full.what(), "", "rate_limit_exceeded");
        error.retry_after_s = std::max(full.retry_after_s, 1u);
        throw error;
    } catch (const serving::Draining& draining) {
        throw ApiError(503, "server_error", draining.what());
    } catch (const OutOfMemory& error) {
        throw ApiError(500, "server_error", error.what());
    } catch (const Error& error) {
        throw ApiError(400, "invalid_request_error", error.what());
    }
}

} // namespace

struct Generation::Choice {
    std::shared_ptr<serving::Stream> stream;
    Answer answer;
    uint32_t number;
    bool done = false;
    FinishReason finish = FinishReason::stop;
    std::vector<TokenText> prompt = {}; // its tokens with logprobs
    serving::RequestTimings timings = {};

    Choice(std::shared_ptr<serving::Stream> stream, Answer answer, uint32_t number)
        : stream(std::move(stream)), answer(std::move(answer)), number(number) {}
    ~Choice() { stop(); }

    void stop() {
        if (!done) stream->cancel();
        done = true;
    }
};

class Generation::Impl {
  public:
    Impl(Service& service, const ChatTask& task, const std::string& tenant) : service(service), chat(task), tenant(tenant) {
        service.say_ignored(task.ignored);
        ChatPrompt made = chat_prompt(service, task, true);
        require_fits(service, made.ids.size(), "messages");
        prompts = {std::move(made.ids)};
        continues = made.continues;
        answer_ = {.chat = true, .in_thinking = made.thinking.open};
        answer_.calls = task.tools.is_array() && !task.tools.empty() && task.tool_choice != ToolChoice::none;
        if (answer_.calls) answer_.types = ToolTypes(task.tools);
        if (answer_.calls && is_llama(service.model.chat))
            answer_.untagged = UntaggedCalls::several;
        else if (answer_.calls && task.format.kind == Format::Kind::text)
            answer_.untagged = UntaggedCalls::alone;
        constraints_.emplace(service, task, made.thinking);
        sampling = task.sampling;
        // The tools stay in the prompt, so that it is found in the cache, but none is called.
        const auto call = service.model.tokenizer.special("<tool_call>");
        if (task.tool_choice == ToolChoice::none && call) sampling.logit_bias.push_back({*call, never_bias});
        begin_more();
    }
    Impl(Service& service, const TextTask& task, const std::string& tenant)
        : service(service), tenant(tenant), prompts(task.prompts), sampling(task.sampling),
          prompt_logprobs(task.prompt_logprobs) {
        service.say_ignored(task.ignored);
        for (const std::vector<uint32_t>& prompt : prompts) {
            if (prompt.empty()) bad_request("prompt", "\"prompt\" is empty, so there is nothing to continue");
            require_fits(service, prompt.size(), "prompt");
        }
        constraints_.emplace(service, task.format, sampling.ignore_end);
        begin_more();
    }

    std::vector<Event> next(milliseconds timeout);
    bool done() const { return begun == prompts.size() && prompt_done(begun - 1); }
    void stop();
    void run_ahead();
    // The first choice of the prompt that is being answered.
    const Choice& first_choice() const { return *choices.at(current * sampling.choices); }

    Service& service;
    std::optional<ChatTask> chat;
    const std::string tenant;
    std::vector<std::vector<uint32_t>> prompts;
    Sampling sampling;
    bool continues = false, prompt_logprobs = false;
    const std::shared_ptr<serving::Bell> bell = std::make_shared<serving::Bell>();
    std::vector<std::unique_ptr<Choice>> choices; // of the prompts that have begun
    size_t begun = 0, current = 0;                // prompts: how many have begun, and which one is answered

  private:
    bool prompt_done(size_t prompt) const {
        const auto of_prompt = std::span(choices).subspan(prompt * sampling.choices, sampling.choices);
        return std::ranges::all_of(of_prompt, [](const auto& choice) { return choice->done; });
    }
    void begin_more();
    void begin(const std::vector<uint32_t>& prompt, uint64_t seed);
    void finish(Choice& choice, FinishReason reason, std::vector<Event>& events);
    void take(Choice& choice, serving::Update update, std::vector<Event>& events);

    std::optional<Constraints> constraints_;
    Answer::Options answer_;
};

// At most as many prompts are in the scheduler as there are slots, counted from the prompt that is being told: more would only
// take places in the queue from other clients.
void Generation::Impl::begin_more() {
    const size_t max = std::max(service.scheduler.slots(), 1u);
    for (; begun < prompts.size() && begun - current < max; ++begun)
        begin(prompts[begun], sampling.seed_given ? sampling.options.seed : random_seed());
}

// Choice i of a prompt has seed + i, so that the choices differ and a repeated request gives the same ones. They share the
// prompt's pages through the prefix cache. If submit() throws for a later choice, the destructors of the earlier ones cancel
// them.
void Generation::Impl::begin(const std::vector<uint32_t>& prompt, uint64_t seed) {
    for (uint32_t i = 0; i < sampling.choices; ++i) {
        Answer::Options options = answer_;
        options.choice = uint32_t(choices.size());
        options.stop = sampling.stop;
        options.logprobs = sampling.logprobs;
        serving::Request request;
        request.prompt = prompt;
        request.marks = message_marks(service.model.tokenizer, prompt);
        request.max_tokens = std::min(sampling.max_tokens.value_or(UINT32_MAX), service.options.max_tokens);
        request.sampling = sampling.options;
        request.sampling.seed = seed + i;
        request.logit_bias = sampling.logit_bias;
        request.constraint = constraints_->make();
        request.ignore_end = sampling.ignore_end;
        request.logprobs = sampling.logprobs;
        request.top_logprobs = sampling.logprobs ? sampling.top_logprobs : 0;
        request.prompt_logprobs = prompt_logprobs;
        request.tenant = tenant;
        request.bell = bell;
        Answer made(service.model.tokenizer, std::move(options));
        const auto number = uint32_t(choices.size());
        choices.push_back(std::make_unique<Choice>(submit(service, std::move(request)), std::move(made), number));
    }
}

void Generation::Impl::finish(Choice& choice, FinishReason reason, std::vector<Event>& events) {
    choice.finish = reason;
    Event end{.choice = choice.number, .part = {AnswerPart::Kind::content, ""}, .tokens = {}, .finish = reason};
    events.push_back(std::move(end));
}

// Takes an update of a choice's stream. Tokens go through Answer, which may find a stop string in the middle of them: then the
// stream is cancelled, and the rest of the update is dropped. Otherwise the update may be the last, with the scheduler's reason.
// A failure is thrown, and ends all choices of the request.
void Generation::Impl::take(Choice& choice, serving::Update update, std::vector<Event>& events) {
    choice.timings = update.timings;
    for (const serving::Token& token : update.prompt) choice.prompt.push_back(choice.answer.token_text(token));
    for (const serving::Token& token : update.tokens) {
        choice.answer.push(token, events);
        if (!choice.answer.stop_string()) continue;
        choice.answer.finish(events, true);
        choice.stop();
        const bool calls = !choice.answer.parsed().calls.empty();
        return finish(choice, calls ? FinishReason::tool_calls : FinishReason::stop, events);
    }
    if (!update.done) return;
    choice.done = true;
    if (update.finish == serving::Finish::failed)
        throw ApiError(update.server_fault ? 500 : 400, update.server_fault ? "server_error" : "invalid_request_error",
                       update.error);
    if (update.finish == serving::Finish::cancelled)
        throw ApiError(503, "server_error", "the answer was given up, since the server stops: ask again later");
    const bool at_limit = update.finish == serving::Finish::length || update.finish == serving::Finish::context_full;
    choice.answer.finish(events, at_limit || choice.answer.stop_string());
    if (prompt_logprobs && update.end) // scoring tools count all tokens that were generated
        events.push_back({choice.number, {AnswerPart::Kind::content, ""}, {choice.answer.token_text(*update.end)}});
    finish(choice,
           at_limit                                ? FinishReason::length
           : choice.answer.stop_string()           ? FinishReason::stop
           : !choice.answer.parsed().calls.empty() ? FinishReason::tool_calls
                                                   : FinishReason::stop,
           events);
}

// The streams are emptied before the bell is waited for: a bell that rang while they were read would otherwise be missed.
std::vector<Event> Generation::Impl::next(milliseconds timeout) {
    std::vector<Event> events;
    const auto end = Clock::now() + timeout;
    do {
        for (size_t i = current * sampling.choices; i < (current + 1) * sampling.choices; ++i)
            if (Choice& choice = *choices[i]; !choice.done) take(choice, choice.stream->wait(milliseconds(0)), events);
        if (prompt_done(current) && current + 1 < prompts.size()) ++current, begin_more();
    } while (events.empty() && !done() && bell->wait_until(end));
    return events;
}

void Generation::Impl::stop() {
    prompts.resize(begun);
    for (const auto& choice : choices) choice->stop();
}

// A next prompt holds the answer without its thinking, and in the template's own form.
void Generation::Impl::run_ahead() {
    const Choice& choice = first_choice();
    if (!service.options.run_ahead || !chat || continues || choices.size() != 1 || choice.finish == FinishReason::length) return;
    try {
        std::vector<uint32_t> ids = answered_prompt(service, *chat, choice.answer.parsed()), known = prompts.front();
        known.insert(known.end(), choice.answer.ids().begin(), choice.answer.ids().end());
        const size_t same = size_t(std::ranges::mismatch(ids, known).in1 - ids.begin());
        if (ids.size() > service.scheduler.context_size() || ids.size() - same < min_run_ahead_tokens) return;
        serving::Request request;
        request.marks = message_marks(service.model.tokenizer, ids);
        request.prompt = std::move(ids);
        request.max_tokens = 0;
        request.tenant = tenant;
        request.background = true;
        service.scheduler.submit(std::move(request));
    } catch (const Error&) { // nobody waits for it
    }
}

Generation::Generation(Service& service, const ChatTask& task, const std::string& tenant)
    : impl_(std::make_unique<Impl>(service, task, tenant)) {}
Generation::Generation(Service& service, const TextTask& task, const std::string& tenant)
    : impl_(std::make_unique<Impl>(service, task, tenant)) {}
Generation::~Generation() = default;

std::vector<Event> Generation::next(milliseconds timeout) { return impl_->next(timeout); }
bool Generation::done() const { return impl_->done(); }
FinishReason Generation::finish(uint32_t choice) const { return impl_->choices.at(choice)->finish; }
const std::optional<std::string>& Generation::stop_string(uint32_t choice) const {
    return impl_->choices.at(choice)->answer.stop_string();
}
// Choices of one prompt share what was run of it, so times and tokens of prompts are counted for first choices only. Tokens of
// answers are computed for each choice, and their times are added, although the choices ran at the same time.
serving::RequestTimings Generation::timings() const {
    serving::RequestTimings sum;
    for (const auto& choice : impl_->choices) {
        const serving::RequestTimings& one = choice->timings;
        sum.decoded_tokens += one.decoded_tokens;
        sum.drafted_tokens += one.drafted_tokens;
        sum.accepted_tokens += one.accepted_tokens;
        sum.decode_ns += one.decode_ns;
        if (choice->number % impl_->sampling.choices != 0) continue;
        sum.cached_tokens += one.cached_tokens;
        sum.prompt_tokens += one.prompt_tokens;
        sum.queue_ns += one.queue_ns;
        sum.prompt_ns += one.prompt_ns;
    }
    return sum;
}
std::vector<uint32_t> Generation::answered_ids() const {
    if (!impl_->chat) return {};
    return answered_prompt(impl_->service, *impl_->chat, impl_->first_choice().answer.parsed());
}
const std::vector<TokenText>& Generation::prompt_tokens(uint32_t choice) const { return impl_->choices.at(choice)->prompt; }
uint32_t Generation::choices() const { return uint32_t(impl_->prompts.size() * impl_->sampling.choices); }
void Generation::run_ahead() { impl_->run_ahead(); }
void Generation::stop() { impl_->stop(); }

// A prompt counts once, however many choices it has, and only if it has begun. Tokens of answers count for each choice.
Usage Generation::usage() const {
    Usage usage;
    for (size_t i = 0; i < impl_->begun; ++i) {
        usage.prompt_tokens += uint32_t(impl_->prompts[i].size());
        usage.cached_tokens += impl_->choices[i * impl_->sampling.choices]->timings.cached_tokens;
    }
    for (const auto& choice : impl_->choices) {
        usage.completion_tokens += uint32_t(choice->answer.ids().size());
        usage.reasoning_tokens += choice->answer.reasoning_tokens();
    }
    return usage;
}

std::vector<uint32_t> prompt_ids(Service& service, const ChatTask& task) { return chat_prompt(service, task).ids; }

bool run_generation(Service& service, Generation& generation, const HttpRequest& request,
                    const std::function<bool(const std::vector<Event>&)>& on_events, const std::function<bool()>& on_idle) {
    auto last = Clock::now();
    while (!generation.done()) {
        const std::vector<Event> events = generation.next(look_at_client);
        bool goes_on = !(request.disconnected && request.disconnected());
        if (goes_on && !events.empty()) {
            goes_on = on_events(events);
            last = Clock::now();
        } else if (goes_on && Clock::now() - last >= service.options.ping_interval) {
            goes_on = on_idle();
            last = Clock::now();
        }
        if (goes_on) continue;
        generation.stop();
        return false;
    }
    return true;
}

} // namespace tq::server
