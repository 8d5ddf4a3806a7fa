#include "model/weights/mixture.h"
#include "base/printable.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

namespace tq {

static std::vector<FormatBytes> sorted(const std::map<GgmlType, uint64_t>& bytes) {
    std::vector<FormatBytes> all;
    for (const auto& [type, count] : bytes) all.push_back({type, count});
    std::ranges::stable_sort(all, std::greater(), &FormatBytes::bytes);
    return all;
}

std::vector<FormatBytes> bytes_by_format(const Weights& weights) {
    std::map<GgmlType, uint64_t> bytes;
    for_each_tensor(weights, [&](const Tensor& t) { bytes[t.stored_type()] += t.stored_bytes(); });
    return sorted(bytes);
}

std::vector<FormatBytes> bytes_by_format(const ModelFile& file) {
    std::map<GgmlType, uint64_t> bytes;
    for (const FileTensor& t : file.tensors()) bytes[t.type] += t.data.size();
    return sorted(bytes);
}

std::string describe_mixture(const std::vector<FormatBytes>& formats) {
    double whole = 0;
    for (const FormatBytes& one : formats) whole += double(one.bytes);
    std::string text;
    for (const FormatBytes& one : formats) {
        const long share = std::lround(100 * double(one.bytes) / whole);
        if (share > 0) text += fmt::format("{}{} {} %", text.empty() ? "" : ", ", lowercase(type_name(one.type)), share);
    }
    return text;
}

} // namespace tq
