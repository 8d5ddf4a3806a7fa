// The valid tunings, the result of the search for one with simulated times, and files of tunings. No time is measured.
#include "base/error.h"
#include "model/gpu/matmul.h"
#include "model/gpu/tuning_file.h"
#include "model/gpu/tuning_search.h"
#include "model/gpu/variants.h"
#include "runtime/device_profile.h"
#include "runtime/specialise.h"
#include "tests/support/temporary_file.h"
#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <map>
#include <random>
#include <set>
using namespace tq;
using gpu::Tuning;

namespace {

Capabilities device_of(DeviceType type, uint32_t subgroup = 8) {
    Capabilities device;
    device.name = "made up";
    device.type = type;
    device.profile = "none";
    device.subgroup_size = subgroup;
    device.shader_cores = 20;
    device.max_workgroup_invocations = 1024;
    device.max_workgroup_size = device.max_workgroup_count = {1024, 1024, 1024};
    device.shared_memory_bytes = 49152;
    device.texel_range_bytes = uint64_t(128) << 20;
    device.vendor_id = 7;
    device.device_id = 8;
    return device;
}

Capabilities clamped(Capabilities device, const char* profile) {
    find_device_profile(profile).clamp(device);
    device.profile = profile;
    return device;
}

std::vector<Capabilities> devices() {
    const Capabilities gpu = device_of(DeviceType::discrete), cpu = device_of(DeviceType::cpu);
    return {gpu,
            cpu,
            device_of(DeviceType::cpu, 4),
            device_of(DeviceType::cpu, 16),
            clamped(gpu, "spec-minimum"),
            clamped(cpu, "spec-minimum"),
            clamped(gpu, "mobile")};
}

const gpu::TuningField& field(std::string_view name) {
    static const std::vector<gpu::TuningField> all = gpu::tuning_fields();
    return *std::ranges::find_if(all, [&](const gpu::TuningField& f) { return f.name == name; });
}

uint32_t max_workgroup(const Capabilities& device, const Tuning& tuning, uint64_t& shared_bytes) {
    uint32_t max = 0;
    for (const Variant& variant : gpu::all_variants({&tuning, 1})) {
        max = std::max(max, variant.constants.at(variant.shader->interface.workgroup_constant[0]));
        shared_bytes = std::max(shared_bytes, shared_memory_bytes(*variant.shader, variant.constants));
    }
    CHECK(max <= device.max_workgroup_invocations);
    return max;
}

} // namespace

TEST_CASE("parts of a sequence: by the number of cores, 64 where it is not known, on processors what was measured there") {
    Capabilities device = device_of(DeviceType::discrete);
    for (const auto& [cores, splits] : {std::pair(0u, 64u),
                                        {1u, 16u},
                                        {12u, 16u},
                                        {40u, 32u},
                                        {96u, 64u},
                                        {128u, 64u},
                                        {132u, 128u},
                                        {170u, 128u},
                                        {10000u, 256u}}) {
        CAPTURE(cores);
        device.shader_cores = cores;
        CHECK(gpu::choose_tuning(device).splits == splits);
    }
    CHECK(gpu::choose_tuning(device_of(DeviceType::cpu)).splits == 4);
    device.float16 = device.subgroup_arithmetic = device.subgroup_shuffle = true;
    device.kernel_subgroup_size = 32;
    device.shader_cores = 132;
    CHECK(gpu::choose_tuning(device).decode_subgroups == 8);
    CHECK(gpu::choose_tuning(device).splits == 33);
    device.kernel_subgroup_size = 16; // too few registers
    CHECK(gpu::choose_tuning(device).decode_subgroups == 0);
}

