// The outcome of a row.
#pragma once
#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace tq::conformance {

// error: the row could not be computed, as for want of memory or by an error of the driver, or its result did not arrive.
// not_supported: the device or the build lacks what it needs.
enum class Verdict { passed, wrong, crashed, hung, device_lost, error, not_supported, not_run };

inline constexpr std::array<std::pair<Verdict, std::string_view>, 8> verdict_names{{
    {Verdict::passed, "passed"},
    {Verdict::wrong, "wrong"},
    {Verdict::crashed, "crashed"},
    {Verdict::hung, "hung"},
    {Verdict::device_lost, "device lost"},
    {Verdict::error, "error"},
    {Verdict::not_supported, "not supported"},
    {Verdict::not_run, "not run"},
}};

constexpr std::string_view name(Verdict verdict) { return verdict_names[size_t(verdict)].second; }

constexpr std::optional<Verdict> parse_verdict(std::string_view text) {
    for (const auto& [verdict, its_name] : verdict_names)
        if (its_name == text) return verdict;
    return std::nullopt;
}

constexpr bool is_failure(Verdict verdict) {
    return verdict != Verdict::passed && verdict != Verdict::not_supported && verdict != Verdict::not_run;
}

} // namespace tq::conformance
