// Separate rows in groups, and blocks in slices, that pass the devices at the same time: with the numbers of one group or slice,
// and errors of any of them.
#include "base/error.h"
#include "model/stages/pipeline.h"
#include "tests/support/small_model.h"
#include "tests/support/toy_vectors.h"
#include <atomic>
#include <doctest/doctest.h>

using namespace tq;

namespace {

// Records what the devices are asked for.
struct Watched {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::vector<uint32_t>> groups; // of each device, in the order of their beginning: the slot of their first row
    std::vector<std::vector<uint32_t>> slices; // for each device, the position of their first row
    bool meets = false;                        // device 1 begins with nothing before device 0 has begun a second group or slice
    uint32_t failing = UINT32_MAX;             // the device that cannot run slot 3, or slot 0 after position 5
    std::atomic<bool> lingers = false;         // device 1 ends no slice before it is stopped
    uint32_t rows_at_once = 0;                 // the most that came in one call

    // Notes what a device begins with. The first on device 1, and the second on device 0, wait for each other.
    void begin(std::vector<std::vector<uint32_t>>& begun, uint32_t device, uint32_t first) {
        std::unique_lock lock(mutex);
        begun[device].push_back(first);
        changed.notify_all();
        if (!meets || begun[device].size() != 2 - device) return;
        const auto met = [&] { return begun[0].size() >= 2 && begun[1].size() >= 1; };
        meets = changed.wait_for(lock, std::chrono::seconds(60), met); // or none does
        CHECK(meets);
    }
};

class ToyStage final : public Stage {
  public:
    ToyStage(Watched& watched, uint32_t device, const Config& config) : watched_(watched), device_(device), config_(config) {}

