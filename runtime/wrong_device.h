// The device that somebody named is not there.
#pragma once
#include "base/error.h"

namespace tq {

struct WrongDevice : Error {
    using Error::Error;
};

} // namespace tq
