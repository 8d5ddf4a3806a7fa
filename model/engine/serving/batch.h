// The engine: the sequences that are answered together, and those that wait. Admission to slots, reuse of cached tokens, passes,
// sampling on the host or the device, drafts, giving way when pages run out, and going on after a lost device happen here and
// nowhere else. Without threads: a Scheduler (scheduler.h) calls step() in a thread of its own for a server, a Session
// (session.h) in the caller's for one conversation.
#pragma once
#include "model/engine/serving/sequence.h"
#include "model/engine/serving/status.h"
#include "model/engine/speculation/drafter.h"
#include "model/forward.h"
#include "model/pace.h"
#include "model/prefix/cache.h"
#include <list>

namespace tq::serving {

struct BatchOptions {
    std::function<bool(uint32_t id)> is_end; // whether a token ends an answer; empty: none does
    Reuse reuse = Reuse::cold;               // all: slots keep their content, too
    uint64_t memory_bytes = 0;               // for preempted sequences' pages; those beyond are run again
    // one_caller: slots keep their content for the next request, also if there is a prefix cache, of which only cold tokens are
    // found. A request fails on any error except a lost device, which is opened again as often as `reopen` can. Otherwise the
    // device is opened again after any error; requests fail if it is lost a second time without a successful pass in between.
    bool one_caller = false;
    std::function<bool()> has_news;                       // whether somebody waits for step() to return; empty: never
    std::function<void(const std::string& warning)> warn; // sentences for people, by the thread that steps; empty: not told
};

class Batch {
  public:
    // Both outlive the batch, or the next reopening. prefix: null: none.
    struct Model {
        Forward* forward = nullptr;
        PrefixCache* prefix = nullptr;
    };
    // Loads the model again, with empty slots. error: why; null if the last attempt failed. Throws Error.
    using Reopen = std::function<Model(const Error* error)>;

    Batch(Model model, Reopen reopen, BatchOptions options);
    ~Batch();

    void add(std::unique_ptr<Sequence> sequence); // to the waiting ones
    bool idle() const { return waiting_.empty() && running_.empty(); }
    uint32_t waiting() const; // not those in the background
    // Drops cancelled requests, admits, and runs one pass.
    void step();
    // Fails everything.
    void fail_all(const std::string& why, std::exception_ptr exception = {});

    // Returns PrefixCache::content(), or nullopt if it throws.
    std::optional<std::vector<std::byte>> page_content(std::span<const uint32_t> ids, const std::string& tenant);

    Status status() const;
    Forward& forward() { return *model_.forward; }

    // The tokens in a slot: those of the request that runs there, or the last one's if slots keep their content.
    struct Content {
        std::vector<uint32_t> ids;
        uint32_t cold = 0; // the first tokens that have the bits of a cold run
    };
    Content content(uint32_t slot) const;
    // Puts tokens of a page source into a slot, with what belongs to them beside the pages. Throws as Cache::restore() does; the
    // slot is then empty.
    void restore(uint32_t slot, Content content, const PageSource& source, const SavedSlot& saved);
    // Puts the longest beginning of `ids` that the prefix cache has into a slot, sampled tokens included. Returns its length.
    uint32_t resume(uint32_t slot, std::span<const uint32_t> ids);

  private:
    using List = std::list<std::unique_ptr<Sequence>>;

    // admission.cpp
    void drop_cancelled();
    void admit();
    bool admit(Sequence& sequence);
    bool may_run(const Sequence& sequence) const;
    bool waits_for_company(const Sequence& sequence) const;
    bool waits_for_pages(Sequence& sequence);
    uint32_t free_slot(const Sequence& sequence) const;
    bool has_room(const Sequence& sequence) const;
    void forget_for(const Sequence& sequence, uint32_t slot);
    void place(Sequence& sequence, uint32_t slot);
    uint32_t reuse(Sequence& sequence, uint32_t slot);
    std::vector<uint32_t> pauses(const Sequence& sequence) const;
    uint32_t fork(Sequence& sequence, uint32_t slot, uint32_t known);
    bool restore(Sequence& sequence, uint32_t slot);

