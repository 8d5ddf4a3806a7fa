// The list of kernels' variants is complete, and all of it fits the smallest device that Vulkan allows.
#include "model/gpu/kernels.h"
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
            device.driver_name = "llvmpipe";
            device.subgroup_size = device.min_subgroup_size = device.max_subgroup_size = device.kernel_subgroup_size = subgroup;
            device.subgroup_arithmetic = device.subgroup_shuffle = device.float16 = true;
            device.shared_memory_bytes = 65536;
            device.max_workgroup_invocations = device.max_workgroup_size[0] = 1024;
            device.cooperative_matrix = true;
            device.matrix = {16, 16, 16};
            device.int8_dot_product = device.int8_dot_accelerated = true; // if a profile has no matrices
            device.texel_range_bytes = 1 << 27;
            const auto more = gpu::all_tunings(device);
            all.insert(all.end(), more.begin(), more.end());
            if (more[0].subgroup == 0) continue;
            gpu::Tuning tuned = more[0]; // with the kernel that only the tuner chooses
            tuned.decode_subgroups = 4;
            all.push_back(tuned);
        }
    Capabilities other; // a processor without the kernels for llvmpipe
    other.type = DeviceType::cpu;
    other.texel_range_bytes = 1 << 27;
    other.max_workgroup_invocations = other.max_workgroup_size[0] = 1024;
    other.shared_memory_bytes = 65536;
    all.push_back(gpu::choose_tuning(other));
    return all;
}

} // namespace

TEST_CASE("every kernel has variants, each once, with all of its constants") {
    const std::vector<Variant> all = gpu::all_variants(tunings());
    std::set<std::string> kernels;
    std::set<std::pair<std::string, std::vector<uint32_t>>> seen;
    for (const Variant& variant : all) {
        kernels.insert(variant.shader->name);
        CHECK(variant.constants.size() == variant.shader->interface.constants);
        CHECK(seen.emplace(variant.shader->name, variant.constants).second);
    }
    if (!TQ_COOPERATIVE_MATRIX) kernels.insert("inputs_to_fp16"); // only kernels with cooperative matrices read what it writes
    for (const AnyShader* kernel : shader::all) {
        const std::string name = kernel->name;
        CAPTURE(name);
        CHECK(kernels.contains(name));
    }
    CHECK(kernels.size() == std::size(shader::all));
    CHECK(kernels.contains("attention"));
    CHECK(kernels.contains("embed_q6_k"));
}

TEST_CASE("a kernel for subgroups has whole ones, or a workgroup that is part of one") {
    for (const uint32_t subgroup : {4u, 8u, 16u, 32u, 64u}) {
        Capabilities device{.type = DeviceType::discrete, .shared_memory_bytes = 32768};
        device.subgroup_size = device.kernel_subgroup_size = subgroup;
        device.subgroup_arithmetic = device.subgroup_shuffle = true;
        const gpu::Tuning tuning = gpu::choose_tuning(device);
        CHECK(tuning.subgroup == subgroup);
        size_t count = 0;
        for (const Variant& variant : gpu::all_variants({&tuning, 1})) {
            if (!variant.shader->interface.subgroups) continue;
            CAPTURE(variant.shader->name);
            const uint32_t workgroup = variant.constants.at(variant.shader->interface.workgroup_constant[0]);
            CHECK((workgroup % subgroup == 0 || workgroup < subgroup));
            if (variant.shader == &shader::attention_subgroup) CHECK(variant.constants.at(9) == subgroup);
            count++;
        }
        CHECK(count > 0);
    }
    Capabilities unknown{.type = DeviceType::discrete, .shared_memory_bytes = 32768};
    unknown.subgroup_size = 32;
    unknown.subgroup_arithmetic = unknown.subgroup_shuffle = true; // but no size is guaranteed
    const gpu::Tuning tuning = gpu::choose_tuning(unknown);
    for (const Variant& variant : gpu::all_variants({&tuning, 1})) CHECK(!variant.shader->interface.subgroups);
}

