// The kernels that the passes of one model run on a device, and the rows of conformance about them: a device proves itself for
// the model by these rows.
#pragma once
#include "model/kv/options.h"
#include "model/weights/weights.h"
#include "tools/check/conformance/rows.h"
#include <string>
#include <string_view>
#include <vector>

namespace tq::conformance {

struct Subject {
    std::vector<GgmlType> weights; // formats of its matrices, in the order of their numbers
    std::vector<KvTypes> caches;   // pairs of types, in the order of their layers
    RotationKind rotation = RotationKind::wht;
    ScaleRule scale_rule = KvOptions().scale_rule;
    uint32_t head_dim = 128, group = 1; // group: query heads per kv head
    bool window = false, conditioned = false, head_norms = true, experts = false;

    // Equal texts: equal subjects.
    std::string text() const;
};

Subject subject_of(const Config& config, const Weights& weights, const KvOptions& kv);
// Reads what text() returned. Throws Error.
Subject parse_subject(std::string_view text);

// Returns the rows of all_rows() for the subject's formats, types and sizes in the device's own variants, at most four of each
// kernel and type, with attention on its very pairs of types and heads. All rows are small.
Rows subject_rows(const Capabilities& device, const Subject& subject);

} // namespace tq::conformance
