// A device's part of a model: some halves of its layers, with their weights and their part of the cache, and perhaps the head.
// The hidden state crosses between stages through host memory: h [rows][hidden_size], fp32.
#pragma once
#include "model/span_run.h"
#include <memory>

namespace tq {

class Stage {
  public:
    virtual ~Stage() = default;

    // Run halves that it holds on the rows of a pass, in place in h: as a part of a block, `whole` rows of which choose the
    // kernels, and as separate rows (span_run.h). The former returns false where keep_going, which several threads may call,
    // stopped it.
    virtual bool run_block(HalfRange halves, const PassRows& rows, uint32_t whole, std::span<float> h,
                           const std::function<bool()>& keep_going) = 0;
    virtual void run_separate(HalfRange halves, const PassRows& rows, std::span<float> h) = 0;
    // Of the stage that has the head: return the logits of rows of h, and their states after the last norm; valid until the next
    // run of any kind.
    virtual std::span<const float> run_head(std::span<const float> h, bool separate) = 0;
    virtual std::span<const float> run_last_norm(std::span<const float> h) = 0;
    virtual PassLimits limits() const = 0;
    virtual std::string computation() const = 0; // Forward::computation()
    virtual void record_again() {}               // Forward::record_again()

    // Of the layers whose attention it holds: as those of Cache. Pages are those of all layers; the bytes of others are left
    // alone.
    virtual PageLayout page_layout() const = 0;
    virtual void read_page(uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const = 0;
    virtual void write_page(uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) = 0;
    virtual StoredSide stored(uint32_t slot, uint32_t layer, KvSide side) = 0;
    virtual void copy_page(uint32_t from, uint32_t to, uint32_t tokens) = 0;
    virtual void copy_window(uint32_t from, uint32_t to) = 0;
    virtual void repeat(uint32_t slot, uint32_t length, uint32_t to) = 0;
    // Names the first stored vector of a slot that is not finite.
    virtual std::optional<std::string> find_nonfinite(uint32_t slot) const = 0;
};

// Makes a stage that holds options.held, of a model whose pages and slots are those of `cache`, which outlives it.
using MakeStage = std::function<std::unique_ptr<Stage>(const Cache& cache, const ForwardOptions& options)>;

} // namespace tq
