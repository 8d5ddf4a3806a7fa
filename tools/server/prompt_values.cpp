// Runs many prompts that have no answer, for embeddings and rerank. Twice as many as there are slots are with the scheduler at a
// time: one in each slot and one that follows, so that no slot idles, and the queue has room for others. The oldest is waited for
// first, since results are wanted in order. If others fill the queue in the middle of a request, it waits instead of failing;
// only the first prompt's refusal (429) reaches the client, which has then lost nothing.
// However the function is left, RunningPrompts cancels what is still running.
#include "tools/server/prompt_values.h"
#include "base/ensure.h"
#include <deque>
#include <thread>

namespace tq::server {
namespace {

constexpr std::chrono::milliseconds prompt_poll_interval{100}, retry_interval{10};

void require_client(const HttpRequest& request) {
    if (request.disconnected && request.disconnected())
        throw ApiError(499, "invalid_request_error", "the client closed the connection");
}

// The prompts that are running. The destructor cancels them.
class RunningPrompts {
  public:
    ~RunningPrompts() {
        for (const auto& stream : streams_) stream->cancel();
    }
    size_t size() const { return streams_.size(); }
    void add(std::shared_ptr<serving::Stream> stream) { streams_.push_back(std::move(stream)); }

    // Waits for the end of the oldest.
    serving::Update take(const HttpRequest& request) {
        for (;;) {
            serving::Update update = streams_.front()->wait(prompt_poll_interval);
            if (update.done) {
                streams_.pop_front();
                return update;
            }
            require_client(request);
        }
    }

  private:
    std::deque<std::shared_ptr<serving::Stream>> streams_;
};

void require_prompts_fit(const std::vector<std::vector<uint32_t>>& prompts, uint32_t context,
                         const std::function<std::string(size_t)>& field) {
    for (size_t i = 0; i < prompts.size(); i++)
        if (prompts[i].size() > context)
            throw ApiError(
                400, "invalid_request_error",
                fmt::format("{} has {} tokens, but the context holds {}: shorten it, or start the server with a larger "
                            "context (-c)",
                            field(i), prompts[i].size(), context),
                field(i), "context_length_exceeded");
}

// Returns null if the queue is full and the request was `begun` already: then it waits for room.
std::shared_ptr<serving::Stream> submit_or_wait(serving::Scheduler& scheduler, serving::Request request, bool begun) {
    try {
        return submit_prompt(scheduler, std::move(request));
    } catch (const ApiError& error) {
        if (begun && error.status == 429) return nullptr;
        throw;
    }
}

std::vector<float> prompt_values_of(serving::Update update) {
    if (update.finish == serving::Finish::failed)
        throw ApiError(update.server_fault ? 500 : 400, update.server_fault ? "server_error" : "invalid_request_error",
                       update.error);
    if (update.finish == serving::Finish::cancelled) throw ApiError(503, "server_error", "the server is shutting down");
    std::vector<float> values = update.hidden.empty() ? std::move(update.scores) : std::move(update.hidden);
    ENSURE(!values.empty(), "a prompt of {} tokens has brought no values", update.timings.prompt_tokens);
    return values;
}

} // namespace

std::shared_ptr<serving::Stream> submit_prompt(serving::Scheduler& scheduler, serving::Request request) {
    try {
        return scheduler.submit(std::move(request));
    } catch (const serving::QueueFull& full) {
        ApiError error(429, "rate_limit_error", full.what());
        error.retry_after_s = full.retry_after_s;
        throw error;
    } catch (const serving::Draining& draining) {
        throw ApiError(503, "server_error", draining.what());
    } catch (const Error& error) {
        throw ApiError(400, "invalid_request_error", error.what());
    }
}

PromptValues run_prompts(Service& service, const HttpRequest& request, const std::vector<std::vector<uint32_t>>& prompts,
                         const std::vector<uint32_t>& scored, const std::function<std::string(size_t)>& field) {
    require_prompts_fit(prompts, service.scheduler.context_size(), field);
    const size_t max = 2 * size_t(service.scheduler.slots()); // slots stay busy, and the queue is left to others
    PromptValues out;
    RunningPrompts running;
    for (size_t next = 0; out.values.size() < prompts.size();) {
        std::shared_ptr<serving::Stream> stream;
        if (next < prompts.size() && running.size() < max) {
            serving::Request submitted;
            submitted.prompt = prompts[next];
            submitted.max_tokens = 1;
            submitted.tenant = request.tenant;
            submitted.hidden = scored.empty();
            submitted.scored = scored;
            stream = submit_or_wait(service.scheduler, std::move(submitted), next > 0);
        }
        if (stream) {
            running.add(std::move(stream));
            out.prompt_tokens += prompts[next++].size();
        } else if (running.size() == 0) { // others fill the queue
            require_client(request);
            std::this_thread::sleep_for(retry_interval);
        } else {
            out.values.push_back(prompt_values_of(running.take(request)));
        }
    }
    return out;
}

Pooling pooling_of(const ModelFile& file) {
    const std::string key = fmt::format("{}.pooling_type", file.text("general.architecture", "qwen3"));
    const ModelFile::Value* value = file.find(key);
    const auto* number = value ? std::get_if<int64_t>(value) : nullptr;
    if (!value || (number && *number < 0)) return Pooling::unsaid; // llama.cpp's -1
    const auto* count = std::get_if<uint64_t>(value);
    const uint64_t kind = count ? *count : number ? uint64_t(*number) : UINT64_MAX;
    return kind < uint64_t(Pooling::unknown) ? Pooling(kind) : Pooling::unknown;
}

const char* pooling_name(Pooling pooling) {
    constexpr const char* names[] = {"none", "mean", "first token", "last token", "rank", "unknown", "unsaid"};
    return names[size_t(pooling)];
}

} // namespace tq::server