TEST_CASE("attention_per_lane is llvmpipe's alone, with so few query rows that it is built in seconds") {
    Capabilities device;
    device.type = DeviceType::cpu;
    device.subgroup_size = 8;
    device.shared_memory_bytes = 32768;
    device.texel_range_bytes = 1 << 27;
    device.driver_name = "SwiftShader driver";
    CHECK(!gpu::choose_tuning(device).attention_per_lane);
    device.driver_name = "llvmpipe";
    const gpu::Tuning tuning = gpu::choose_tuning(device);
    CHECK(tuning.attention_per_lane);
    uint32_t max_rows = 0;
    for (const Variant& variant : gpu::all_variants({&tuning, 1})) {
        CHECK(variant.shader != &shader::attention_subgroup);
        if (variant.shader != &shader::attention_per_lane) continue;
        const uint32_t rows = variant.constants[5] * variant.constants[6];
        CHECK(rows <= 5);
        max_rows = std::max(max_rows, rows);
    }
    CHECK(max_rows == 5);
}

TEST_CASE("types of the cache: every type, and every shape") {
    const gpu::Tuning gpu = gpu::choose_tuning({.type = DeviceType::discrete, .shared_memory_bytes = 32768});
    std::set<uint32_t> k_types, v_types;
    std::set<std::pair<uint32_t, uint32_t>> shapes; // head_dim and query heads per kv head
    for (const Variant& variant : gpu::all_variants({&gpu, 1})) {
        if (variant.shader != &shader::attention) continue;
        const auto& c = variant.constants;
        k_types.insert(c[2]);
        v_types.insert(c[3]);
        shapes.emplace(c[1], c[4]);
    }
    CHECK((k_types.size() == kv_types.size() && v_types.size() == kv_types.size() - 2));
    CHECK(shapes.size() == 3 * 9);
}

TEST_CASE("every variant's workgroup and shared memory fit the least device") {
    Capabilities least;
    least.type = DeviceType::discrete;
    least.max_workgroup_invocations = least.max_workgroup_size[0] = 1024;
    least.shared_memory_bytes = 65536;
    find_device_profile("spec-minimum").clamp(least);
    uint64_t max = 0;
    gpu::Tuning min_gpu = gpu::choose_tuning(least);
    min_gpu.attention_rows = 16; // more than its own choice
    for (const Variant& variant : gpu::all_variants({&min_gpu, 1})) {
        CAPTURE(variant.shader->name);
        const uint64_t bytes = shared_memory_bytes(*variant.shader, variant.constants);
        CHECK(bytes <= least.shared_memory_bytes);
        max = std::max(max, bytes);
        const uint32_t id = variant.shader->interface.workgroup_constant[0];
        REQUIRE(id < variant.constants.size());
        CHECK(variant.constants[id] <= least.max_workgroup_invocations);
    }
    // Attention: the queries of 12 of 16 tokens, the scores of 64 keys, a maximum and a factor for each, and the levels of
    // keys of unequal bits and of a trellis of values. A tile of products has little less: 64 rows and 32 columns of 32 inputs
    // and 4 for padding, and the grid of IQ2_XXS or IQ3_S.
    CHECK(max == 12 * (256 + 64 + 2) * 4 + (108 + 32) * 4);
    CHECK(max > (64 + 32) * (32 + 4) * 4 + 2048);
}

TEST_CASE("tiles of products fill the shared memory that there is, and no more") {
    gpu::Tuning tuning = gpu::choose_tuning({.type = DeviceType::discrete, .shared_memory_bytes = 16384});
    uint32_t last = 0;
    for (const uint32_t bytes : {16384u, 18432u, 20480u, 27648u, 28672u, 32768u, 65536u, 1u << 30}) {
        CAPTURE(bytes);
        tuning.shared_bytes = bytes;
        const gpu::MatmulTile tile = gpu::matmul_tiled_tile(tuning);
        CHECK(tile.workgroup() == 128); // supported by every device
        CHECK(tile.rows % tile.invocation_rows == 0);
        CHECK(tile.tokens % tile.invocation_tokens == 0);
        CHECK(tile.rows * tile.tokens >= last);
        last = tile.rows * tile.tokens;
        const auto constants = constant_values(gpu::matmul_tiled_constants(tuning, 1, false));
        CHECK(shared_memory_bytes(shader::matmul_tiled_f16, constants) == (tile.rows + tile.tokens) * 36 * 4);
        CHECK(shared_memory_bytes(shader::matmul_tiled_iq4_nl, constants) <= bytes); // with its table of levels
    }
    CHECK(last == 128 * 64);
}

