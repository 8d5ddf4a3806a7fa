#include "model/cpu/instruction_sets.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/printable.h"
#include <algorithm>
#include <array>
#include <hwy/targets.h>

#if HWY_ARCH_X86_64
#include <cpuid.h>
#endif

namespace tq::cpu {
namespace {

// Every target of Highway with vectors of 512 bits has AVX3.
bool has_avx512() { return (hwy::SupportedTargets() & HWY_AVX3) != 0; }
bool has_avx2() { return (hwy::SupportedTargets() & HWY_AVX2) != 0; }

// The targets of Highway that are better than AVX2: their bits are lower.
constexpr int64_t above_avx2 = HWY_AVX2 - 1;

bool limited_to_avx2 = false;

bool processor_has_avx_vnni() {
#if HWY_ARCH_X86_64
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4) != 0; // EAX, bit 4
#else
    return false;
#endif
}

struct NamedSet {
    const char* name;
    bool (*is_there)();
};

constexpr std::array sets{NamedSet{"avx2", has_avx2}, NamedSet{"avx-vnni", has_avx_vnni}, NamedSet{"avx512", has_avx512}};

} // namespace

bool has_avx_vnni() {
    static const bool there = has_avx2() && processor_has_avx_vnni();
    return there && !limited_to_avx2;
}

void limit_instruction_sets() {
    const std::string name = environment_variable("TQ_CPU").value_or("");
    if (name.empty()) return;
    const auto set = std::ranges::find(sets, name, &NamedSet::name);
    if (set == sets.end()) fail("TQ_CPU={}: not an instruction set; avx2, avx-vnni and avx512 are", printable(name));
    if (!set->is_there()) fail("TQ_CPU={}: this processor does not have it", name);
    if (name != "avx512") hwy::DisableTargets(above_avx2);
    limited_to_avx2 = name == "avx2";
}

std::string instruction_sets() {
    if (hwy::SupportedTargets() & HWY_AVX3_DL) return "AVX-512 VNNI";
    if (has_avx512()) return "AVX-512";
    if (has_avx_vnni()) return "AVX-VNNI";
    if (has_avx2()) return "AVX2";
    return hwy::TargetName(hwy::SupportedTargets() & -hwy::SupportedTargets());
}

} // namespace tq::cpu