TEST_CASE("a row of a small matrix is shared by more invocations") {
    Tuning t = gpu::choose_tuning(device_of(DeviceType::discrete));
    t.subgroup = 32;
    t.matvec_lanes = 16;
    t.matvec_loads = 132 * 1024;
    const auto lanes = [&](uint32_t rows, uint32_t cols) {
        return gpu::matvec_tile(t, GgmlType::Q4_K, rows, cols, MATVEC_STORE, 1).lanes;
    };
    CHECK(lanes(24576, 4096) == 16);
    CHECK(lanes(4096, 12288) == 64);
    CHECK(lanes(1024, 4096) == 128);
    CHECK(lanes(1024, 1024) == 32); // 32 weights for each
    CHECK(lanes(100, 100000) == 128);
    t.subgroup = 0; // sums go through shared memory
    CHECK(lanes(100, 100000) == 32);
    t.matvec_lanes = 1;
    CHECK(lanes(100, 100000) == 1);
    t.matvec_lanes = 16;
    t.matvec_loads = 0;
    CHECK(lanes(100, 100000) == 16);
    CHECK(gpu::matvec_tile(t, GgmlType::Q4_K, 512, 512, MATVEC_STORE, 8).rows == 2);
    t.matvec_lanes = 1;
    CHECK(gpu::matvec_tile(t, GgmlType::Q4_K, 512, 512, MATVEC_STORE, 8).rows == t.matvec_rows);
}

TEST_CASE("matvec_dot has fewer rows where cores would be idle, and pairs of rows for a gated product") {
    Capabilities device = device_of(DeviceType::discrete);
    device.int8_dot_product = device.int8_dot_accelerated = true;
    device.subgroup_arithmetic = device.subgroup_shuffle = true;
    device.kernel_subgroup_size = 32;
    device.shader_cores = 132;
    const Tuning t = gpu::choose_tuning(device);
    REQUIRE(t.matvec_dot == 256);
    CHECK(gpu::multiplies_digits(t, GgmlType::Q4_K));
    CHECK_FALSE(gpu::multiplies_digits(t, GgmlType::F16));
    const auto tile = [&](uint32_t rows, uint32_t output) { return gpu::matvec_tile(t, GgmlType::Q4_K, rows, 4096, output, 1); };
    CHECK(tile(24576, MATVEC_STORE).rows_per_workgroup() == 16);
    CHECK(tile(4096, MATVEC_STORE).rows_per_workgroup() == 16);
    CHECK(tile(1024, MATVEC_STORE).rows_per_workgroup() == 8);
    CHECK(tile(1024, MATVEC_GATED).rows_per_workgroup() == 16);
    CHECK(tile(1024, MATVEC_STORE).lanes == 32);
    device.kernel_subgroup_size = 16;
    CHECK(gpu::choose_tuning(device).matvec_dot == 0);
    device.kernel_subgroup_size = 32;
    for (const auto& [bytes, workgroup] : {std::pair(16384u, 64u), {32768u, 128u}, {49152u, 256u}}) {
        CAPTURE(bytes);
        device.shared_memory_bytes = bytes;
        const Tuning chosen = gpu::choose_tuning(device);
        CHECK(chosen.matvec_dot == workgroup);
        size_t count = 0;
        for (const Variant& variant : gpu::all_variants({&chosen, 1})) {
            if (!std::string_view(variant.shader->name).starts_with("matvec_dot")) continue;
            CHECK(shared_memory_bytes(*variant.shader, variant.constants) <= bytes);
            count++;
        }
        CHECK(count > 0);
    }
    device.max_workgroup_invocations = 128;
    CHECK(gpu::choose_tuning(device).matvec_dot == 128);
}

TEST_CASE("the default can run, and each candidate differs in its field and fits the device") {
    for (const Capabilities& device : devices()) {
        const Tuning by_default = gpu::choose_tuning(device);
        uint64_t bytes = 0;
        max_workgroup(device, by_default, bytes);
        CHECK(bytes <= device.shared_memory_bytes);
        std::set<std::string> names;
        for (const gpu::TuningField& field : gpu::tuning_fields()) {
            CHECK(names.insert(field.name).second);
            const std::vector<Tuning> found = gpu::candidates(device, by_default, field);
            for (size_t i = 0; i < found.size(); i++) {
                CHECK(gpu::refusal(device, found[i]).empty());
                CHECK(found[i] != by_default);
                CHECK(std::ranges::count(found, found[i]) == 1);
                Tuning same = found[i];
                field.set(same, field.get(by_default));
                same.weight_interleave = by_default.weight_interleave;
                CHECK(same == by_default);
                if (i == 0 || i + 1 == found.size()) {
                    bytes = 0;
                    max_workgroup(device, found[i], bytes);
                    CHECK(bytes <= device.shared_memory_bytes);
                }
            }
        }
    }
}

