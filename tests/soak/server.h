// Answers the requests of a soak together, in the slots of one cache with a prefix cache: it cancels and forks at random, and
// has fewer pages, less memory and a smaller disk than the requests would fill.
#pragma once
#include "model/prefix/cache.h"
#include "tests/soak/engine.h"
#include <functional>

namespace tq::soak {

struct ServerOptions {
    std::filesystem::path directory; // of the prefix cache
    uint64_t memory_pages = 6, disk_pages = 60;
    bool forks = false; // of slots, at any token: exact where the kernels are deterministic
    uint64_t seed = 0;  // of what happens at random
};

struct ServerCounts {
    uint32_t forked = 0, cancelled = 0, preempted = 0;
    PrefixCache::Statistics found;
};

class Server {
  public:
    using OnAnswer = std::function<void(const Request& request, const Ids& answer)>;

    Server(Engine& engine, const std::vector<Request>& plan, Answers answers, const ServerOptions& options);

    // Answers every request that has no answer yet. Throws Error if a limit is exceeded.
    void run(const OnAnswer& on_answer);
    // Gives up all slots and the prefix cache. Throws Error if a page is not free then.
    ServerCounts finish();

  private:
    struct Active {
        const Request* request; // of a slot that is idle, the last one
        Ids ids;                // the prompt, and the answer so far
        uint32_t prompt = 0;    // tokens of it
        uint32_t cold = 0;      // as in PrefixCache::store()
        bool idle = true;
    };

    uint32_t random(uint32_t count) { return uint32_t(splitmix64_()) % count; }
    uint64_t splitmix64_();
    uint32_t run_tokens(uint32_t slot) const { return forward_.cache().position(slot); }
    bool admit();
    void begin(uint32_t slot, const Request& request);
    bool fork_for(uint32_t slot, const Ids& prompt);
    void run_pass();
    bool make_room();
    void empty(uint32_t slot);
    void add_token(uint32_t slot, uint32_t id, const OnAnswer& on_answer);
    void check_limits();

    Forward& forward_;
    const std::vector<Request>& plan_;
    const ServerOptions options_;
    const uint64_t page_bytes_;
    std::optional<PrefixCache> prefix_;
    Answers answers_;
    std::vector<const Request*> waiting_;
    std::vector<Active> slots_;
    ServerCounts counts_;
    uint64_t state_;
    OnAnswer on_answer_;
};

} // namespace tq::soak
