// Importance matrices, as llama-imatrix writes them: for each matrix of a model the mean square of each column's inputs on a
// text.
#pragma once
#include "model/files/conversion.h"
#include <filesystem>

namespace tq {

// Reads a GGUF file of "general.type" "imatrix", whose tensors NAME.in_sum2 and NAME.counts are F32. Throws an Error that names
// the file if it is of another kind, or has impossible sizes or values: columns that differ from those of the model's matrix, a
// negative sum; importances of none of the model's matrices, or that are all 0.
Importances read_imatrix(const std::filesystem::path& path, const Conversion& conversion);

// Returns "importances of 14 of 15 matrices; Q8_0 does not use them", of the matrices that are quantised.
std::string describe_importances(const Importances& importances, const Conversion& conversion);

} // namespace tq
