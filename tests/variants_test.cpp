// The list of kernels' variants is complete, and all of it fits the least device that Vulkan allows.
#include "model/gpu/variants.h"
#include "model/kv/types.h"
#include "runtime/device_profile.h"
#include "runtime/specialise.h"
#include "shaders.gen.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <set>
using namespace tq;

namespace {

std::vector<gpu::Tuning> tunings() {
    std::vector<gpu::Tuning> all;
    for (const DeviceType type : {DeviceType::cpu, DeviceType::discrete})
        for (const uint32_t subgroup : {4u, 8u, 16u, 64u}) {
            Capabilities device;
            device.type = type;
            device.subgroup_size = device.min_subgroup_size = device.max_subgroup_size = subgroup;
            device.subgroup_arithmetic = device.subgroup_shuffle = true;
            device.shared_memory_bytes = 65536;
            const auto more = gpu::all_tunings(device);
            all.insert(all.end(), more.begin(), more.end());
        }
    return all;
}

} // namespace

TEST_CASE("every kernel has variants, each once, with all of its constants") {
    const std::vector<gpu::Variant> all = gpu::all_variants(tunings());
    std::set<std::string> kernels;
    std::set<std::pair<std::string, std::vector<uint32_t>>> seen;
    for (const gpu::Variant& variant : all) {
        kernels.insert(variant.shader->name);
        CHECK(variant.constants.size() == variant.shader->interface.constants);
        CHECK(seen.emplace(variant.shader->name, variant.constants).second);
    }
    CHECK(kernels.size() == std::size(shader::all));
    CHECK(kernels.contains("attention"));
    CHECK(kernels.contains("embed_q6_k"));
}

TEST_CASE("types of the cache: every type, and every shape") {
    const gpu::Tuning gpu = gpu::choose_tuning({.type = DeviceType::discrete, .shared_memory_bytes = 32768});
    std::set<uint32_t> k_types, v_types;
    std::set<std::pair<uint32_t, uint32_t>> shapes; // head_dim and query heads per kv head
    for (const gpu::Variant& variant : gpu::all_variants({&gpu, 1})) {
        if (variant.shader != &shader::attention) continue;
        const auto& c = variant.constants;
        k_types.insert(c[2]);
        v_types.insert(c[3]);
        shapes.emplace(c[1], c[4]);
    }
    CHECK((k_types.size() == kv_types.size() && v_types.size() == kv_types.size()));
    CHECK(shapes.size() == 3 * 5);
}

TEST_CASE("every variant's workgroup and shared memory fit the least device") {
    Capabilities least;
    least.type = DeviceType::discrete;
    least.max_workgroup_invocations = 1024;
    least.shared_memory_bytes = 65536;
    find_device_profile("spec-minimum").clamp(least);
    uint64_t most = 0;
    const gpu::Tuning least_gpu = gpu::choose_tuning(least);
    for (const gpu::Variant& variant : gpu::all_variants({&least_gpu, 1})) {
        CAPTURE(variant.shader->name);
        const uint64_t bytes = shared_memory_bytes(*variant.shader, variant.constants);
        CHECK(bytes <= least.shared_memory_bytes);
        most = std::max(most, bytes);
        const uint32_t id = variant.shader->interface.workgroup_constant[0];
        REQUIRE(id < variant.constants.size());
        CHECK(variant.constants[id] <= least.max_workgroup_invocations);
    }
    // Attention: of 8 tokens' queries with their projections 7 fit, with the scores of 64 keys, a maximum and a factor for each, and
    // a table of levels.
    CHECK(most == 7 * (2 * 256 * 4 + 64 * 4 + 8) + 32 * 4);
}
