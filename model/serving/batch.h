// The sequences that are answered together, and those that wait: admission to slots, passes, sampling, and giving way when pages
// run out. Without threads: scheduler.h has one that calls step().
#pragma once
#include "model/pace.h"
#include "model/serving/scheduler.h"
#include "model/serving/sequence.h"
#include <list>

namespace tq::serving {

class Batch {
  public:
    Batch(Scheduler::Model model, Scheduler::Open reopen, const Scheduler::Options& options);
    ~Batch();

    void add(std::unique_ptr<Sequence> sequence); // to those that wait
    bool idle() const { return waiting_.empty() && running_.empty(); }
    uint32_t waiting() const; // not those in the background
    // Drops what was cancelled, admits, and runs one pass.
    void step();
    // Fails everything.
    void fail_all(const std::string& why);

    // As PrefixCache::content(); nothing also if that fails.
    std::optional<std::vector<std::byte>> page_content(std::span<const uint32_t> ids, const std::string& tenant);

    Status status() const;
    Forward& forward() { return *model_.forward; }

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
    void place(Sequence& sequence, uint32_t slot);
    uint32_t reuse(Sequence& sequence, uint32_t slot);
    uint32_t fork(Sequence& sequence, uint32_t slot, uint32_t known);
    bool restore(Sequence& sequence, uint32_t slot);

    // batch.cpp
    struct Part { // of a pass: tokens of a sequence
        Sequence* sequence;
        uint32_t begin, end;
        bool wants_logits;

        bool tells_prompt() const { return sequence->request.prompt_logprobs && begin < sequence->prompt_tokens(); }
    };
    struct Sampled {
        Sequence* sequence;
        Token token;
        std::string error; // instead of a token
    };
    std::vector<Part> next_parts();
    void run_again(const Part& part);
    void run_pass();
    bool run_sampled();
    void run_parts(const std::vector<Part>& parts);
    void run_forward(const std::vector<Part>& parts, std::vector<Sampled>& sampled);
    void run_apart(const std::vector<Part>& parts);
    void note_run(const Part& part);
    Sampled sample(Sequence& sequence, std::span<const float> logits);
    void take(const Sampled& sampled);
    void tell_prompt(Sequence& sequence, uint32_t position, std::span<const float> logits);
    void take_sampled(Sequence& sequence, const std::vector<uint32_t>& ids);
    void add_token(Sequence& sequence, Token token);
    void finish(Sequence& sequence, Finish finish, std::optional<Token> end = {});
    void deliver_values(Sequence& sequence, std::span<const float> logits);
    void leave(Sequence& sequence, bool end); // its slot
    void checkpoint(Sequence& sequence);
    void keep(Sequence& sequence, bool end);
    uint32_t position(const Sequence& sequence) const { return model_.forward->cache().position(*sequence.slot); }

    // preemption.cpp
    bool make_room();
    void preempt(Sequence& sequence);
    void save(Sequence& sequence);
    void recover(const std::string& why);

    Scheduler::Model model_;
    const Scheduler::Open reopen_;
    const Scheduler::Options options_;
    List waiting_, running_; // in the order of their coming, and of their admission
    struct Slot {
        Sequence* sequence = nullptr;
        // Without a prefix cache: what the last request left there, and how much of it is cold.
        std::vector<uint32_t> ids;
        uint32_t cold = 0;
        std::string tenant;
    };
    std::vector<Slot> slots_;
    uint64_t admissions_ = 0, saved_bytes_ = 0;
    uint32_t next_prompt_ = 0; // whose turn it is among the prompts
    bool proved_ = false;      // a pass has succeeded since the device was opened
    Pace pace_;
    Status totals_; // so far
};

} // namespace tq::serving
