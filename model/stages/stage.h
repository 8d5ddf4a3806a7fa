// A stage is a device's part of a model: some halves of its layers, with their weights and their part of the cache, and perhaps
// the head. The hidden state crosses between stages through host memory: h [rows][hidden_size], fp32. A stage that holds a whole
// model gets no h (an empty span): it begins with the ids of the rows, and keeps their hidden state until its next run.
#pragma once
#include "model/forward.h"
#include "model/pass_rows.h"
#include <algorithm>
#include <memory>

namespace tq {

// Limits of a stage's passes.
struct PassLimits {
    BlockKernels kernels;
    bool deterministic;         // all rows are separate
    uint32_t batch_size;        // rows of a block
    uint32_t short_block;       // blocks of at most this many rows have other kernels
    uint32_t max_separate_rows; // separate rows that kernels take at once, in a pass or the head
    uint32_t min_separate_rows; // fewer rows of a pass take hardly less time, so passes are not cut further
    uint32_t separate_room;     // separate rows per pass; larger than max_separate_rows if stages overlap passes
    uint32_t separate_slice;    // slices of at most this many ids run as separate rows, perhaps in several passes
    uint32_t max_block_spans;   // spans whose rows share a block
    uint32_t max_head_rows;     // rows of a block that the head takes at once
    uint32_t max_hidden_rows;   // rows of run_last_norm()

    // Returns the length of the next slice of a run with `left` tokens left.
    uint32_t slice(uint32_t left) const { return kernels.block == 0 ? std::min(batch_size, left) : kernels.slice(left); }
};

using KeepGoing = std::function<bool()>;

class Stage {
  public:
    virtual ~Stage() = default;

    // Returns how many of `max` rows of a block, of a span at `position`, a whole model runs at once, so that its device stays
    // responsive. A part of a model divides the rows itself.
    virtual uint32_t next_rows(uint32_t, uint32_t max) const { return max; }
    // Both run halves on the rows of a pass, in place in h. They return false if keep_going, which several threads may call and
    // which may be empty, stopped them; the rows then count for nothing.
    // Rows of a block. whole: rows of the complete block; kernels are chosen for that size, even if these rows are fewer.
    virtual bool run_block(HalfRange halves, const PassRows& rows, uint32_t whole, std::span<float> h,
                           const KeepGoing& keep_going) = 0;
    // Separate rows: each gets the bits that it gets alone. logits: null; or, of a whole model, gets the rows' logits
    // [rows][vocab_size], which are valid until the next run.
    virtual bool run_separate(HalfRange halves, const PassRows& rows, std::span<float> h, std::span<const float>* logits,
                              const KeepGoing& keep_going) = 0;
    // Both are for the stage that has the head. They return the logits [rows][vocab_size], or the states after the last norm
    // [rows][hidden_size], of these rows of h, or of a whole model's last pass; valid until the next run. separate: each row gets
    // the bits that it gets alone, as states always do.
    virtual std::span<const float> run_head(std::span<const uint32_t> rows, std::span<const float> h, bool separate) = 0;
    virtual std::span<const float> run_last_norm(std::span<const uint32_t> rows, std::span<const float> h) = 0;

    // For a whole model whose head for multi-token prediction is loaded. run_draft() runs that head on separate rows: the token
    // after a slot's tokens, at the slot's position, or, for a draft after drafts, at the next positions. It returns the logits
    // [rows][vocab_size] that follow, valid until the next run.
    virtual bool drafts() const { return false; }
    virtual std::span<const float> run_draft(const PassRows& rows, DraftIds ids);

    // For a whole model, as in Forward. run_ahead() runs the row and n - 1 tokens that the device samples after it, and returns
    // the sampled ids: fewer if logits are not finite. head: the head for multi-token prediction runs instead of the model, and
    // the ids are drafts; `sampling` then has one candidate, the most probable id.
    virtual uint32_t max_sampled() const { return 0; }
    virtual std::vector<uint32_t> run_ahead(const PassRows& row, uint32_t n, const DeviceSampling& sampling,
                                            std::optional<DraftIds> head);

    virtual PassLimits limits() const = 0;
    virtual std::string computation() const = 0; // as in Forward
    virtual void record_again() {}               // as in Forward
    // The vectors of the layers whose attention it holds. Pages are those of all layers.
    virtual CacheVectors& vectors() = 0;
};

// Makes a stage that holds options.held, of a model whose pages and slots are those of `cache`, which outlives it.
using MakeStage = std::function<std::unique_ptr<Stage>(const Cache& cache, const ForwardOptions& options)>;

} // namespace tq
