// What of a Tuning is measured, and what it may be. A new field of KernelChoices gets a line in tuning_fields.cpp: it is then
// tuned, stored, checked when it is read back, and shown.
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
    std::vector<uint32_t> values; // that it may have, besides the default; of a bool 0 and 1

    uint32_t get(const Tuning& tuning) const;
    void set(Tuning& tuning, uint32_t value) const;
};

// What shows whether a choice is a good one.
enum class Workload {
    token,       // one token with little before it
    whole_token, // the same by the wall clock, for what lies between kernels counts
    deep_token,  // one with much before it
    prompt,      // a block of a prompt
    deep_prompt, // one with much before it
    long_prompt, // several blocks; by the wall clock, for what lies between blocks counts
};

// Fields that depend on each other, and are measured by one workload.
struct TuningGroup {
    const char* name;
    Workload workload;
    double share; // of the time for tuning, in parts of those of all groups
    std::vector<TuningField> fields;
};

// In the order in which they are tuned.
std::span<const TuningGroup> tuning_groups();

// The fields of all groups.
std::vector<TuningField> tuning_fields();

// What Tuning::weight_interleave is where it is not 1: the rows of a matrix that a workgroup of matvec makes at a time, or a part
// of them where those are many.
uint32_t rows_in_turn(const Tuning& tuning);

// Why `tuning` must not be used on `device`; empty where it can. Every field has one of its values or the default, and every
// kernel's workgroup and shared memory are within the device's limits.
std::string refusal(const Capabilities& device, const Tuning& tuning);

// What is tried of one field: `from` with each of the field's values that the device can run, each once and without `from`. An
// interleave goes with the rows of a workgroup; for matvec_lanes both kinds are tried, as one lane wants the one and many the
// other.
std::vector<Tuning> candidates(const Capabilities& device, const Tuning& from, const TuningField& field);

// "matvec_lanes 16, matvec_rows 2": these fields of it.
std::string describe(const Tuning& tuning, std::span<const TuningField> fields);

} // namespace tq::gpu
