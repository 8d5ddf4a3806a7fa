// Tests of the CPU path's kernels run on every instruction set of this machine.
#pragma once
#include "model/cpu/fixed_point.h"
#include "model/cpu/spread_codes.h"
#include "tests/support/sanitized.h"
#include <doctest/doctest.h>
#include <functional>
#include <hwy/targets.h>

namespace tq::test {

// Runs `body` once for each instruction set (under sanitizers only for the greatest and the least), with Highway's choice fixed
// to it, and once for each that has integer products, with the processor's own choice of the rest.
inline void on_each_target(const std::function<void()>& body) {
    cpu::use_fixed_point(cpu::FixedPointSet::none);
    cpu::use_spread_codes(false);
    auto targets = hwy::SupportedAndGeneratedTargets();
    if (sanitized && targets.size() > 2) targets.erase(targets.begin() + 1, targets.end() - 1);
    for (const int64_t target : targets) {
        hwy::SetSupportedTargetsForTest(target);
        hwy::GetChosenTarget().Update(target);
        const std::string target_name = hwy::TargetName(target);
        CAPTURE(target_name);
        body();
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    CAPTURE("what Highway does not choose");
    cpu::use_spread_codes(true);
    for (const auto set :
         {cpu::FixedPointSet::avx2, cpu::FixedPointSet::avx_vnni, cpu::FixedPointSet::vnni}) { // the last is the best
        CAPTURE(int(set));
        if (cpu::use_fixed_point(set)) body();
    }
}

} // namespace tq::test
