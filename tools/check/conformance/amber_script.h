// A recorded row as an AmberScript (github.com/google/amber), which runs it without this program.
#pragma once
#include "tools/check/conformance/recording.h"

namespace tq::conformance {

// The script has everything in it: modules, with the values of their specialisation constants as defaults, buffers, and what is
// expected of them. Floats are compared element by element with the tolerance of all together, and by the root of their mean
// square error if all of the buffer is known. Comparisons of values that were computed from buffers are left out, which a
// comment says.
std::string amber_script(const Recording& recording);

} // namespace tq::conformance
