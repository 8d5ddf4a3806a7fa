// The steps of model/reference/forward.cpp.
#pragma once
#include "model/reference/kernels.h"
#include "model/reference/recurrent.h"
#include <initializer_list>

namespace tq::ref {

#include "model/host/step_list-inl.h"

} // namespace tq::ref
