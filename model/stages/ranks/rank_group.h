// A model on several ranks. Each has some of its layers; rank 0 has the first ones, the head, and the bookkeeping of the cache.
#pragma once
#include "model/stages/ranks/remote_stage.h"
#include "model/stages/ranks/stage_host.h"
#include "model/stages/split.h"
#include "model/weights/weights.h"
#include <map>

namespace tq {

// Facts that a rank reports about itself.
struct RankFacts {
    std::string host, device;
    uint64_t available_bytes = 0; // of memory for its part
    uint32_t batch_size = 0;      // of its device's blocks
    // Facts that must be equal on all ranks: "version", "model" and so on, for people.
    std::map<std::string, std::string> agreed = {};
};

// A rank other than 0 sends its facts, or why it cannot take part, before it hosts stages.
void join(Transport& transport, const RankFacts& facts);
void refuse_to_join(Transport& transport, const std::string& why);

// Layers of each rank: as in `counts`, whose sum must be the number of layers; throws Error if it is not. Empty: in proportion to
// the ranks' memory; rank 0 has the head, too.
std::vector<uint32_t> divide_layers(const Weights& weights, std::span<const uint32_t> counts, std::span<const RankFacts> ranks);
// The split with these layers on each rank.
Split split_of_ranks(std::span<const uint32_t> layers);

class RankGroup {
  public:
    // On rank 0, waits for the others. Throws Error, with all that differs, if they do not agree with `own`, or one cannot take
    // part; RankLost.
    RankGroup(Transport& transport, RankFacts own);
    ~RankGroup(); // ends the job

    uint32_t size() const { return uint32_t(facts_.size()); }
    std::span<const RankFacts> facts() const { return facts_; }
    std::string name(uint32_t rank) const; // "rank 1 (node7, llvmpipe)"
    uint32_t batch_size() const;           // that suits all

    // `own` is rank 0's part. The arguments must outlive the result. options.batch_size: of slices; not 0. Throws Error, with the
    // rank's name.
    std::unique_ptr<Forward> make_forward(const Config& config, const Weights& weights, const ForwardOptions& options,
                                          const Split& split, const MakeStage& own);
    // The plan of each rank, made by itself.
    std::vector<MemoryPlan> plans(const RankModel& own, const ForwardOptions& options, const Split& split);

  private:
    std::vector<RankFacts> facts_;
    std::vector<std::unique_ptr<RankLink>> links_; // to rank i + 1
};

// Ends the job of a transport whose ranks have not become a group.
void end_job(Transport& transport) noexcept;

} // namespace tq