TEST_CASE("what a GPU and a processor are tried with") {
    const Capabilities gpu = device_of(DeviceType::discrete), cpu = device_of(DeviceType::cpu);
    const auto tried = [](const Capabilities& device, const char* name) {
        std::set<std::pair<uint32_t, uint32_t>> out;
        for (const Tuning& t : gpu::candidates(device, gpu::choose_tuning(device), field(name)))
            out.emplace(field(name).get(t), t.weight_interleave);
        return out;
    };
    using Pairs = std::set<std::pair<uint32_t, uint32_t>>;
    CHECK(tried(gpu, "matvec_lanes") ==
          Pairs{{1, 1}, {1, 128}, {4, 1}, {4, 64}, {8, 1}, {8, 32}, {16, 16}, {32, 1}, {32, 8}, {64, 1}, {64, 4}});
    CHECK(tried(gpu, "workgroup") == Pairs{{32, 1}, {128, 1}, {256, 1}});
    CHECK(tried(cpu, "matvec_lanes") == Pairs{{1, 1}}); // texel-buffer kernels have one lane
    CHECK(tried(cpu, "matvec_rows") == Pairs{{1, 8}, {2, 16}, {8, 64}});
    CHECK(tried(cpu, "weight_interleave") == Pairs{{1, 1}});
    CHECK(tried(clamped(gpu, "spec-minimum"), "workgroup") == Pairs{{32, 1}, {128, 1}}); // 256 exceed its maximum
}

TEST_CASE("what a device cannot run is refused, with the reason") {
    const Capabilities gpu = device_of(DeviceType::discrete), cpu = device_of(DeviceType::cpu);
    const auto refusal = [](const Capabilities& device, auto change) {
        Tuning tuning = gpu::choose_tuning(device);
        change(tuning);
        return gpu::refusal(device, tuning);
    };
    const auto says = [](const std::string& text, const char* part) {
        CAPTURE(text);
        CHECK(text.find(part) != std::string::npos);
    };
    CHECK(refusal(gpu, [](Tuning&) {}).empty());
    says(refusal(gpu, [](Tuning& t) { t.splits = 3; }), "splits cannot be 3");
    says(refusal(gpu, [](Tuning& t) { t.splits = 0; }), "splits cannot be 0");
    says(refusal(gpu, [](Tuning& t) { t.workgroup = 0; }), "workgroup cannot be 0");
    says(refusal(gpu, [](Tuning& t) { t.workgroup = 32, t.matvec_lanes = 64; }), "64 lanes do not divide a workgroup of 32");
    says(refusal(gpu, [](Tuning& t) { t.weight_interleave = 4; }), "4 rows interleaved, but a workgroup needs 16");
    says(refusal(gpu, [](Tuning& t) { t.shared_bytes *= 2; }), "another device's");
    Capabilities no_fp16 = gpu;
    no_fp16.float16 = false;
    says(refusal(no_fp16, [](Tuning& t) { t.decode_subgroups = 4; }), "attention_decode needs fp16 arithmetic");
    says(refusal(gpu, [](Tuning& t) { t.decode_heads = 0; }), "decode_heads cannot be 0");
    Capabilities dot = gpu, cpu_dot = cpu;
    dot.int8_dot_product = cpu_dot.int8_dot_product = true;
    says(refusal(gpu, [](Tuning& t) { t.matmul_dot = true; }), "matmul_dot needs int8 dot products");
    CHECK(refusal(dot, [](Tuning& t) { t.matmul_dot = true; }).empty());
    says(refusal(cpu_dot, [](Tuning& t) { t.matmul_dot = true; }), "on a GPU"); // a processor's products are of fp32
    says(refusal(gpu, [](Tuning& t) { t.texel_buffers = true; }), "another device's");
    says(refusal(cpu, [](Tuning& t) { t.workgroup = 64, t.matvec_lanes = 4; }), "texel-buffer kernels have one");
    says(refusal(clamped(gpu, "spec-minimum"), [](Tuning& t) { t.workgroup = 256; }), "the device allows 128");
    Capabilities small = gpu;
    small.shared_memory_bytes = 16384;
    says(refusal(small, [](Tuning& t) { t.workgroup = 256, t.matvec_rows = 8, t.attention_rows = 16; }), "");
}

