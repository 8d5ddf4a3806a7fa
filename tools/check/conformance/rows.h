// All rows, family by family.
#pragma once
#include "runtime/capabilities.h"
#include "tools/check/conformance/row.h"

namespace tq::conformance {

using Rows = std::vector<Row>;

void add_arithmetic(Rows& rows, const Capabilities& device);
void add_memory(Rows& rows, const Capabilities& device);
void add_weights(Rows& rows, const Capabilities& device);
void add_experts(Rows& rows, const Capabilities& device);
void add_inputs(Rows& rows, const Capabilities& device);
void add_activations(Rows& rows, const Capabilities& device);
void add_recurrent(Rows& rows, const Capabilities& device);
void add_gates(Rows& rows, const Capabilities& device);
void add_cache(Rows& rows, const Capabilities& device);
void add_attention(Rows& rows, const Capabilities& device);
void add_sampling(Rows& rows, const Capabilities& device);
void add_end_to_end(Rows& rows, const Capabilities& device);

// Adds rows of attention on the pairs of types and the heads of a subject (subject.h), in the device's own variant.
struct Subject;
void add_attention_of(Rows& rows, const Capabilities& device, const Subject& subject);

inline Rows all_rows(const Capabilities& device) {
    Rows rows;
    for (auto* add : {add_arithmetic, add_memory, add_weights, add_experts, add_inputs, add_activations, add_recurrent, add_gates,
                      add_cache, add_attention, add_sampling, add_end_to_end})
        add(rows, device);
    return rows;
}

} // namespace tq::conformance
