// An imatrix has for each matrix sums of squares of its inputs, column by column, and how many were added. The quantiser needs
// the mean. A stack of experts has as many lists as experts, each with its own count, since a token goes through few of them; an
// expert that no token chose has zeros, and counts by its weights alone (quantise_k.cpp).
#include "model/files/imatrix.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/gguf.h"
#include "model/files/formats/quantise.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <fstream>
#include <set>

namespace tq {
namespace {

constexpr std::string_view sums_end = ".in_sum2", counts_end = ".counts";

std::vector<float> values_of(const ModelFile& file, const FileTensor& t) {
    if (t.type != GgmlType::F32) fail("{}: '{}' is not in F32", utf8_text(file.path()), printable(t.name));
    std::vector<float> values(t.data.size() / 4);
    decode_row(t.type, values, t.data);
    for (const float v : values)
        if (!(v >= 0 && v < INFINITY)) // also when it is NaN
            fail("{}: '{}' has the value {}: the file is damaged", utf8_text(file.path()), printable(t.name), v);
    return values;
}

// Older files have no magic number: they begin with the number of matrices and the length of the first one's name.
void require_gguf(const std::filesystem::path& path) {
    std::array<char, 4> magic{};
    std::ifstream file(path, std::ios::binary);
    if (file.read(magic.data(), magic.size()) && std::string_view(magic.data(), magic.size()) != "GGUF")
        fail("{} is no imatrix in GGUF: llama-imatrix --in-file OLD -o NEW.gguf converts one of the older format",
             utf8_text(path));
}

// The means of a matrix: sums by column, list by list, each divided by its count. A mean is 0 if its count is.
std::vector<float> means(const ModelFile& file, const FileTensor& sums, const std::string& name) {
    const FileTensor* counts_tensor = file.find_tensor(name + std::string(counts_end));
    std::vector<float> out = values_of(file, sums);
    const std::vector<float> counts = counts_tensor ? values_of(file, *counts_tensor) : std::vector<float>();
    const uint64_t lists = out.size() / sums.ne[0];
    if (counts.size() != lists)
        fail("{}: '{}' has {} counts for {} lists of sums: the file is damaged", utf8_text(file.path()), printable(name),
             counts.size(), lists);
    for (size_t i = 0; i < out.size(); ++i) {
        const float count = counts[i / sums.ne[0]];
        out[i] = count > 0 ? out[i] / count : 0;
        if (!std::isfinite(out[i]))
            fail("{}: '{}' has a mean that fp32 does not hold: the file is damaged", utf8_text(file.path()), printable(name));
    }
    return out;
}

bool is_zero(const std::vector<float>& values) {
    return std::ranges::all_of(values, [](float v) { return v == 0; });
}

} // namespace

Importances read_imatrix(const std::filesystem::path& path, const Conversion& conversion) {
    require_gguf(path);
    const ModelFile file = read_gguf(path);
    if (file.text("general.type", "") != "imatrix")
        fail("{} is not an imatrix: its key general.type is '{}'", utf8_text(path), printable(file.text("general.type", "")));
    Importances out;
    for (const ConvertedTensor& t : conversion.tensors) {
        const FileTensor* sums = file.find_tensor(t.from.name + std::string(sums_end));
        if (sums == nullptr) continue;
        const uint64_t stacks = t.ne.size() > 2 ? t.ne[2] : 1, lists = sums->ne[1] * sums->ne[2] * sums->ne[3];
        if (sums->ne[0] != t.from.cols || (lists != 1 && lists != stacks))
            fail("{}: '{}' has {} x {} sums, and the matrix {} columns: it is of another model", utf8_text(path),
                 printable(sums->name), sums->ne[0], lists, t.from.cols);
        out.emplace(t.from.name, means(file, *sums, t.from.name));
    }
    if (out.empty()) fail("{} has importances of none of the model's matrices: it is of another model", utf8_text(path));
    if (std::ranges::all_of(out, [](const auto& one) { return is_zero(one.second); }))
        fail("{} has importances that are all 0: llama-imatrix counted no token", utf8_text(path));
    return out;
}

std::string describe_importances(const Importances& importances, const Conversion& conversion) {
    size_t matrices = 0, with = 0;
    std::set<std::string> unused; // formats
    for (const ConvertedTensor& t : conversion.tensors) {
        if (t.type == t.from.type || block_format(t.type)->elements == 1) continue; // it is not quantised
        const auto found = importances.find(t.from.name);
        matrices++;
        with += found != importances.end() && !is_zero(found->second);
        if (!uses_importance(t.type)) unused.insert(type_name(t.type));
    }
    if (matrices == 0) return "no matrix is quantised, and importances are not used";
    std::string text = fmt::format("importances of {} of {} matrices", with, matrices);
    if (!unused.empty()) text += fmt::format("; {} {} not use them", fmt::join(unused, ", "), unused.size() == 1 ? "does" : "do");
    return text;
}

} // namespace tq
