// A stage on another rank, as rank 0 sees it: each call is a request over the transport.
#pragma once
#include "model/ranks/stage_messages.h"
#include "model/ranks/transport.h"
#include "model/stages/stage.h"
#include <atomic>
#include <mutex>

namespace tq {

// The time that a rank has computed, and the bytes that it and rank 0 have sent each other.
struct RankUse {
    uint64_t busy_ns = 0, sent_bytes = 0, received_bytes = 0;
    uint64_t rows = 0; // of its passes: tokens

    RankUse since(const RankUse& before) const {
        return {busy_ns - before.busy_ns, sent_bytes - before.sent_bytes, received_bytes - before.received_bytes,
                rows - before.rows};
    }
};

// Rank 0's requests to one other rank.
class RankLink {
  public:
    // name: for errors: "rank 2 (node7: llvmpipe)".
    RankLink(Transport& transport, uint32_t rank, std::string name)
        : transport_(transport), rank_(rank), name_(std::move(name)) {}

    // Returns what follows the beginning of the reply. rows: of a pass, whose time is counted. Throws Error, with the rank's
    // name, where it failed there; RankLost.
    MessageReader ask(const MessageWriter& request, uint32_t rows = 0);
    // The same in two steps, between which nothing else is asked.
    void post(const MessageWriter& request);
    MessageReader reply(uint32_t rows = 0);

    void end() noexcept; // the last request
    RankUse use() const;
    const std::string& name() const { return name_; }
    uint32_t next_stage() { return stages_++; }

  private:
    Transport& transport_;
    const uint32_t rank_;
    const std::string name_;
    mutable std::mutex mutex_;
    RankUse use_;
    uint32_t stages_ = 0;
};

// Asks the rank of `link` to make a stage that holds options.held. start() waits for it, and returns it. Where that is not
// called, the stage is dropped.
class StageOrder {
  public:
    StageOrder(RankLink& link, const Config& config, const ForwardOptions& options);
    ~StageOrder();
    StageOrder(const StageOrder&) = delete;
    StageOrder& operator=(const StageOrder&) = delete;

    std::unique_ptr<Stage> start(const Cache& cache);

  private:
    RankLink& link_;
    const Config& config_;
    const ForwardOptions options_;
    const uint32_t number_;
    bool started_ = false;
};

} // namespace tq
