// Passes through the stages of a model. A block is cut into slices, which follow each other through the stages, so that all of
// them work at the same time; a slice enters a part once the one before has left it. Separate rows are cut into groups likewise,
// where a pass takes longer for more of them. Where the weights of a part come for each
// block (Split::stream_rows), all slices pass it before a device begins with the next.
#pragma once
#include "model/config.h"
#include "model/stages/split.h"
#include "model/stages/stage.h"
#include "model/weights/tensor.h"
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace tq {

class Pipeline final : public PassRunner {
  public:
    // A stage for each device of `split`; null where it has nothing. All arguments must outlive it. slice_limits: those that all
    // stages have in common.
    Pipeline(const Config& config, const Tensor& token_embd, const Split& split,
             const std::vector<std::unique_ptr<Stage>>& stages, const PassLimits& slice_limits, const Tap& tap);
    ~Pipeline() override;

    uint32_t next_rows(uint32_t, uint32_t most) const override { return most; } // stages divide a slice themselves
    bool run_block(const PassRows& rows, uint32_t whole, const std::function<bool()>& keep_going) override;
    void run_separate(const PassRows& rows, bool with_head) override;
    void run_head(std::span<const uint32_t> rows, bool separate) override;
    void run_last_norm(std::span<const uint32_t> rows) override;
    std::span<const float> computed(uint32_t i) const override;

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
    bool run_in_turn(const std::function<bool()>& keep_going);
    bool run_at_once(const std::function<bool()>& keep_going);
    const std::vector<Part>& parts() const { return streaming_ ? streamed_parts_ : parts_; } // of the block
    size_t steps() const { return parts().size() + (with_head_ ? 1 : 0); }
    uint32_t device_of(size_t step) const;
    void run_head_of(const Flight& group);
    bool run_part(Flight& flight, const std::function<bool()>& keep_going);
    bool is_ready(size_t flight, uint32_t device) const;
    Flight* ready(uint32_t device);
    bool finished() const;
    void work(uint32_t device);
    std::span<const float> gather(std::span<const uint32_t> rows);
    Stage& head_stage() const { return *stages_[split_.device_of_head()]; }

    const Config& config_;
    const Tensor& token_embd_;
    const Split& split_;
    const std::vector<Part> parts_, streamed_parts_;
    const std::vector<std::unique_ptr<Stage>>& stages_;
    const PassLimits& slice_limits_;
    const Tap& tap_;
    std::vector<float> h_, head_h_, logits_; // logits_: of all groups
    std::vector<std::byte> scratch_;
    std::span<const float> computed_;
    uint32_t computed_cols_ = 0;

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