TEST_CASE("tiles of integer products: the largest that fits shared memory and the workgroup") {
    Capabilities device{.type = DeviceType::discrete, .shared_memory_bytes = 32768};
    device.max_workgroup_invocations = device.max_workgroup_size[0] = 1024;
    CHECK_FALSE(gpu::choose_tuning(device).matmul_dot);
    device.int8_dot_product = true;
    CHECK_FALSE(gpu::choose_tuning(device).matmul_dot); // it can, but not faster
    device.int8_dot_accelerated = true;
    gpu::Tuning tuning = gpu::choose_tuning(device);
    CHECK(tuning.matmul_dot);
    for (const auto& [bytes, workgroup, rows, blocks] :
         {std::tuple(32768u, 1024u, 128u, 2u), {16384u, 256u, 128u, 1u}, {32768u, 128u, 64u, 2u}, {16384u, 128u, 64u, 1u}}) {
        CAPTURE(bytes);
        CAPTURE(workgroup);
        tuning.shared_bytes = bytes;
        tuning.max_workgroup = workgroup;
        const gpu::DotTile tile = gpu::matmul_dot_tile(tuning);
        CHECK(tile.rows == rows);
        CHECK(tile.blocks == blocks);
        CHECK(tile.workgroup() <= workgroup);
        const auto constants = constant_values(gpu::matmul_dot_constants(tuning, 1, false));
        CHECK(shared_memory_bytes(shader::matmul_dot_q8_0, constants) == (tile.rows * 3 + tile.tokens * 5) * 16 * blocks);
        CHECK(shared_memory_bytes(shader::matmul_dot_iq4_nl, constants) <= bytes); // with its table of levels
    }
}

TEST_CASE("tiles leave room for the grids of weight formats") {
    Capabilities device{.type = DeviceType::discrete, .shared_memory_bytes = 16384};
    device.max_workgroup_invocations = device.max_workgroup_size[0] = 128;
    gpu::Tuning tuning = gpu::choose_tuning(device);
    for (const GgmlType type : weight_formats) {
        CAPTURE(type_name(type));
        const size_t member = gpu::family_member(type);
        const uint32_t tables = gpu::table_bytes(type);
        for (const uint32_t bytes : {16384u, 28672u, 32768u, 49152u})
            for (const bool experts : {false, true}) {
                tuning.shared_bytes = bytes;
                const auto tiled = constant_values(gpu::matmul_tiled_constants(tuning, 1, false, experts, tables));
                const uint32_t of_tile = shared_memory_bytes(shader::matmul_tiled_f16, tiled);
                const uint32_t all = shared_memory_bytes(*shader::matmul_tiled.members[member], tiled);
                CHECK(all <= bytes);
                if (!block_format(type)->grid.empty()) CHECK(all == of_tile + tables);
                CHECK(all <= of_tile + tables);
                if (shader::matmul_dot.members[member] == nullptr) continue;
                const auto dot = constant_values(gpu::matmul_dot_constants(tuning, 1, false, experts, tables));
                CHECK(shared_memory_bytes(*shader::matmul_dot.members[member], dot) <= bytes);
            }
    }
}

