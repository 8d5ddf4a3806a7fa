// Properties of the model that APIs report.
#pragma once
#include "model/model.h"

namespace tq::server {

uint64_t parameter_count(const Model& model);
std::string weight_type_text(const Model& model); // the type that most bytes of the weights have: "Q4_K"

} // namespace tq::server
