// Thrown when no device matches the selector.
#pragma once
#include "base/error.h"

namespace tq {

struct WrongDevice : Error {
    using Error::Error;
};

} // namespace tq