#if TQ_COOPERATIVE_MATRIX
TEST_CASE("tiles of cooperative matrices: likewise, in matrices of 16 x 16 for each of four subgroups") {
    Capabilities device{.type = DeviceType::discrete, .shared_memory_bytes = 16384};
    device.max_workgroup_invocations = device.max_workgroup_size[0] = 128;
    device.subgroup_size = 32;
    CHECK_FALSE(gpu::choose_tuning(device).matmul_coopmat);
    device.cooperative_matrix = true;
    device.matrix = {16, 16, 16};
    gpu::Tuning tuning = gpu::choose_tuning(device);
    CHECK(tuning.matmul_coopmat);
    CHECK(tuning.matrix_subgroup == 32);
    device.subgroup_size = 64; // four subgroups would exceed the workgroup's 128 invocations
    CHECK(gpu::coopmat_tile(gpu::choose_tuning(device)).subgroups() == 2);
    CHECK(shader::matmul_coopmat_q8_0.interface.cooperative);
    CHECK_FALSE(shader::matmul_tiled_q8_0.interface.cooperative);

    uint32_t last = 0;
    for (const uint32_t bytes : {16384u, 19456u, 20480u, 32768u, 1u << 30}) {
        CAPTURE(bytes);
        tuning.shared_bytes = bytes;
        const gpu::CoopmatTile tile = gpu::coopmat_tile(tuning);
        CHECK(tile.rows % 32 == 0);
        CHECK(tile.tokens % 32 == 0);
        CHECK(tile.rows * tile.tokens >= last);
        last = tile.rows * tile.tokens;
        const auto constants = constant_values(gpu::matmul_coopmat_constants(tuning, 1, false));
        CHECK(gpu::matmul_coopmat_constants(tuning, 1, false).workgroup.value == 128);
        CHECK(shared_memory_bytes(shader::matmul_coopmat_q8_0, constants) ==
              (tile.rows + tile.tokens) * 80 * (tile.ahead == 2 ? 2 : 1) + 4096);
        CHECK(shared_memory_bytes(shader::matmul_coopmat_mxfp4, constants) <= bytes);
    }
    CHECK(last == 128 * 64);
    tuning.matmul_ahead = 2;
    tuning.shared_bytes = 49152;
    CHECK(gpu::coopmat_tile(tuning).ahead == 2);
    tuning.shared_bytes = 32768;
    CHECK(gpu::coopmat_tile(tuning).ahead == 1);
}

TEST_CASE("attention by cooperative matrices: which types and how many rows") {
    Capabilities device{.type = DeviceType::discrete, .shared_memory_bytes = 49152};
    device.max_workgroup_invocations = device.max_workgroup_size[0] = 1024;
    device.subgroup_size = device.min_subgroup_size = device.kernel_subgroup_size = 32;
    device.subgroup_arithmetic = device.subgroup_shuffle = device.cooperative_matrix = true;
    device.matrix = {16, 16, 16};
    gpu::Tuning tuning = gpu::choose_tuning(device);
    const auto plan = [&](uint32_t group, uint32_t tokens, KvTypes types = {}, uint32_t head_dim = 128) {
        return gpu::attention_plan(tuning, {head_dim, types, group, tokens});
    };
    const auto by_matrices = [](const gpu::AttentionPlan& of) { return of.kernel == gpu::AttentionKernel::coopmat; };
    const gpu::AttentionPlan prompt = plan(4, 512), uneven = plan(5, 512), token = plan(8, 1);
    REQUIRE((by_matrices(prompt) && by_matrices(uneven)));
    CHECK(prompt.heads * prompt.tokens == 64);
    CHECK(prompt.split_step == 32);
    CHECK(uneven.heads == 5);
    CHECK(uneven.tokens == 12);
    CHECK(uneven.subgroups == 4);
    CHECK_FALSE(by_matrices(token));
    CHECK(token.split_step == 64);
    CHECK(by_matrices(plan(4, 512, {KvType::f16, KvType::tq3t})));
    for (const KvType other : {KvType::f32, KvType::bf16, KvType::q8_0, KvType::q4_0}) {
        CHECK_FALSE(by_matrices(plan(4, 512, {other, KvType::tq4})));
        CHECK_FALSE(by_matrices(plan(4, 512, {KvType::tq4, other})));
    }
    const gpu::AttentionPlan of_long_heads = plan(4, 512, {}, 256);
    REQUIRE(by_matrices(of_long_heads));
    CHECK(of_long_heads.subgroups == 2 * prompt.subgroups);

    for (const uint32_t bytes : {49152u, 32768u, 24576u, 16384u}) {
        CAPTURE(bytes);
        tuning.shared_bytes = bytes;
        const gpu::AttentionPlan of = plan(2, 512);
        REQUIRE(by_matrices(of));
        size_t count = 0;
        for (const Variant& variant : gpu::all_variants({&tuning, 1})) {
            if (variant.shader != &shader::attention_coopmat) continue;
            CHECK(shared_memory_bytes(shader::attention_coopmat, variant.constants) <= bytes);
            count++;
        }
        CHECK(count > 0);
    }
    tuning.shared_bytes = 8192;
    CHECK_FALSE(by_matrices(plan(2, 512)));
    device.subgroup_shuffle = false;
    CHECK(gpu::choose_tuning(device).attention_coopmat_rows == 0);
}
#endif

