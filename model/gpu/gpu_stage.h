// A Vulkan device as a Stage: its weights, its part of the cache, and its recorded passes, which are run for every block and
// token. Recordings of passes that are certain to come are made with the stage, others on first use. A pass takes its rows
// (token, position, slot) and the page tables from a buffer that is written before each run. If the device holds only some of the
// halves, the hidden state h comes from the host and goes back there. stage.cpp has what the stage is made of and run_block(),
// recordings.cpp the other passes, run_ahead.cpp sampled tokens.
#pragma once
#include "model/gpu/block_pace.h"
#include "model/gpu/plan.h"
#include "model/gpu/steps.h"
#include "model/gpu/weight_stream.h"
#include "model/halves.h"
#include "model/stages/stage.h"
#include <compare>
#include <map>
#include <optional>

namespace tq::gpu {

class GpuStage final : public Stage {
  public:
    // options with their batch size. stream: brings the weights of networks that are not here; null if nothing is streamed.
    // `device` and `cache` must outlive it. layer_seconds: of BlockPace.
    GpuStage(Device& device, const Config& config, std::shared_ptr<const DeviceWeights> weights,
             std::unique_ptr<WeightStream> stream, const Cache& cache, const ForwardOptions& options, const Tuning& tuning,
             std::optional<double> layer_seconds);

    static constexpr uint32_t max_head_rows = 32;

    uint32_t next_rows(uint32_t position, uint32_t max) const override { return pace_.next(position, max); }
    bool run_block(HalfRange halves, const PassRows& rows, uint32_t whole, std::span<float> h,
                   const KeepGoing& keep_going) override;
    bool run_separate(HalfRange halves, const PassRows& rows, std::span<float> h, std::span<const float>* logits,
                      const KeepGoing& keep_going) override;
    std::span<const float> run_head(std::span<const uint32_t> rows, std::span<const float> h, bool separate) override {
        return run_head(Head::logits, rows, h, separate);
    }
    std::span<const float> run_last_norm(std::span<const uint32_t> rows, std::span<const float> h) override {
        return run_head(Head::hidden, rows, h, true);
    }
    bool drafts() const override { return net_.mtp.has_value(); }
    std::span<const float> run_draft(const PassRows& rows, DraftIds ids) override;
    uint32_t max_sampled() const override { return options_.held.all() && samples() ? SAMPLING_STEPS : 0; }
    std::vector<uint32_t> run_ahead(const PassRows& row, uint32_t n, const DeviceSampling& sampling,
                                    std::optional<DraftIds> head) override;
    PassLimits limits() const override;
    std::string computation() const override;
    void record_again() override;
    CacheVectors& vectors() override { return vectors_; }

  private:
    enum class Head { none, logits, hidden, draft, draft_likely };
    // A recording's content: rows of a block, or separate ones; halves, or the head, or both, or a draft. A recording for a part
    // of a block has the kernels of the whole.
    struct Shape {
        uint32_t rows;
        bool separate;
        HalfRange halves;
        Head head;
        uint32_t block = 0; // the rows of the whole
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
    // The hidden state of a batch, on its way between the host and a device that holds some halves.
    struct Crossing {
        Buffer upload, readback;
    };
    HalfRange all_halves() const { return {0, head_half(config_.num_hidden_layers)}; }
    bool is_whole(HalfRange halves) const { return !hidden_crossing_ && !halves.empty(); }
    std::vector<Shape> first_shapes() const;
    std::vector<Shape> streamed_shapes() const;
    void prepare();
    void record_steps(ForwardPass& pass, const Shape& shape);
    Recording record(const Shape& shape);
    Recording& recorded(const Shape& shape);
    Shape shape_of_block(HalfRange halves, uint32_t rows, uint32_t whole) const;
    uint32_t max_hidden_rows() const { return std::min(max_head_rows, options_.batch_size); }
    const Logits& logits_of(uint32_t rows);
    Buffer& hidden_readback();
    void upload_tables();
    void write(const PassRows& rows);
    std::span<const float> run_head(Head head, std::span<const uint32_t> rows, std::span<const float> h, bool separate);
    void upload(Recorder& recorder, uint64_t begin, uint64_t end) const; // of the context, in bytes
    void begin_step(Pass& pass, HalfRange halves, Head head) const;
    static bool gives_logits(Head head) { return head == Head::logits || is_draft(head); }
    static bool is_draft(Head head) { return head == Head::draft || head == Head::draft_likely; }
    void take_hidden(std::span<const float> h);
    std::vector<uint32_t> take_rows(std::span<const uint32_t> rows, std::span<const float> h);
    void give_hidden(std::span<float> h) const;
    bool run(const Shape& shape, const PassRows& rows, const KeepGoing& keep_going = {});
    bool run_rows(HalfRange halves, const PassRows& rows, uint32_t whole, std::span<float> h, const KeepGoing& keep_going);
    void settle(uint32_t slot, uint32_t settled, uint32_t tokens); // CacheVectors::settle_state()
    ForwardPass new_pass(Recorder& recorder, Taps& taps, const Shape& shape) const;
    Activations activations(const Buffer& logits) const;
    void record_halves(ForwardPass& pass, HalfRange halves, const Activations& x) const;

    // run_ahead.cpp
    // A step that runs ahead: a token that is sampled from few candidates or from any number, or a draft, from all ids or from
    // the likely ones.
    enum class Ahead { token_of_few, token_of_many, draft, likely_draft };
    struct AheadCommands {
        Commands begin, begin_with_uses, end; // begin_with_uses also uploads the uses of tokens, for penalties
        std::map<Ahead, Commands> steps;
    };
    bool samples() const; // whether the device samples tokens
    void sample_next(Pass& pass, Ahead step) const;
    void record_ahead(Ahead step);
    void write_sampling(const DeviceSampling& sampling);

    Device& device_;
    const Config config_;
    const ForwardOptions options_;
    const Tuning tuning_;
    const Cache& cache_;
    const std::shared_ptr<const DeviceWeights> weights_;
    const std::unique_ptr<WeightStream> stream_;
    const DeviceStorage storage_;
    DeviceVectors vectors_;
    const std::vector<HeadNormBuffers> head_norms_;
    const Network net_;
    const ContextLayout layout_;
    const Buffer context_;
    const Scratch scratch_;
    const Buffer ids_, step_upload_, ids_upload_;
    const std::optional<Crossing> hidden_crossing_; // empty: the device holds all halves
    const Buffer sampling_upload_, sampled_readback_;
    std::map<uint32_t, Logits> logits_; // by their rows
    std::optional<Buffer> hidden_;      // states read back
    BlockPace pace_;
    Step step_{};
    std::map<Shape, Recording> recordings_;
    std::optional<AheadCommands> ahead_;
    uint64_t uploaded_tables_ = UINT64_MAX; // version of the tables
};

} // namespace tq::gpu
