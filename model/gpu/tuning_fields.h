// The fields of a Tuning that are measured, and their values. A new field of KernelChoices gets a line in tuning_fields.cpp: it
// is then tuned, stored, checked when it is read back, and shown.
#pragma once
#include "model/gpu/tuning.h"
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace tq::gpu {

struct TuningField {
    const char* name;
    std::variant<uint32_t Tuning::*, bool Tuning::*> member;
    std::vector<uint32_t> values; // that it may have, besides the default; for a bool 0 and 1

    uint32_t get(const Tuning& tuning) const;
    void set(Tuning& tuning, uint32_t value) const;
};

// The workload by which a choice is measured.
enum class Workload {
    token,       // one token at a small depth
    whole_token, // the same by the wall clock, which includes the time between kernels
    deep_token,  // one at a great depth
    prompt,      // a block of a prompt
    deep_prompt, // one at a great depth
    long_prompt, // several blocks; by the wall clock, which includes the time between blocks
};

// Fields that depend on each other, and are measured by one workload.
struct TuningGroup {
    const char* name;
    Workload workload;
    double share; // of the time for tuning, relative to the other groups
    std::vector<TuningField> fields;
};

// Returns the groups in the order in which they are tuned.
std::span<const TuningGroup> tuning_groups();

// Returns the fields of all groups.
std::vector<TuningField> tuning_fields();

// Returns the value of Tuning::weight_interleave if it is not 1: the rows of a matrix that a workgroup of matvec computes at a
// time, or a divisor of that number if it is large.
uint32_t interleaved_rows(const Tuning& tuning);

// Returns the reason why `tuning` must not be used on `device`; empty if it can. Every field must have one of its values or the
// default, and every kernel's workgroup and shared memory must be within the device's limits.
std::string refusal(const Capabilities& device, const Tuning& tuning);

// Returns the candidates for one field: `from` with each of the field's values that the device can run, each once and without
// `from`. An interleave follows the rows of a workgroup; each value of matvec_lanes is tried with and without one, since one
// lane and many lanes prefer different layouts.
std::vector<Tuning> candidates(const Capabilities& device, const Tuning& from, const TuningField& field);

// Returns "matvec_lanes 16, matvec_rows 2": these fields of the tuning.
std::string describe(const Tuning& tuning, std::span<const TuningField> fields);

} // namespace tq::gpu
