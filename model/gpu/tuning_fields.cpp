// The choices that a tuning consists of: each with its name, the values that are tried, and the workload that measures it. The
// groups are in the order in which `bench --tune` goes through them, since later ones depend on earlier ones. No choice changes
// what is computed beyond rounding.
// refusal() says why a device cannot run a tuning. It builds the list of all kernel variants that the tuning leads to, and
// compares their workgroups and shared memory (which is computed from the SPIR-V, runtime/specialise.cpp) with the device's
// limits. So a tuning from a file cannot make a driver fail.
#include "model/gpu/tuning_fields.h"
#include "model/gpu/variants.h"
#include "runtime/specialise.h"
#include <algorithm>
#include <fmt/format.h>
#include <mutex>
#include <string_view>

namespace tq::gpu {
namespace {

// The largest interleave. A group of that many rows must fit into one piece (Uploader::max_piece_bytes()), and a matrix is padded
// to whole groups.
constexpr uint32_t max_interleave = 128;

const std::vector<TuningGroup> all_groups{
    {"matvec",
     Workload::token,
     10,
     {{"matvec_lanes", &Tuning::matvec_lanes, {1, 4, 8, 16, 32, 64}},
      {"matvec_loads", &Tuning::matvec_loads, {0, 1 << 15, 1 << 16, 1 << 17, 1 << 18}},
      {"matvec_rows", &Tuning::matvec_rows, {1, 2, 4, 8}},
      {"matvec_blocks", &Tuning::matvec_blocks, {1, 2, 4}},
      {"matvec_dot", &Tuning::matvec_dot, {0, 64, 128, 256}},
      {"workgroup", &Tuning::workgroup, {32, 64, 128, 256}},
      {"weight_interleave", &Tuning::weight_interleave, {1, 2, 4, 8, 16, 32, 64, 128}}}},
    {"attention of a token",
     Workload::deep_token,
     4,
     {{"splits", &Tuning::splits, {1, 2, 4, 8, 16, 32, 64, 128, 256}},
      {"attention_keys", &Tuning::attention_keys, {1, 2, 4}},
      {"decode_subgroups", &Tuning::decode_subgroups, {0, 1, 2, 4, 8, 16}},
      {"decode_heads", &Tuning::decode_heads, {1, 2, 4, 8}}}},
    {"norms of a token", Workload::whole_token, 2, {{"fold_norms", &Tuning::fold_norms, {0, 1}}}},
    {"matmul",
     Workload::prompt,
     6,
     {{"matmul_coopmat", &Tuning::matmul_coopmat, {0, 1}},
      {"matmul_ahead", &Tuning::matmul_ahead, {0, 1, 2}},
      {"matmul_blocks", &Tuning::matmul_blocks, {1, 2}},
      {"matmul_tiled", &Tuning::matmul_tiled, {0, 1}},
      {"matmul_dot", &Tuning::matmul_dot, {0, 1}},
      {"matmul_tokens", &Tuning::matmul_tokens, {2, 4, 8, 16}},
      {"matmul_rows", &Tuning::matmul_rows, {1, 2, 4}}}},
    {"attention of a prompt",
     Workload::deep_prompt,
     3,
     {{"attention_coopmat_rows", &Tuning::attention_coopmat_rows, {0, 16, 32, 64, 128}},
      {"attention_rows", &Tuning::attention_rows, {1, 2, 4, 8, 16}}}},
    {"batch", Workload::long_prompt, 3, {{"batch_size", &Tuning::batch_size, {64, 128, 256, 512, 1024}}}},
};

std::string refusal_of_matvec(const Tuning& t) {
    if (t.workgroup == 0 || t.matvec_lanes == 0 || t.workgroup % t.matvec_lanes != 0)
        return fmt::format("{} lanes do not divide a workgroup of {}", t.matvec_lanes, t.workgroup);
    if (t.texel_buffers && t.matvec_lanes != 1) return fmt::format("{} lanes, and texel-buffer kernels have one", t.matvec_lanes);
    if (t.weight_interleave != 1 && t.weight_interleave != interleaved_rows(t))
        return fmt::format("{} rows interleaved, but a workgroup needs {}", t.weight_interleave, interleaved_rows(t));
    return "";
}

// For cooperative matrices, the device's own choice tells whether it has them.
std::string refusal_of_matrices(const Tuning& t, const Tuning& by_default) {
    if (t.matmul_coopmat && !by_default.matmul_coopmat) return "matmul_coopmat needs cooperative matrices";
    if (t.matmul_dot && (!t.int8_dot || t.texel_buffers)) return "matmul_dot needs int8 dot products on a GPU";
    if (t.matvec_dot != 0 && (!t.int8_dot || t.subgroup < 8)) return "matvec_dot needs int8 dot products and subgroup operations";
    if (t.decode_subgroups != 0 && (!t.float16 || t.subgroup == 0))
        return "attention_decode needs fp16 arithmetic and subgroup operations";
    if (t.decode_heads == 0) return "attention_decode cannot have 0 heads";
    const uint32_t rows = t.attention_coopmat_rows;
    if (rows != 0 && (by_default.attention_coopmat_rows == 0 || rows % t.matrix.m != 0))
        return fmt::format("attention_coopmat cannot have {} rows", rows);
    return "";
}

// The largest workgroup and the most shared memory of all kernels, and the kernels that need them.
struct Needs {
    uint32_t workgroup = 0;
    uint64_t shared_bytes = 0;
    const char *workgroup_of = "", *shared_bytes_of = "";
};

Needs needs_of(const Tuning& t) {
    Needs max;
    for (const Variant& variant : all_variants({&t, 1})) {
        const uint32_t workgroup = variant.constants.at(variant.shader->interface.workgroup_constant[0]);
        const uint64_t bytes = shared_memory_bytes(*variant.shader, variant.constants);
        if (workgroup > max.workgroup) max.workgroup = workgroup, max.workgroup_of = variant.shader->name;
        if (bytes > max.shared_bytes) max.shared_bytes = bytes, max.shared_bytes_of = variant.shader->name;
    }
    return max;
}

// Cached: listing all variants takes some milliseconds, and a plan needs the same tuning repeatedly.
Needs known_needs_of(const Tuning& t) {
    static std::mutex mutex;
    static std::vector<std::pair<Tuning, Needs>> known;
    const std::lock_guard lock(mutex);
    const auto found = std::ranges::find(known, t, &std::pair<Tuning, Needs>::first);
    return found != known.end() ? found->second : known.emplace_back(t, needs_of(t)).second;
}

std::string refusal_of_kernels(const Capabilities& device, const Tuning& t) {
    const Needs needs = known_needs_of(t);
    const uint32_t max = std::min(device.max_workgroup_invocations, device.max_workgroup_size[0]);
    if (needs.workgroup > max)
        return fmt::format("{} has a workgroup of {}, and the device allows {}", needs.workgroup_of, needs.workgroup, max);
    if (needs.shared_bytes > device.shared_memory_bytes)
        return fmt::format("{} takes {} bytes of shared memory, and the device has {}", needs.shared_bytes_of, needs.shared_bytes,
                           device.shared_memory_bytes);
    return "";
}

} // namespace

uint32_t TuningField::get(const Tuning& tuning) const {
    return std::visit([&](auto at) { return uint32_t(tuning.*at); }, member);
}

void TuningField::set(Tuning& tuning, uint32_t value) const {
    std::visit([&](auto at) { tuning.*at = std::remove_reference_t<decltype(tuning.*at)>(value); }, member);
}

std::span<const TuningGroup> tuning_groups() { return all_groups; }

std::vector<TuningField> tuning_fields() {
    std::vector<TuningField> all;
    for (const TuningGroup& group : all_groups) all.insert(all.end(), group.fields.begin(), group.fields.end());
    return all;
}

uint32_t interleaved_rows(const Tuning& t) { return std::min(t.workgroup / t.matvec_lanes * t.matvec_rows, max_interleave); }

std::string refusal(const Capabilities& device, const Tuning& t) {
    const Tuning by_default = choose_tuning(device);
    if (t == by_default) return "";
    if (static_cast<const DeviceFacts&>(t) != by_default) return "it is another device's";
    for (const TuningField& field : tuning_fields()) {
        const uint32_t value = field.get(t);
        if (value != field.get(by_default) && std::ranges::find(field.values, value) == field.values.end())
            return fmt::format("{} cannot be {}", field.name, value);
    }
    for (const std::string& why : {refusal_of_matvec(t), refusal_of_matrices(t, by_default)})
        if (!why.empty()) return why;
    return refusal_of_kernels(device, t);
}

// Two fields are tied: weights are interleaved in groups of as many rows as a workgroup has, or not at all. So a change of lanes,
// rows or workgroup takes the interleave with it.
std::vector<Tuning> candidates(const Capabilities& device, const Tuning& from, const TuningField& field) {
    std::vector<Tuning> out;
    const auto add = [&](const Tuning& t) {
        if (t != from && std::ranges::find(out, t) == out.end() && refusal(device, t).empty()) out.push_back(t);
    };
    const bool is_interleave = std::string_view(field.name) == "weight_interleave",
               is_lanes = std::string_view(field.name) == "matvec_lanes";
    for (const uint32_t value : field.values) {
        Tuning t = from;
        field.set(t, value);
        if (is_interleave || t.workgroup == 0 || t.matvec_lanes == 0 || t.workgroup % t.matvec_lanes != 0) {
            add(t);
            continue;
        }
        if (from.weight_interleave != 1) t.weight_interleave = interleaved_rows(t);
        add(t);
        t.weight_interleave = t.weight_interleave == 1 ? interleaved_rows(t) : 1;
        if (is_lanes) add(t);
    }
    return out;
}

std::string describe(const Tuning& tuning, std::span<const TuningField> fields) {
    std::string text;
    for (const TuningField& field : fields)
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", field.name, field.get(tuning));
    return text;
}

} // namespace tq::gpu
