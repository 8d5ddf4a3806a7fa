// A stage on another rank, as rank 0 sees it: each call is a request over the transport.
#pragma once
#include "model/stages/ranks/stage_messages.h"
#include "model/stages/ranks/transport.h"
#include "model/stages/stage.h"

namespace tq {

// Rank 0's requests to one other rank.
class RankLink {
  public:
    // name: for errors: "rank 2 (node7: llvmpipe)".
    RankLink(Transport& transport, uint32_t rank, std::string name)
        : transport_(transport), rank_(rank), name_(std::move(name)) {}

    // Returns what follows the beginning of the reply. Throws Error, with the rank's name, if it failed there; RankLost.
    MessageReader ask(const MessageWriter& request);
    // The same in two steps, between which nothing else is asked.
    void post(const MessageWriter& request) { transport_.send(rank_, request.bytes()); }
    MessageReader reply();

    void end() noexcept; // the last request
    const std::string& name() const { return name_; }
    uint32_t next_stage() { return stages_++; }

  private:
    Transport& transport_;
    const uint32_t rank_;
    const std::string name_;
    uint32_t stages_ = 0;
};

// Asks the rank of `link` to make a stage that holds options.held. start() waits for it, and returns it. If start() is not
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
