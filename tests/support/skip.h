#pragma once
#include <string>

namespace tq::test {

// Reports that a case, or the rest of it, cannot run on this machine, and why. The program then ends with status 77, which
// CTest reports and counts as skipped, unless another case fails.
void skip(const std::string& reason);

} // namespace tq::test
