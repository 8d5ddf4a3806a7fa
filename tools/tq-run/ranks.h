// A job of several processes that MPI started, its ranks, which share a model (--layers-per-rank).
#pragma once
#include "model/ranks/parts.h"
#include "model/ranks/rank_group.h"
#include "tools/tq-run/engine.h"
#include <optional>

namespace tq {

// On ranks other than 0 of a job that shares a model, has their part of it until rank 0 ends the job, and returns the exit
// status. Nothing on rank 0, and where there is no such job. Commands that share a model call it before anything else.
std::optional<int> run_as_rank(const ModelArguments& arguments);

// Where MPI has started several processes without --layers-per-rank: they share a measurement, each with the whole model.
// Commands that measure independent parts call it before anything else.
class MeasurementRanks {
  public:
    explicit MeasurementRanks(const ModelArguments& arguments);

    bool is_first() const { return !transport_ || transport_->rank() == 0; } // which prints what was measured
    // Runs a command. On the other ranks its errors are rank 0's to report.
    int run(const std::function<int()>& command);
    // Compares what must be equal on all ranks, `also` included; `setup` then names all devices. Throws Error.
    void agree(Setup& setup, std::map<std::string, std::string> also);
    // measure_parts() on the first rank, else serve_parts() until the job ends.
    void measure(uint32_t first, uint32_t end, const MeasurePart& measure, const TakePart& take, const OrderPart& order = {});

  private:
    Transport* transport_ = nullptr; // null: this process alone
    bool joined_ = false;
};

// On rank 0, waits for the others, and sets them in `setup`. Throws Error, where they do not agree with it, or one cannot take
// part.
void share_with_ranks(Setup& setup);

// The device of --device for this rank: of a list the one with its number, else the one name; the whole list without a job.
// Throws UsageError where the list is not as long as the job has ranks, and where the command has not called run_as_rank().
std::string own_device(const PlacementArguments& placement, const std::string& devices);

// Ends the job, when nothing uses the ranks any more.
void leave_job();

} // namespace tq