TEST_CASE("which kernel makes a block") {
    gpu::Tuning tuning = gpu::choose_tuning({.type = DeviceType::discrete, .shared_memory_bytes = 16384});
    using enum gpu::MatmulKernel;
    CHECK(gpu::matmul_kernel(tuning, GgmlType::Q4_K, tuning.matmul_tokens) == matvec);
    CHECK(gpu::matmul_kernel(tuning, GgmlType::Q4_K, tuning.matmul_tokens + 1) == tiled);
    tuning.matmul_dot = true;
    CHECK(gpu::matmul_kernel(tuning, GgmlType::Q4_K, tuning.matmul_tokens) == matvec);
    CHECK(gpu::matmul_kernel(tuning, GgmlType::Q4_K, 512) == dot);
    CHECK(gpu::matmul_kernel(tuning, GgmlType::F16, 512) == tiled); // its weights are no integers
    tuning.matmul_coopmat = true;
    CHECK(gpu::matmul_kernel(tuning, GgmlType::Q4_K, tuning.matmul_tokens) == matvec);
    tuning.matmul_tokens = 16; // more sums than stay in registers
    CHECK(gpu::matmul_kernel(tuning, GgmlType::Q4_K, 16) == plain);
    CHECK(gpu::matmul_kernel(tuning, GgmlType::Q4_K, 8) == matvec);
    CHECK(gpu::matmul_kernel(tuning, GgmlType::Q4_K, 512) == coopmat);
    CHECK(gpu::matmul_kernel(tuning, GgmlType::F32, 512) == tiled); // with fp32 weights no fp16 products are wanted
    CHECK(gpu::matmul_kernel(gpu::choose_tuning({.type = DeviceType::cpu}), GgmlType::Q4_K, 512) == plain);
}

TEST_CASE("tiles of experts: of 32 tokens whatever the kernel, and no more shared memory than there is") {
    Capabilities device{.type = DeviceType::discrete, .shared_memory_bytes = 32768};
    device.max_workgroup_invocations = device.max_workgroup_size[0] = 128;
    device.subgroup_size = 32;
    device.matrix = {16, 16, 16};
    device.int8_dot_product = device.int8_dot_accelerated = true;
    for (const bool matrices : {false, true}) {
        device.cooperative_matrix = matrices;
        gpu::Tuning tuning = gpu::choose_tuning(device);
        for (const uint32_t bytes : {16384u, 20480u, 32768u, 65536u}) {
            tuning.shared_bytes = bytes;
            CHECK(gpu::matmul_tiled_tile(tuning, true).tokens == 32);
            CHECK(gpu::matmul_dot_tile(tuning, true).tokens == 32);
            CHECK(gpu::matmul_tiled_tile(tuning, true).workgroup() <= 128);
            CHECK(gpu::matmul_dot_tile(tuning, true).workgroup() <= 128);
            CHECK(shared_memory_bytes(shader::matmul_tiled_iq4_nl,
                                      constant_values(gpu::matmul_tiled_constants(tuning, 1, false, true))) <= bytes);
            CHECK(shared_memory_bytes(shader::matmul_dot_iq4_nl,
                                      constant_values(gpu::matmul_dot_constants(tuning, 1, false, true))) <= bytes);
#if TQ_COOPERATIVE_MATRIX
            if (!matrices) continue;
            CHECK(gpu::coopmat_tile(tuning, true).tokens == 32);
            CHECK(gpu::coopmat_tile(tuning, true).subgroups() == 4);
            CHECK(shared_memory_bytes(shader::matmul_coopmat_mxfp4,
                                      constant_values(gpu::matmul_coopmat_constants(tuning, 1, false, true))) <= bytes);
#endif
        }
    }
}

