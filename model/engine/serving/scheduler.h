// Answers many requests at once with one model: continuous batching. Each pass takes one token of every answer and a slice of
// one prompt, so that no stream waits longer than for a block of somebody's prompt. The answers are, bit for bit, those that each
// request would get alone from an empty cache (model/prefix/cold.h), unless Options::reuse says otherwise.
#pragma once
#include "base/error.h"
#include "model/engine/serving/request.h"
#include "model/engine/serving/status.h"
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace tq {
class Forward;
class PrefixCache;
struct KvOptions;
} // namespace tq

namespace tq::serving {

// There are as many waiting requests as the queue holds.
struct QueueFull : Error {
    using Error::Error;
    uint32_t retry_after_s = 1;
    QueueFull(const std::string& what, uint32_t retry_after_s) : Error(what), retry_after_s(retry_after_s) {}
};
// The scheduler takes no more requests.
struct Draining : Error {
    using Error::Error;
};

class Scheduler {
  public:
    struct Options {
        uint32_t queue = 256; // waiting requests
        std::function<bool(uint32_t id)> is_end;
        std::vector<bool> excluded, excluded_ends;            // ids that are never sampled; with the ends of an answer
        Reuse reuse = Reuse::cold;                            // all: only then does an answer depend on what ran before
        uint64_t memory_bytes = 0;                            // see BatchOptions
        std::function<void(const std::string& warning)> warn; // called from the scheduler's thread
        // Drafts tokens; it outlives the scheduler. Null: none.
        Speculation* speculation = nullptr;
    };
    // Makes a forward pass and its prefix cache (null: none): at first, and again when the device was lost.
    struct Model {
        std::unique_ptr<Forward> forward;
        std::shared_ptr<PrefixCache> prefix; // of that forward
    };
    using Open = std::function<Model()>;

    Scheduler(Model model, Open reopen, Options options);
    ~Scheduler(); // cancels all requests

    // Throws Error if the prompt is empty or exceeds the context, with both numbers; QueueFull; Draining.
    std::shared_ptr<Stream> submit(Request request);
    // Returns the content of the whole page that these ids end with, once a request of the tenant has run them; nothing if it
    // is not in the prefix cache (PrefixCache::content()). Waits for the pass that is running.
    std::optional<std::vector<std::byte>> page_content(std::vector<uint32_t> ids, std::string tenant);
    Status status() const;
    // From now on submit() throws Draining. Returns when all requests are answered, or after `timeout`: whether they were.
    bool drain(std::chrono::milliseconds timeout);

    uint32_t context_size() const;
    uint32_t slots() const;
    const KvOptions& kv() const;
    uint64_t kv_bytes_per_token() const;

  private:
    class Loop;
    std::unique_ptr<Loop> loop_;
};

} // namespace tq::serving
