#include "model/cpu/instruction_sets.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/printable.h"
#include <hwy/targets.h>

namespace tq::cpu {
namespace {

// Every target of Highway with vectors of 512 bits has AVX3.
bool has_avx512() { return (hwy::SupportedTargets() & HWY_AVX3) != 0; }
bool has_avx2() { return (hwy::SupportedTargets() & HWY_AVX2) != 0; }

// The targets of Highway that are better than AVX2: their bits are lower.
constexpr int64_t above_avx2 = HWY_AVX2 - 1;

} // namespace

void limit_instruction_sets() {
    const std::string name = environment_variable("TQ_CPU").value_or("");
    if (name.empty()) return;
    if (name != "avx2" && name != "avx512") fail("TQ_CPU={}: not an instruction set; avx2 and avx512 are", printable(name));
    if (!(name == "avx2" ? has_avx2() : has_avx512())) fail("TQ_CPU={}: this processor does not have it", name);
    if (name == "avx2") hwy::DisableTargets(above_avx2);
}

std::string instruction_sets() {
    if (hwy::SupportedTargets() & HWY_AVX3_DL) return "AVX-512 VNNI";
    if (has_avx512()) return "AVX-512";
    if (has_avx2()) return "AVX2";
    return hwy::TargetName(hwy::SupportedTargets() & -hwy::SupportedTargets());
}

} // namespace tq::cpu
