// A stage whose time is measured.
#pragma once
#include "model/stages/stage.h"
#include <atomic>

namespace tq {

// Adds the nanoseconds of its passes, the head's included, and their rows. The counters must outlive the result.
std::unique_ptr<Stage> meter_stage(std::unique_ptr<Stage> stage, std::atomic<uint64_t>& ns, std::atomic<uint64_t>& rows);

} // namespace tq
