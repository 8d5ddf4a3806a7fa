// No kernels: whether they support a stored tuning is not tested here, and compiling them takes longer than fuzzing.
#include "model/gpu/variants.h"

namespace tq::gpu {

std::vector<Tuning> all_tunings(const Capabilities&) { return {}; }
std::vector<Variant> all_variants(std::span<const Tuning>) { return {}; }

} // namespace tq::gpu