    bool run_block(HalfRange halves, const PassRows& rows, uint32_t, std::span<float> h, const KeepGoing& keep_going) override {
        for (int ms = 0; device_ == 1 && watched_.lingers; ms++) {
            if (!keep_going() || ms == 60'000) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        watched_.begin(watched_.slices, device_, rows.rows[0].position);
        compute(halves, rows, h);
        return true;
    }
    bool run_separate(HalfRange halves, const PassRows& rows, std::span<float> h, std::span<const float>*,
                      const KeepGoing&) override {
        watched_.begin(watched_.groups, device_, rows.rows[0].slot);
        {
            const std::lock_guard lock(watched_.mutex);
            watched_.rows_at_once = std::max(watched_.rows_at_once, rows.count());
        }
        compute(halves, rows, h);
        return true;
    }
    std::span<const float> run_head(std::span<const uint32_t> rows, std::span<const float> h, bool) override {
        const size_t cols = config_.hidden_size, vocabulary = config_.vocab_size;
        results_.assign(rows.size() * vocabulary, 0);
        for (size_t i = 0; i < results_.size(); i++)
            results_[i] = h[rows[i / vocabulary] * cols + i % cols] + float(i % vocabulary);
        return results_;
    }
    std::span<const float> run_last_norm(std::span<const uint32_t> rows, std::span<const float> h) override {
        results_.clear();
        for (const uint32_t row : rows) {
            const auto state = h.subspan(row * config_.hidden_size, config_.hidden_size);
            results_.insert(results_.end(), state.begin(), state.end());
        }
        return results_;
    }
    PassLimits limits() const override { return {}; }
    std::string computation() const override { return ""; }
    CacheVectors& vectors() override { return vectors_; }

  private:
    void compute(HalfRange halves, const PassRows& rows, std::span<float> h) const {
        for (uint32_t i = 0; i < rows.count(); i++) {
            const PassRow& row = rows.rows[i];
            if (device_ == watched_.failing && (row.slot == 3 || (row.slot == 0 && row.position > 5)))
                fail("device {} is lost", device_);
            for (float& value : h.subspan(i * config_.hidden_size, config_.hidden_size))
                value = value * 0.5f + float(halves.begin + 10 * row.slot + 100 * row.position + rows.ids[i]);
        }
    }

    Watched& watched_;
    const uint32_t device_;
    const Config& config_;
    std::vector<float> results_;
    ToyVectors vectors_;
};

// Two layers on two devices; the first has the head.
struct Toys {
    const SmallModel model;
    Watched watched;
    const Split split{{0, 0, 1, 1, 0}, 2};
    PassLimits limits{};

    explicit Toys(uint32_t slice) : Toys(1, 4) { limits.kernels.block = slice; }
    Toys(uint32_t min, uint32_t max) {
        watched.groups.resize(2);
        watched.slices.resize(2);
        limits.min_separate_rows = min;
        limits.max_separate_rows = max;
    }
    std::unique_ptr<Pipeline> open() {
        Pipeline::Stages stages;
        for (uint32_t device = 0; device < 2; device++)
            stages.push_back(std::make_unique<ToyStage>(watched, device, model.config));
        return std::make_unique<Pipeline>(model.config, model.weights.token_embd, split, std::move(stages), limits, limits,
                                          Tap());
    }
};

constexpr HalfRange both_layers{0, 4};

// A row of each slot, each at another position.
PassRows rows_of(uint32_t slots) {
    PassRows rows;
    for (uint32_t slot = 0; slot < slots; slot++) {
        const uint32_t id = 7 + slot;
        rows.add(slot, 5 * slot, {&id, 1}, 0, true);
    }
    return rows;
}

std::vector<float> logits_of(Pipeline& pipeline, uint32_t slots) {
    std::span<const float> logits;
    const bool ran = pipeline.run_separate(both_layers, rows_of(slots), {}, &logits, {});
    CHECK(ran);
    return {logits.begin(), logits.end()};
}

// The logits of all tokens of a block of one slot.
std::vector<float> logits_of_block(Pipeline& pipeline, uint32_t tokens, const std::function<bool()>& keep_going = {}) {
    std::vector<uint32_t> ids(tokens), all_rows(tokens);
    for (uint32_t i = 0; i < tokens; i++) ids[i] = 7 + i, all_rows[i] = i;
    PassRows rows;
    rows.add(0, 0, ids, 0, false);
    if (!pipeline.run_block(both_layers, rows, tokens, {}, keep_going)) return {};
    const std::span<const float> logits = pipeline.run_head(all_rows, {}, false);
    return {logits.begin(), logits.end()};
}

} // namespace

TEST_CASE("groups of separate rows are on all devices at the same time, with the numbers of one group") {
    for (const uint32_t slots : {1u, 2u, 5u, 8u, 20u}) {
        CAPTURE(slots);
        Toys whole(64, 64), cut(1, 4);
        const auto one = whole.open(), groups = cut.open();
        const std::vector<float> wanted = logits_of(*one, slots);
        CHECK(whole.watched.groups == std::vector<std::vector<uint32_t>>{{0}, {0}});
        cut.watched.meets = slots > 1;
        CHECK(logits_of(*groups, slots) == wanted);
        CHECK(cut.watched.groups[0].size() == std::max(std::min(slots, 2u), (slots + 3) / 4));
        CHECK(std::ranges::is_sorted(cut.watched.groups[1]));
        CHECK(cut.watched.rows_at_once <= 4);
        const std::vector last_row{slots - 1};
        groups->run_separate(both_layers, rows_of(slots), {}, nullptr, {});
        one->run_separate(both_layers, rows_of(slots), {}, nullptr, {});
        CHECK(std::ranges::equal(groups->run_last_norm(last_row, {}), one->run_last_norm(last_row, {})));
    }
}

TEST_CASE("rows that a device takes at no cost stay together") {
    Toys toys(8, 8);
    const auto pipeline = toys.open();
    logits_of(*pipeline, 8);
    CHECK(toys.watched.groups[0].size() == 1);
    logits_of(*pipeline, 9);
    CHECK(toys.watched.groups[0].size() == 3); // and two more, since one pass takes eight
}

TEST_CASE("an error in a group ends the pass, and the next one runs") {
    for (const uint32_t device : {0u, 1u}) {
        Toys toys(1, 4);
        const auto pipeline = toys.open();
        const std::vector<float> wanted = logits_of(*pipeline, 12);
        toys.watched.failing = device;
        CHECK_THROWS_AS(logits_of(*pipeline, 12), Error);
        toys.watched.failing = UINT32_MAX;
        CHECK(logits_of(*pipeline, 12) == wanted);
    }
}

TEST_CASE("slices of a block are on both devices at the same time, in order, with the numbers of one slice") {
    using Positions = std::vector<std::vector<uint32_t>>;
    Toys whole(64), cut(4);
    const auto one = whole.open(), several = cut.open();
    const std::vector<float> wanted = logits_of_block(*one, 18);
    CHECK(whole.watched.slices == Positions{{0}, {0}});
    cut.watched.meets = true; // in each block anew
    for (int block = 0; block < 3; block++) {
        cut.watched.slices = Positions(2);
        CHECK(logits_of_block(*several, 18) == wanted);
        CHECK(cut.watched.slices == Positions{{0, 4, 8, 12, 16}, {0, 4, 8, 12, 16}});
    }
}

TEST_CASE("an error in a slice, or a stop between slices, ends the block, and the next one runs") {
    Toys toys(4);
    const auto pipeline = toys.open();
    const std::vector<float> wanted = logits_of_block(*pipeline, 12);
    for (const uint32_t device : {0u, 1u}) {
        toys.watched.failing = device;
        CHECK_THROWS_AS(logits_of_block(*pipeline, 12), Error);
        toys.watched.failing = UINT32_MAX;
        CHECK(logits_of_block(*pipeline, 12) == wanted);
    }
    toys.watched.lingers = true;
    CHECK(logits_of_block(*pipeline, 12, [] { return false; }).empty());
    toys.watched.lingers = false;
    CHECK(logits_of_block(*pipeline, 12) == wanted);
}