namespace {

// Times from a formula, with noise.
struct World {
    Capabilities device;
    std::function<double(const Tuning&, gpu::Workload)> seconds;
    double noise = 0.01, clock = 0, limit = 1e9;
    std::mt19937 random{1};
    std::function<void(const Tuning&)> on_make = [](const Tuning&) {};
    uint32_t tried = 0, refused = 0;

    struct Runner final : gpu::Contestant {
        World& world;
        Tuning tuning;
        gpu::Workload workload;

        Runner(World& world, const Tuning& tuning, gpu::Workload workload) : world(world), tuning(tuning), workload(workload) {}
        std::vector<double> seconds() override {
            const double truth = world.seconds(tuning, workload);
            std::normal_distribution<double> error(0, world.noise);
            world.clock += truth;
            return {truth * std::exp(error(world.random)), 10 * truth * std::exp(error(world.random))};
        }
    };

    gpu::Found search() {
        return gpu::search_tuning(device, {.make =
                                               [this](const Tuning& t, gpu::Workload w) {
                                                   on_make(t);
                                                   return std::make_unique<Runner>(*this, t, w);
                                               },
                                           .seconds_left = [this] { return limit - clock; },
                                           .on_try = [this](const auto&, const auto&) { tried++; },
                                           .on_refused = [this](const auto&, const auto&) { refused++; }});
    }
};

double away(uint32_t value, uint32_t best) { return std::fabs(std::log2(double(value) / best)); }

double made_up(const Tuning& t, gpu::Workload w) {
    switch (w) {
    case gpu::Workload::token: return 1 + away(t.matvec_lanes, 4) + 0.3 * away(t.matvec_rows, 1) + 0.1 * away(t.workgroup, 256);
    case gpu::Workload::whole_token: return t.fold_norms ? 1.5 : 1.0;
    case gpu::Workload::deep_token: return 1 + away(t.splits, 64) + 0.5 * away(t.attention_keys, 4);
    case gpu::Workload::prompt:
        return 1 + (t.matmul_tiled ? 0.5 : 0) + 0.2 * away(t.matmul_rows, 4) + 0.2 * away(t.matmul_tokens, 4);
    case gpu::Workload::deep_prompt: return 1 + 0.2 * away(t.attention_rows, 2);
    case gpu::Workload::long_prompt: return 1 + 0.2 * away(t.batch_size, 256);
    }
    return 1;
}

} // namespace

TEST_CASE("the search finds the best of every field, in spite of noise") {
    World world{device_of(DeviceType::discrete), made_up};
    const gpu::Found found = world.search();
    const Tuning& t = found.tuning;
    CHECK(t.matvec_lanes == 4);
    CHECK(t.matvec_rows == 1);
    CHECK(t.workgroup == 256);
    CHECK(t.splits == 64);
    CHECK(!t.fold_norms);
    CHECK(t.matmul_rows == 4);
    CHECK(t.matmul_tokens == 4);
    CHECK(t.attention_rows == 2);
    CHECK(t.batch_size == 256);
    CHECK(t.weight_interleave == 1); // it made no difference
    REQUIRE(found.groups.size() == gpu::tuning_groups().size());
    const Tuning by_default = gpu::choose_tuning(world.device);
    for (const gpu::GroupChoice& group : found.groups) {
        const gpu::Workload workload = group.group->workload;
        CHECK(group.gain.certain());
        CHECK(group.left_out == 0);
        CHECK(group.refused == 0);
        CHECK(group.gain.ratio == doctest::Approx(made_up(by_default, workload) / made_up(t, workload)).epsilon(0.03));
    }
    CHECK(gpu::refusal(world.device, t).empty());
}

