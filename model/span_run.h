// Runs spans as passes over rows, for implementations whose kernels are chosen by the pass: blocks of a prompt, or separate rows.
#pragma once
#include "model/forward.h"
#include "model/pass_rows.h"

namespace tq {

// Runs passes over rows, and the head on rows that the last pass left.
class PassRunner {
  public:
    virtual ~PassRunner() = default;

    // Returns how many of `most` rows of a block, of a span at `position`, to run at once, so that devices stay responsive.
    virtual uint32_t next_rows(uint32_t position, uint32_t most) const = 0;
    // Runs the layers on rows of a block, `whole` of which choose the kernels. Returns false where it was stopped, and then the
    // rows count for nothing.
    virtual bool run_block(const PassRows& rows, uint32_t whole, const std::function<bool()>& keep_going) = 0;
    // Runs the layers on rows that get the bits that they get alone, and with_head: computes their logits, too.
    virtual void run_separate(const PassRows& rows, bool with_head) = 0;
    // Computes the logits, or the states after the last norm, of these rows of the last pass. separate: with the bits of each
    // alone, as states always have.
    virtual void run_head(std::span<const uint32_t> rows, bool separate) = 0;
    virtual void run_last_norm(std::span<const uint32_t> rows) = 0;
    // Returns the logits of row i of the last run_head(), or run_separate() with its head, or the state of run_last_norm(); valid
    // until the next run.
    virtual std::span<const float> computed(uint32_t i) const = 0;
};

// The most that a PassRunner takes at once.
struct PassLimits {
    BlockKernels kernels;
    bool deterministic;         // all rows are separate
    uint32_t batch_size;        // rows of a block
    uint32_t short_block;       // blocks up to this have other kernels
    uint32_t max_separate_rows; // with the kernels of separate rows at once: of a pass or the head
    uint32_t min_separate_rows; // of a pass: fewer take hardly less time, so that cutting them further does not pay
    uint32_t separate_room;     // separate rows of a pass, where several times max_separate_rows are run at the same time
    uint32_t max_block_spans;   // whose rows are in a block
    uint32_t max_head_rows;     // of blocks
    uint32_t max_hidden_rows;   // of run_last_norm()
};

// Names the first stored vector of a slot that is not finite, if any. Throws OutOfMemory where it cannot look.
using FindNonfinite = std::function<std::optional<std::string>(uint32_t slot)>;

// Forward::run() on passes.
bool run_spans(PassRunner& runner, const PassLimits& limits, Cache& cache, std::span<const Span> spans, const SpanLogits& each,
               const Progress& progress, const FindNonfinite& find_nonfinite);

// Takes slots back to positions `starts`, where the run began, and throws NonFinite.
[[noreturn]] void report_nonfinite(Cache& cache, std::span<const Cache::Need> starts, const FindNonfinite& find_nonfinite);

} // namespace tq
