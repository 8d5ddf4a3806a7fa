// A request to a scheduler: one sequence, token ids in, token ids out. It knows neither text nor HTTP.
#pragma once
#include "model/engine/sampling/sampler.h"
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tq {
class Speculation;
}

namespace tq::serving {

// Wakes one thread that waits for several streams.
class Bell {
  public:
    void ring();
    // Waits for a ring until `end`. Returns whether there was one since the last wait.
    bool wait_until(std::chrono::steady_clock::time_point end);

  private:
    std::mutex mutex_;
    std::condition_variable rung_;
    bool rings_ = false;
};

struct Request {
    std::vector<uint32_t> prompt;     // not empty, at most the context
    uint32_t max_tokens = UINT32_MAX; // 0: the prompt is only put into the cache
    SamplerOptions sampling;
    std::vector<std::pair<uint32_t, float>> logit_bias; // added to the logits of ids below vocab_size, before all else
    std::unique_ptr<TokenConstraint> constraint;        // a grammar, a limit of the thinking; null: none
    bool ignore_end = false;                            // tokens that end an answer are not sampled
    bool logprobs = false;                              // Token::logprob and top
    uint32_t top_logprobs = 0;                          // alternatives in Token::top
    bool prompt_logprobs = false;                       // Update::prompt is wanted, so all of the prompt is run
    // Lengths of the prompt at which another one may branch off: the beginnings of its last messages (checkpoint_positions()).
    std::vector<uint32_t> marks;
    std::string tenant;           // prompts find in the prefix cache only what requests of the same tenant left there
    bool background = false;      // runs only while no other request is there, and is given up when one comes
    bool from_machine = false;    // another machine wants its pages: it is not sent to a third one
    bool hidden = false;          // no answer: Update::hidden is wanted
    bool logits = false;          // no answer: the logits after the prompt are wanted, in Update::scores
    std::vector<uint32_t> scored; // no answer: those of these ids alone are wanted
    std::shared_ptr<Bell> bell;   // rung when the stream has news, for a thread that waits for several; null: none

    // The following outlive the request.
    Sampler* sampler = nullptr;         // that samples, and goes on with the next request; null: one is made from `sampling`
    Speculation* speculation = nullptr; // drafts tokens; the answer is the same without
    // Called by the thread that runs the pass. total: tokens of the prompt that were not in the cache; done: those of them that
    // have been run. If it returns false, the request is cancelled.
    std::function<bool(uint32_t done, uint32_t total)> on_prompt;
};

// Which of the tokens that are in a slot, or in the prefix cache, a prompt reuses.
enum class Reuse {
    cold, // those with the bits of a cold run (model/prefix/cold.h): an answer does not depend on what ran before
    all   // also sampled ones: a conversation goes on in its slot, or with what the prefix cache has of it
};

struct Token {
    uint32_t id;
    float logprob = 0;                           // of its softmax before penalties, temperature and constraints
    std::vector<std::pair<uint32_t, float>> top; // the most probable ids and their logprobs, in descending order
};

enum class Finish {
    end,          // a token that ends the answer, which is not part of it
    length,       // max_tokens
    context_full, // as many tokens as the context holds
    cancelled,
    failed // Update::error says why
};

struct RequestTimings {
    uint32_t cached_tokens = 0; // of the prompt, found
    uint32_t prompt_tokens = 0; // of the prompt, run
    uint32_t decoded_tokens = 0;
    uint32_t drafted_tokens = 0;                         // that were verified
    uint32_t accepted_tokens = 0;                        // drafted tokens that were right
    uint64_t queue_ns = 0, prompt_ns = 0, decode_ns = 0; // prompt_ns ends with the first token, decode_ns begins there
};

// The news of a request since the last call of Stream::wait().
struct Update {
    std::vector<Token> tokens;
    std::vector<Token> prompt; // its tokens from the second on, with logprobs; all come before the first of the answer
    uint32_t prompt_done = 0;  // tokens of the prompt that are in the cache by now
    bool done = false;         // nothing follows; the fields below are set
    Finish finish = Finish::end;
    std::optional<Token> end;  // of Finish::end: the token that ended the answer
    bool server_fault = false; // of failed: true if the device or memory failed, false if the request cannot be answered
    std::string error;
    std::exception_ptr exception{}; // of failed: the exception, if there was one
    RequestTimings timings;         // also before it is done
    std::vector<float> hidden;      // [hidden_size]: the state of the prompt's last token after the last norm
    std::vector<float> scores;      // [vocab_size], or of Request::scored
};

// The end of a request that its client holds. A scheduler writes from its thread; any one other thread reads.
class Stream {
  public:
    explicit Stream(std::shared_ptr<Bell> bell = {}) : bell_(std::move(bell)) {}
    // Returns when there is something new, or after `timeout`, then with nothing new.
    Update wait(std::chrono::milliseconds timeout);
    // Stops the request; its tokens so far stay in the prefix cache.
    void cancel();
    bool cancelled() const;
    bool done() const;

    // For the scheduler.
    void push(Token token, const RequestTimings& timings);
    void push_prompt(Token token, const RequestTimings& timings);
    void progress(uint32_t prompt_done, const RequestTimings& timings);
    void finish(Finish finish, const RequestTimings& timings, std::optional<Token> end = {});
    void finish_values(std::vector<float> hidden, std::vector<float> scores, const RequestTimings& timings);
    void fail(std::string error, bool server_fault, const RequestTimings& timings, std::exception_ptr exception = {});

  private:
    void change(const RequestTimings& timings, const std::function<void(Update&)>& change);

    const std::shared_ptr<Bell> bell_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    Update pending_;
    bool new_ = false, cancelled_ = false;
};

} // namespace tq::serving
