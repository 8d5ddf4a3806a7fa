// Profiles let the paths for lesser devices run on any machine, in tests above all. A profile only takes away: limits become
// smaller, features go, alignments grow. Whatever the code then chooses is allowed on the real device, too. A profile may also
// change the type, which decides about sizes and predicted times, and not about limits.
#include "runtime/device_profile.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/sizes.h"
#include <algorithm>

namespace tq {
namespace {

template <class T> void limit_to(T& value, T limit) { value = std::min(value, limit); }

void without_matrices(Capabilities& c) { c.cooperative_matrix = false; }

void without_fp16(Capabilities& c) { c.float16 = c.cooperative_matrix = false; } // matrices are of fp16

void without_int8_dot(Capabilities& c) { c.int8_dot_product = c.int8_dot_accelerated = false; }

void without_subgroups(Capabilities& c) {
    c.subgroup_arithmetic = c.subgroup_shuffle = c.cooperative_matrix = false;
    c.kernel_subgroup_size = 0;
}

void limit_workgroup(Capabilities& c, uint32_t invocations, std::array<uint32_t, 3> size) {
    limit_to(c.max_workgroup_invocations, invocations);
    for (size_t axis = 0; axis < 3; axis++) {
        limit_to(c.max_workgroup_size[axis], size[axis]);
        limit_to(c.max_workgroup_count[axis], 65535u);
    }
}

// Kernels cannot run in smaller subgroups than the device has. If the device's subgroups exceed the limit, it has none.
void limit_subgroup(Capabilities& c, uint32_t max) {
    if (c.kernel_subgroup_size > max) c.kernel_subgroup_size = 0;
    for (uint32_t* size : {&c.subgroup_size, &c.min_subgroup_size, &c.max_subgroup_size}) limit_to(*size, max);
}

// Sets memory limits to the minima of Vulkan 1.2, except for the three that differ between the two profiles.
void limit_memory(Capabilities& c, uint32_t shared_bytes, uint32_t storage_buffers, uint32_t alignment) {
    limit_to(c.shared_memory_bytes, shared_bytes);
    limit_to(c.push_constant_bytes, 128u);
    limit_to(c.storage_buffers_per_stage, storage_buffers);
    limit_to(c.storage_range_bytes, 128 * mib);
    limit_to(c.texel_range_bytes, 1 * mib);
    limit_to(c.allocation_bytes, 1024 * mib);
    limit_to(c.allocation_count, 4096u);
    c.storage_alignment = std::max(c.storage_alignment, alignment);
}

// The minimum limits of Vulkan 1.2 ("Limits" in its specification); a subgroup of one invocation is one.
void to_spec_minimum(Capabilities& c) {
    without_fp16(c);
    without_int8_dot(c);
    without_subgroups(c);
    limit_subgroup(c, 1);
    c.narrow_barriers = false;
    c.int8 = c.int16 = c.storage_8bit = c.storage_16bit = false;
    limit_workgroup(c, 128, {128, 128, 64});
    limit_memory(c, 16384, 4, 256);
    c.timestamp_ns = 0;
    c.timestamp_mask = 0;
}

// A phone of 2021, with the worse of a Mali-G7x and an Adreno 6xx for each limit: Adreno binds 128 MiB and allocates 1 GiB, both
// align at 64 bytes and have 32 KiB of shared memory (Mali's is ordinary cached memory), Mali has 16 invocations in a subgroup
// and 512 in a workgroup. Both compute in fp16, but the 16-bit storage of their drivers is unreliable and int8 dot products
// came later. It is a GPU and gets a GPU's tile sizes: a CPU driver runs kernels with it that it never runs otherwise.
void to_mobile(Capabilities& c) {
    c.type = DeviceType::integrated;
    without_int8_dot(c);
    c.cooperative_matrix = c.storage_8bit = c.storage_16bit = false;
    limit_subgroup(c, 16);
    limit_workgroup(c, 512, {512, 512, 64});
    limit_memory(c, 32768, 24, 64);
}

constexpr DeviceProfile profiles[] = {
    {"none", "the device as it is", [](Capabilities&) {}},
    {"spec-minimum", "the least that Vulkan 1.2 promises: 16 KiB shared memory, 128 invocations, 128 MiB bindings, no features",
     to_spec_minimum},
    {"mobile", "a phone of 2021: 128 MiB bindings, 32 KiB shared memory, subgroups of 16, no 8/16-bit storage", to_mobile},
    {"gpu", "a processor that gets the kernels and sizes of a GPU", [](Capabilities& c) { c.type = DeviceType::discrete; }},
    {"full-barriers", "the device as it is, with barriers for every kind of access",
     [](Capabilities& c) { c.narrow_barriers = false; }},
    {"untuned", "the device as it is, with the default tuning", [](Capabilities&) {}}, // a stored one is of another profile
    {"no-matrix", "without cooperative matrices", without_matrices},
    {"no-fp16", "without fp16 arithmetic", without_fp16},
    {"no-subgroup", "without subgroup operations", without_subgroups},
};

} // namespace

std::span<const DeviceProfile> device_profiles() { return profiles; }

const DeviceProfile& find_device_profile(std::string_view name) {
    const auto variable = environment_variable("TQ_DEVICE_PROFILE");
    const bool from_environment = name.empty() && variable;
    if (from_environment) name = *variable;
    if (name.empty()) return profiles[0];
    std::string names;
    for (const DeviceProfile& profile : profiles) {
        if (name == profile.name) return profile;
        names += fmt::format("{}{}", names.empty() ? "" : ", ", profile.name);
    }
    fail("{}unknown device profile \"{}\": use one of {}", from_environment ? "TQ_DEVICE_PROFILE: " : "", name, names);
}

} // namespace tq