TEST_CASE("noise alone changes nothing, and a gain below 3 % does not count") {
    for (uint32_t seed = 1; seed <= 20; seed++) {
        World world{device_of(seed % 2 == 0 ? DeviceType::discrete : DeviceType::cpu),
                    [](const Tuning& t, gpu::Workload) { return 1 + 0.005 * away(t.splits, 64); }};
        world.noise = 0.05;
        world.random.seed(seed);
        const gpu::Found found = world.search();
        CHECK(found.tuning == gpu::choose_tuning(world.device));
        for (const gpu::GroupChoice& group : found.groups) CHECK(group.before == group.after);
    }
}

TEST_CASE("a candidate that fails or is wrong is counted, and never chosen") {
    World world{device_of(DeviceType::discrete), made_up};
    world.on_make = [](const Tuning& t) {
        if (t.splits == 64 || t.matvec_lanes == 4) fail("wrong");
    };
    const gpu::Found found = world.search();
    CHECK(found.tuning.splits == 32);
    CHECK(found.tuning.matvec_lanes == 8);
    CHECK(world.refused >= 3); // 4 lanes with either interleave, 64 splits
    uint32_t refused = 0;
    for (const gpu::GroupChoice& group : found.groups) refused += group.refused;
    CHECK(refused == world.refused);

    world.on_make = [&](const Tuning& t) { // and the candidate is not what fails
        if (t == gpu::choose_tuning(world.device)) fail("the device is lost");
    };
    CHECK_THROWS_AS(world.search(), Error);
}

TEST_CASE("the search keeps to its time, and leaves none of the groups to the others") {
    World world{device_of(DeviceType::discrete), made_up};
    world.limit = 600;
    const gpu::Found found = world.search();
    CHECK(world.clock < 720); // the last race of each group ends
    uint32_t tried = 0, left_out = 0;
    for (const gpu::GroupChoice& group : found.groups) {
        CHECK(group.tried > 0);
        tried += group.tried;
        left_out += group.left_out;
    }
    CHECK(tried == world.tried);
    CHECK(left_out > 0);

    World none{device_of(DeviceType::discrete), made_up};
    none.limit = 0;
    CHECK(none.search().tuning == gpu::choose_tuning(none.device));
    CHECK(none.tried == 0);
}

TEST_CASE("a gain and its noise") {
    const gpu::Gain exact = gpu::gain_of(std::vector{1.05, 1.05, 1.05});
    CHECK(exact.ratio == doctest::Approx(1.05));
    CHECK(exact.noise == 0);
    CHECK(exact.certain());
    CHECK(!gpu::gain_of(std::vector{1.02, 1.02, 1.02}).certain());
    const gpu::Gain noisy = gpu::gain_of(std::vector{0.9, 1.05, 1.3, 1.1, 0.95}); // distances 0 0.05 0.1 0.15 0.25
    CHECK(noisy.ratio == doctest::Approx(1.05));
    CHECK(noisy.noise == doctest::Approx(2 * 1.2533 * 1.4826 * 0.1 / std::sqrt(5.0)));
    CHECK(!noisy.certain());
    CHECK(!noisy.hopeless());
    CHECK(gpu::gain_of(std::vector{1.05, 1.05, 1.05}, 0.1).noise == doctest::Approx(2 * 1.2533 * 1.4826 * 0.1 / std::sqrt(3.0)));
    CHECK(gpu::gain_of(std::vector{0.9, 1.0}).ratio == doctest::Approx(0.95));
}
