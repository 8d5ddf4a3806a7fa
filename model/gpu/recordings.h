// The recorded passes of a model: made on first use, then run for every block and token. A pass takes its rows (token, position,
// slot) and the page tables from a buffer that is written before each run.
#pragma once
#include "model/gpu/plan.h"
#include "model/gpu/run_ahead.h"
#include "model/gpu/steps.h"
#include <algorithm>
#include <compare>
#include <map>
#include <optional>

namespace tq::gpu {

class Recordings {
  public:
    // All arguments must outlive it; options with their batch size.
    Recordings(Device& device, const Config& config, const DeviceWeights& weights, const ForwardOptions& options,
               const Tuning& tuning, const KvCache& vectors, const Cache& cache);

    // Runs the layers on rows, at most options.batch_size of them; separate rows, at most max_separate_rows(), get the bits that
    // they get alone, and with_head: their logits, too. Returns whether it ran to its end.
    // `whole`: the rows of the block of which these are a part, whose kernels run.
    bool run_block(const PassRows& rows, uint32_t whole, const std::function<bool()>& keep_going);
    void run_separate(const PassRows& rows, bool with_head);
    // Computes the logits of rows of h as the last run left them: at most max_separate_rows(), with the bits of each alone, or up
    // to max_head_rows.
    void run_head(std::span<const uint32_t> rows, bool separate);
    static constexpr uint32_t max_head_rows = 32;
    // Computes the states after the last norm of rows of h as the last run left them: up to max_hidden_rows(). Each has the bits
    // that it has alone.
    void run_last_norm(std::span<const uint32_t> rows);
    uint32_t max_hidden_rows() const { return std::min(max_head_rows, options_.batch_size); }
    // Returns the logits of row i of the last run_head(), or run_separate() with its head, or the state of run_last_norm(); valid
    // until the next run.
    std::span<const float> computed(uint32_t i) const;

    // Runs n tokens from this row on, and samples each next one: RunAhead::run().
    std::vector<uint32_t> run_ahead(const PassRows& row, uint32_t n, const DeviceSampling& sampling);
    bool samples() const; // whether run_ahead() is available

    // Forgets the recordings, after a change of Device::profile.
    void forget();

  private:
    enum class Head { none, logits, hidden };
    // What a recording runs: rows of a block, or separate ones; layers, or the head, or both.
    struct Shape {
        uint32_t rows;
        bool separate, layers;
        Head head;
        auto operator<=>(const Shape&) const = default;
    };
    struct Recording {
        Taps taps;
        Commands commands;
    };
    struct Logits {
        std::optional<Buffer> values; // empty: scratch_.logits
        Buffer readback;
    };
    std::vector<Shape> draft_shapes() const;
    void prepare();
    Recording record(const Shape& shape);
    Recording& recorded(const Shape& shape);
    uint32_t block_rows(uint32_t rows) const;
    const Logits& logits_of(uint32_t rows);
    Buffer& hidden_readback();
    void set_computed(const Buffer& readback, uint32_t cols);
    void upload_tables();
    void write(const PassRows& rows);
    void run_rows(const Shape& shape, std::span<const uint32_t> rows);
    void upload(Recorder& recorder, uint64_t begin, uint64_t end) const; // of the context, in bytes
    void begin_step(Pass& pass, bool head) const;
    ForwardPass new_pass(Recorder& recorder, Taps& taps, const Shape& shape) const;
    Activations activations(const Buffer& logits) const;
    void record_token(ForwardPass& pass);

    Device& device_;
    const Config& config_;
    const ForwardOptions& options_;
    const Tuning& tuning_;
    const Cache& cache_;
    const std::vector<HeadNormBuffers> head_norms_;
    const Network net_;
    const ContextLayout layout_;
    const Buffer context_;
    const Scratch scratch_;
    const Buffer ids_, step_upload_, ids_upload_;
    std::map<uint32_t, Logits> logits_; // by their rows
    std::optional<Buffer> hidden_;      // states read back
    RunAhead run_ahead_;
    Step step_{};
    std::map<Shape, Recording> recordings_;
    uint64_t uploaded_tables_ = UINT64_MAX; // version of the tables
    std::span<const float> computed_;       // logits or states of the last run
    uint32_t computed_cols_ = 0;
};

} // namespace tq::gpu
