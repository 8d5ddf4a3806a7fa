// A model whose parts are on several stages. A pass goes through the parts in order. While one stage works on it the others would
// wait, so a block is cut into slices that follow each other: a slice enters a part when the slice before has left it, and each
// device has a thread that takes the next slice that is ready for it. Separate rows are cut into groups in the same way, if a
// pass takes longer for more of them (PassLimits::min_separate_rows). If the weights of a part are uploaded for each block
// (Split::stream_rows), all slices pass it before its device begins with the next part, so that the weights come once.
#pragma once
#include "base/ensure.h"
#include "model/config.h"
#include "model/stages/split.h"
#include "model/stages/stage.h"
#include "model/weights/tensor.h"
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace tq {

// The vectors of a model that is divided among stages. Each stage has those of its layers; a device without a part has null.
// Every request goes to all, and each touches the layers that it holds.
class SplitVectors final : public CacheVectors {
  public:
    // Both must outlive it.
    SplitVectors(const Split& split, const std::vector<std::unique_ptr<Stage>>& stages) : split_(split), stages_(stages) {}

    PageLayout page_layout() const override { return first().page_layout(); }
    uint64_t state_bytes() const override { return first().state_bytes(); }
    StoredSide stored(uint32_t slot, uint32_t layer, KvSide side) const override {
        ENSURE(layer < split_.layers(), "layer {} of {}", layer, split_.layers());
        return stages_[split_.device_of(attention_of(layer))]->vectors().stored(slot, layer, side);
    }
    std::optional<std::string> find_nonfinite(uint32_t slot) const override {
        for (const auto& stage : stages_)
            if (auto where = stage ? stage->vectors().find_nonfinite(slot) : std::nullopt) return where;
        return std::nullopt;
    }

    void read_page(uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const override {
        each(&CacheVectors::read_page, page, tokens, bytes);
    }
    void write_page(uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) override {
        each(&CacheVectors::write_page, page, tokens, bytes);
    }
    void copy_page(uint32_t from, uint32_t to, uint32_t tokens) override { each(&CacheVectors::copy_page, from, to, tokens); }
    void copy_window(uint32_t from, uint32_t to) override { each(&CacheVectors::copy_window, from, to); }
    void read_window(uint32_t slot, uint32_t first, uint32_t tokens, std::span<std::byte> bytes) const override {
        each(&CacheVectors::read_window, slot, first, tokens, bytes);
    }
    void write_window(uint32_t slot, uint32_t first, uint32_t tokens, std::span<const std::byte> bytes) override {
        each(&CacheVectors::write_window, slot, first, tokens, bytes);
    }
    void repeat(uint32_t slot, uint32_t length, uint32_t to) override { each(&CacheVectors::repeat, slot, length, to); }
    void read_state(uint32_t slot, uint32_t tokens, std::span<std::byte> bytes) const override {
        each(&CacheVectors::read_state, slot, tokens, bytes);
    }
    void write_state(uint32_t slot, uint32_t tokens, std::span<const std::byte> bytes) override {
        each(&CacheVectors::write_state, slot, tokens, bytes);
    }
    void settle_state(uint32_t slot, uint32_t settled, uint32_t tokens) override {
        each(&CacheVectors::settle_state, slot, settled, tokens);
    }
    void copy_state(uint32_t from, uint32_t to) override { each(&CacheVectors::copy_state, from, to); }
    void clear_state(uint32_t slot) override { each(&CacheVectors::clear_state, slot); }

  private:
    CacheVectors& first() const { return stages_[split_.device_of(0)]->vectors(); }
    template <class Member, class... Arguments> void each(Member member, Arguments... arguments) const {
        for (const auto& stage : stages_)
            if (stage) (stage->vectors().*member)(arguments...);
    }

    const Split& split_;
    const std::vector<std::unique_ptr<Stage>>& stages_;
};

// A whole model whose parts are other stages.
class Pipeline final : public Stage {
  public:
    using Stages = std::vector<std::unique_ptr<Stage>>;
    // stages: one for each device of `split`; null if it has no part. token_embd must outlive this. slice_limits: what all stages
    // can take; limits: those of a block of several slices.
    Pipeline(const Config& config, const Tensor& token_embd, Split split, Stages stages, const PassLimits& slice_limits,
             const PassLimits& limits, Tap tap);
    ~Pipeline() override;

    bool run_block(HalfRange halves, const PassRows& rows, uint32_t whole, std::span<float> h,
                   const KeepGoing& keep_going) override;
    bool run_separate(HalfRange halves, const PassRows& rows, std::span<float> h, std::span<const float>* logits,
                      const KeepGoing& keep_going) override;
    std::span<const float> run_head(std::span<const uint32_t> rows, std::span<const float> h, bool separate) override;
    std::span<const float> run_last_norm(std::span<const uint32_t> rows, std::span<const float> h) override;
    PassLimits limits() const override { return limits_; }
    std::string computation() const override;
    void record_again() override;
    CacheVectors& vectors() override { return vectors_; }

  private:
    // A slice, or a group of separate rows, on its way.
    struct Flight {
        PassRows rows;
        std::span<float> h;
        size_t next = 0; // part, or after them the head
        bool running = false;
    };
    void embed(const PassRows& rows);
    std::vector<Flight> slices_of(const PassRows& rows);
    std::vector<Flight> groups_of(const PassRows& rows);
    bool run_in_turn(const KeepGoing& keep_going);
    bool run_at_once(const KeepGoing& keep_going);
    const std::vector<Part>& parts() const { return streaming_ ? streamed_parts_ : parts_; } // of the block
    size_t steps() const { return parts().size() + (with_head_ ? 1 : 0); }
    uint32_t device_of(size_t step) const;
    void run_head_of(const Flight& group);
    bool run_part(Flight& flight, const KeepGoing& keep_going);
    bool is_ready(size_t flight, uint32_t device) const;
    Flight* ready(uint32_t device);
    bool finished() const;
    void work(uint32_t device);
    Stage& head_stage() const { return *stages_[split_.device_of_head()]; }

    const Config config_;
    const Tensor& token_embd_;
    const Split split_;
    const std::vector<Part> parts_, streamed_parts_;
    const Stages stages_;
    SplitVectors vectors_;
    const PassLimits slice_limits_, limits_;
    const Tap tap_;
    std::vector<float> h_, logits_; // of all groups
    std::vector<std::byte> scratch_;

    std::mutex mutex_; // of what follows, which the workers share
    std::condition_variable changed_;
    std::vector<Flight> flights_;
    uint32_t whole_ = 0;
    bool separate_ = false, with_head_ = false; // groups of separate rows, whose logits are wanted
    bool streaming_ = false, stopped_ = false, ending_ = false;
    std::exception_ptr error_;
    std::vector<std::thread> workers_; // one per stage, from the first block of several slices on
};

} // namespace tq