TEST_CASE("which kernel multiplies experts") {
    gpu::Tuning tuning = gpu::choose_tuning({.type = DeviceType::discrete, .shared_memory_bytes = 16384});
    using enum gpu::MatmulKernel;
    const gpu::Experts e{128, 8};
    CHECK(gpu::experts_kernel(tuning, GgmlType::Q4_K, e, 1, true) == matvec);
    CHECK(gpu::experts_kernel(tuning, GgmlType::Q4_K, e, 8, true) == matvec);
    CHECK(gpu::experts_kernel(tuning, GgmlType::Q4_K, e, 8, false) == matvec);
    CHECK(gpu::experts_kernel(tuning, GgmlType::Q4_K, e, 32, false) == matvec); // two tokens of an expert
    CHECK(gpu::experts_kernel(tuning, GgmlType::Q4_K, e, 64, false) == plain);
    CHECK(gpu::expert_tile_pairs(tuning, e, 64) == tuning.matmul_tokens);
    CHECK(gpu::experts_kernel(tuning, GgmlType::Q4_K, e, 512, false) == tiled);
    tuning.matmul_dot = true;
    CHECK(gpu::experts_kernel(tuning, GgmlType::Q4_K, e, 512, false) == dot);
    CHECK(gpu::experts_kernel(tuning, GgmlType::F16, e, 512, false) == tiled);
    tuning.matmul_coopmat = true;
    tuning.matmul_tiled = false;
    for (const uint32_t tokens : {33u, 512u}) CHECK(gpu::experts_kernel(tuning, GgmlType::Q4_K, e, tokens, false) == coopmat);
    CHECK(gpu::experts_kernel(tuning, GgmlType::F32, e, 512, false) == tiled); // all have tiles of one size
    CHECK(gpu::experts_kernel(gpu::choose_tuning({.type = DeviceType::cpu}), GgmlType::Q4_K, e, 512, false) == plain);
    CHECK(gpu::experts_kernel(gpu::choose_tuning({.type = DeviceType::cpu}), GgmlType::Q4_K, e, 64, false) == matvec);
    for (const uint32_t tokens : {33u, 512u}) CHECK(gpu::expert_tile_pairs(tuning, e, tokens) == gpu::expert_tokens);
}

TEST_CASE("attention_decode takes no more shared memory than there is, and all of it for copies of its tables") {
    Capabilities device{.type = DeviceType::discrete};
    device.subgroup_arithmetic = device.subgroup_shuffle = device.float16 = true;
    size_t count = 0;
    for (const uint32_t bytes : {16384u, 32768u, 65536u})
        for (const uint32_t subgroup : {4u, 8u, 16u, 32u, 64u})
            for (const uint32_t subgroups : {1u, 3u, 8u}) {
                device.shared_memory_bytes = bytes;
                device.subgroup_size = device.kernel_subgroup_size = subgroup;
                gpu::Tuning tuning = gpu::choose_tuning(device);
                tuning.decode_subgroups = subgroups;
                for (const Variant& variant : gpu::all_variants({&tuning, 1})) {
                    if (variant.shader != &shader::attention_decode) continue;
                    CAPTURE(variant.constants);
                    std::vector<uint32_t> more = variant.constants;
                    const uint32_t copies = more[9] *= 2;
                    CHECK(shared_memory_bytes(*variant.shader, variant.constants) <= bytes);
                    if (copies <= std::min(subgroup, 32u)) CHECK(shared_memory_bytes(*variant.shader, more) > bytes);
                    count++;
                }
            }
    CHECK(count > 0);
}
