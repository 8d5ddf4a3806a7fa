#include "model/weights/mixture.h"
#include "base/printable.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

namespace tq {

std::vector<FormatBytes> bytes_by_format(const Weights& weights) {
    std::map<GgmlType, uint64_t> bytes;
    for_each_tensor(weights, [&](const Tensor& t) { bytes[t.type] += t.bytes(); });
    std::vector<FormatBytes> all;
    for (const auto& [type, count] : bytes) all.push_back({type, count});
    std::ranges::stable_sort(all, std::greater(), &FormatBytes::bytes);
    return all;
}

std::string describe_mixture(const Weights& weights) {
    const double whole = double(weights.bytes());
    std::string text;
    for (const FormatBytes& one : bytes_by_format(weights)) {
        const long share = std::lround(100 * double(one.bytes) / whole);
        if (share > 0) text += fmt::format("{}{} {} %", text.empty() ? "" : ", ", lowercase(type_name(one.type)), share);
    }
    return text;
}

} // namespace tq
