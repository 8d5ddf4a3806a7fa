// The table that --profile prints.
#include "runtime/profile.h"
#include <algorithm>
#include <fmt/format.h>

namespace tq {

std::string BuildCount::text() const {
    return fmt::format("{} kernels built in {:.2f} s{}", built, seconds,
                       from_cache ? fmt::format(", {} of them found in the cache", *from_cache) : "");
}

std::string profile_table(const std::vector<ProfileRow>& rows) {
    if (rows.empty()) return "nothing was timed: no kernel ran, or this device's queue has no timestamps\n";
    double total_ns = 0;
    size_t width = 6;
    for (const ProfileRow& row : rows) {
        total_ns += row.ns;
        width = std::max(width, row.kernel.size());
    }
    std::vector<ProfileRow> sorted = rows;
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.ns > b.ns; });

    std::string out =
        fmt::format("{:{}} {:>8} {:>10} {:>9} {:>9} {:>7}\n", "kernel", width, "calls", "us/call", "GB/s", "GFLOP/s", "share");
    for (const ProfileRow& row : sorted) {
        const double ns = std::max(row.ns, 1e-9);
        out += fmt::format("{:{}} {:>8} {:>10.1f} {:>9.2f} {:>9.2f} {:>6.1f}%\n", row.kernel, width, row.calls,
                           row.ns / 1e3 / double(std::max<uint64_t>(row.calls, 1)), double(row.bytes) / ns,
                           double(row.flops) / ns, 100 * row.ns / std::max(total_ns, 1e-9));
    }
    return out + fmt::format("{:{}} {:>8} {:>10.1f} us in all\n", "total", width, "", total_ns / 1e3);
}

} // namespace tq
