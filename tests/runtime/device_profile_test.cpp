// Device profiles: the limits and features that they leave of a device, which everything respects.
#include "base/error.h"
#include "model/gpu/tuning.h"
#include "runtime/device_profile.h"
#include "runtime/recorder.h"
#include "test_shaders.gen.h"
#include <cstring>
#include <doctest/doctest.h>
#include <string>
using namespace tq;

namespace {

Capabilities desktop() {
    Capabilities c;
    c.type = DeviceType::discrete;
    c.allocation_bytes = c.storage_range_bytes = c.texel_range_bytes = uint64_t(1) << 32;
    c.allocation_count = 1u << 30;
    c.storage_alignment = 16;
    c.subgroup_size = c.max_subgroup_size = 64;
    c.min_subgroup_size = c.kernel_subgroup_size = 32;
    c.subgroup_size_choice = c.full_subgroups = true;
    c.subgroup_arithmetic = c.subgroup_shuffle = true;
    c.max_workgroup_invocations = 1024;
    c.max_workgroup_size = {1024, 1024, 1024};
    c.max_workgroup_count = {2147483647, 65535, 65535};
    c.shared_memory_bytes = 65536;
    c.push_constant_bytes = 256;
    c.storage_buffers_per_stage = 1000;
    c.timestamp_ns = 10;
    c.timestamp_mask = ~uint64_t(0);
    c.float16 = c.int8 = c.int16 = c.int8_dot_product = c.int8_dot_accelerated = c.storage_8bit = c.storage_16bit =
        c.cooperative_matrix = true;
    return c;
}

// The smallest possible device: a profile can remove nothing from it.
Capabilities least() {
    Capabilities c = desktop();
    find_device_profile("spec-minimum").clamp(c);
    c.storage_range_bytes = uint64_t(128) << 20;
    c.type = DeviceType::integrated;
    return c;
}

// Requires all of one's limits and features to be at most the other's.
void check_no_more(const Capabilities& a, const Capabilities& b) {
    CHECK(a.allocation_bytes <= b.allocation_bytes);
    CHECK(a.allocation_count <= b.allocation_count);
    CHECK(a.storage_range_bytes <= b.storage_range_bytes);
    CHECK(a.texel_range_bytes <= b.texel_range_bytes);
    CHECK(a.storage_alignment >= b.storage_alignment);
    CHECK(a.subgroup_size <= b.subgroup_size);
    CHECK(a.min_subgroup_size <= b.min_subgroup_size);
    CHECK((a.kernel_subgroup_size == b.kernel_subgroup_size || a.kernel_subgroup_size == 0)); // no device has another size
    CHECK(a.kernel_subgroup_size <= a.max_subgroup_size);
    CHECK(a.max_subgroup_size <= b.max_subgroup_size);
    CHECK(a.max_workgroup_invocations <= b.max_workgroup_invocations);
    for (size_t axis = 0; axis < 3; axis++) {
        CHECK(a.max_workgroup_size[axis] <= b.max_workgroup_size[axis]);
        CHECK(a.max_workgroup_count[axis] <= b.max_workgroup_count[axis]);
    }
    CHECK(a.shared_memory_bytes <= b.shared_memory_bytes);
    CHECK(a.push_constant_bytes <= b.push_constant_bytes);
    CHECK(a.storage_buffers_per_stage <= b.storage_buffers_per_stage);
    CHECK(a.timestamp_ns <= b.timestamp_ns);
    for (const auto feature :
         {&Capabilities::float16, &Capabilities::int8, &Capabilities::int16, &Capabilities::int8_dot_product,
          &Capabilities::int8_dot_accelerated, &Capabilities::storage_8bit, &Capabilities::storage_16bit,
          &Capabilities::cooperative_matrix, &Capabilities::subgroup_arithmetic, &Capabilities::subgroup_shuffle})
        CHECK(a.*feature <= b.*feature);
}

std::string error_of(auto&& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("no profile raises a limit or adds a feature, on the largest device or the least") {
    for (const DeviceProfile& profile : device_profiles())
        for (const Capabilities& device : {desktop(), least()}) {
            CAPTURE(profile.name);
            Capabilities clamped = device;
            profile.clamp(clamped);
            check_no_more(clamped, device);
        }
}

TEST_CASE("spec-minimum is what Vulkan promises, and enough") {
    Capabilities c = desktop();
    find_device_profile("spec-minimum").clamp(c);
    CHECK(c.shared_memory_bytes == 16384);
    CHECK(c.max_workgroup_invocations == 128);
    CHECK(c.max_workgroup_size == std::array<uint32_t, 3>{128, 128, 64});
    CHECK(c.storage_range_bytes == uint64_t(128) << 20);
    CHECK(c.storage_buffers_per_stage == max_bindings);
    CHECK_FALSE(c.float16);
    CHECK_FALSE(c.subgroup_arithmetic);
    CHECK(c.timestamp_ns == 0);
}

TEST_CASE("an unknown profile is an error that lists those there are") {
    const std::string error = error_of([] { find_device_profile("mobil"); });
    CHECK(error.find("\"mobil\"") != std::string::npos);
    for (const DeviceProfile& profile : device_profiles()) CHECK(error.find(profile.name) != std::string::npos);
    CHECK(error_of([] { Device device("", "mobil"); }) == error);
    CHECK(error_of([] { list_devices("mobil"); }) == error);
}

TEST_CASE("a device keeps to its profile, and kernels run on what is left") {
    const Capabilities whole = Device("", "none").capabilities();
    CHECK(whole.profile == "none");
    for (const char* name : {"spec-minimum", "mobile"}) {
        CAPTURE(name);
        Device device("", name);
        const Capabilities& c = device.capabilities();
        CHECK(c.profile == name);
        CHECK(list_devices(name)[0].profile == name);
        check_no_more(c, whole);
        CHECK(c.storage_range_bytes <= uint64_t(128) << 20);
        CHECK(c.storage_alignment >= 64);
        CHECK(error_of([&] { (void)device.allocate("x", c.allocation_bytes + 1); }).find("at most") != std::string::npos);

        device.profile = true; // without timestamps nothing is timed, and nothing breaks
        Buffer small = device.allocate("small", 4, Memory::readback), x = device.allocate("x", 256, Memory::readback);
        std::memset(x.host().data(), 0, 256);
        Recorder recorder(device);
        recorder.dispatch<test_shader::count_up>({1}, {}, {}, {}, x);
        recorder.finish().run();
        CHECK(x.host()[0] == std::byte(1));
        CHECK(device.take_profile().empty() == (c.timestamp_ns == 0));
    }
    Capabilities phone = desktop();
    phone.shared_memory_bytes = 32768;
    phone.texel_range_bytes = 1 << 20;
    phone.cooperative_matrix = phone.int8_dot_product = phone.int8_dot_accelerated = false;
    const Device device("", "mobile");
    const Capabilities& mobile = device.capabilities();
    phone.kernel_subgroup_size = mobile.kernel_subgroup_size;
    phone.subgroup_arithmetic = mobile.subgroup_arithmetic;
    phone.subgroup_shuffle = mobile.subgroup_shuffle;
    phone.float16 = mobile.float16;
    phone.shader_cores = mobile.shader_cores; // a profile leaves them
    phone.max_workgroup_invocations = mobile.max_workgroup_invocations;
    phone.max_workgroup_size = mobile.max_workgroup_size;
    CHECK(gpu::choose_tuning(mobile) == gpu::choose_tuning(phone)); // a GPU's, not a processor's
}