    // batch.cpp
    struct Part { // of a pass: tokens of a sequence
        Sequence* sequence;
        uint32_t begin, end;
        bool wants_logits;
        std::vector<uint32_t> draft{}; // ids that may follow, run as separate rows behind the token
        uint32_t accepted = 0;         // of the draft: its first ones, which were sampled, too
        bool rejected = false;         // the rows that follow are worthless

        bool tells_prompt() const { return sequence->request.prompt_logprobs && begin < sequence->prompt_tokens(); }
    };
    struct Sampled {
        Sequence* sequence;
        Token token;
        std::string error; // instead of a token
    };
    std::vector<Part> next_parts();
    uint32_t slice(const Sequence& sequence, uint32_t done, const BlockKernels& kernels) const;
    void run_again(const Part& part);
    void run_pass();
    void run_parts(std::vector<Part>& parts);
    void run_forward(std::vector<Part>& parts, std::vector<Sampled>& sampled);
    static bool all_cancelled(const std::vector<Part>& parts);
    bool goes_on(const std::vector<Part>& parts, uint32_t done);
    void run_apart(std::vector<Part>& parts);
    void count_prompt(Sequence& sequence, uint32_t end);
    void note_run(const Part& part);
    void note_pass(const std::vector<Part>& parts, uint64_t ns);
    void finish(Sequence& sequence, Finish finish, std::optional<Token> end = {});
    void fail(Sequence& sequence, const std::string& why, bool server_fault, std::exception_ptr exception = {});
    void leave(Sequence& sequence, bool end); // its slot
    void checkpoint(Sequence& sequence);
    void keep(Sequence& sequence, bool end);
    bool is_alone() const { return running_.size() == 1 && waiting_.empty(); }
    void warn(const std::string& warning) const {
        if (options_.warn) options_.warn(warning);
    }
    uint32_t position(const Sequence& sequence) const { return model_.forward->cache().position(*sequence.slot); }

    // answers.cpp
    void add_drafts(std::span<Part> parts, bool beside_prompts);
    std::optional<DraftRequest> draft_request(Part& part, const Speculation* speculation, bool beside_prompts);
    void begin_drafts(Sequence& sequence);
    void cut_draft(Part& part);
    void drop_drafts(std::span<const Part> parts);
    bool run_sampled(Sequence::Clock::time_point start);
    void sample(Part& part, uint32_t row, std::span<const float> logits, std::vector<Sampled>& sampled);
    Sampled sample(Sequence& sequence, std::span<const float> logits, std::span<const uint32_t> ids);
    void take(const Sampled& sampled);
    void tell_prompt(Sequence& sequence, uint32_t position, std::span<const float> logits);
    uint32_t take_sampled(Sequence& sequence, const std::vector<uint32_t>& ids);
    void add_token(Sequence& sequence, Token token);
    void note_values(Sequence& sequence, std::span<const float> values);
    void deliver_values(Sequence& sequence);
    bool is_end(const Sequence& sequence, uint32_t id) const {
        return !sequence.request.ignore_end && options_.is_end && options_.is_end(id);
    }

    // preemption.cpp
    bool make_room();
    bool forget_idle_slot(std::optional<uint32_t> kept = {});
    void preempt(Sequence& sequence);
    void save(Sequence& sequence);
    void recover(const Error& error);

    Model model_;
    const Reopen reopen_;
    const BatchOptions options_;
    List waiting_, running_; // in the order of their coming, and of their admission
    struct Slot {
        Sequence* sequence = nullptr;
        // Tokens that the last request left there, unless all of them are in a prefix cache.
        Content content{};
        std::string tenant{};
    };
    std::vector<Slot> slots_;
    uint64_t admissions_ = 0, saved_bytes_ = 0;
    uint32_t next_prompt_ = 0; // whose turn it is among the prompts
    uint32_t losses_ = 1;      // since a pass has succeeded; as if before the first pass there had been one
    bool drafts_ = true;       // the last pass with a draft did not fail
    uint32_t run_ids_ = 0;     // of the pass that runs, at the last call of goes_on()
    Pace pace_;
    Status totals_; // so far
};

} // namespace tq::serving
