// Which weight formats a model has, and how many of its bytes are in each.
#pragma once
#include "model/files/formats/model_file.h"
#include "model/weights/weights.h"

namespace tq {

struct FormatBytes {
    GgmlType type;
    uint64_t bytes;
};

// Returns the formats of all tensors, as they are in the file unless they were quantised since, that of the most bytes first.
std::vector<FormatBytes> bytes_by_format(const Weights& weights);

std::vector<FormatBytes> bytes_by_format(const ModelFile& file); // also of tensors that are not loaded

// Returns these with their shares of the bytes: "iq2_xxs 61 %, iq3_s 20 %, q4_k 19 %". Those below half a percent are left out.
std::string describe_mixture(const std::vector<FormatBytes>& formats);

} // namespace tq
