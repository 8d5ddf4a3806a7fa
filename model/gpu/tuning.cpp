// choose_tuning() decides by the facts of a device which kernels run, and how large their workgroups and tiles are. It knows two
// kinds of device. A processor gets kernels whose invocations are the lanes of a vector: without subgroup operations, with one
// lane for a row and few splits. A GPU gets kernels that share a row among lanes; there each choice follows from one fact: the
// size of subgroups (lanes, and which attention kernel), fp16, int8 dot products and cooperative matrices (a kernel for each),
// the registers that an invocation seems to have (tiles of attention), shared memory (tiles of products), and the number of cores
// (splits, loads in flight). No choice asks for the vendor. bench --tune starts from this result (tuning_search.cpp), and its
// result is stored and replaces this one (tuning_file.cpp).
#include "model/gpu/tuning.h"
#include "runtime/subgroup_size.h"
#include <algorithm>
#include <bit>

namespace tq::gpu {

namespace {

uint32_t usable_subgroup(const Capabilities& device) {
    const bool has_all = device.subgroup_arithmetic && device.subgroup_shuffle && device.kernel_subgroup_size >= 4;
    return has_all ? device.kernel_subgroup_size : 0;
}

uint32_t max_workgroup_of(const Capabilities& device) {
    return std::min({device.max_workgroup_invocations, device.max_workgroup_size[0], 1024u});
}

// Splits of a sequence: with Qwen3's eight kv heads every core then gets four workgroups, so that one computes while another
// waits for memory. attention_decode has larger workgroups, and gets two per core.
uint32_t default_splits(const Capabilities& device, bool decodes) {
    if (device.shader_cores == 0) return 64;
    if (decodes) return std::clamp(device.shader_cores / 4, 8u, 256u);
    return std::clamp(std::bit_ceil((device.shader_cores + 1) / 2), 16u, 256u);
}

// Subgroups of a workgroup of attention_decode, whose tables of levels they share. With subgroups of fewer than 32 a query and
// its sums do not fit into an invocation's registers (Intel).
uint32_t default_decode_subgroups(const Capabilities& device, uint32_t subgroup) {
    if (!device.float16 || subgroup < 32) return 0;
    return subgroup >= 64 ? 2 : 8;
}

// Invocations of a workgroup of matvec_dot: the most whose digits of max_columns vectors fit, 160 bytes for each of them, beside
// a KiB for the rest.
uint32_t default_matvec_dot(const Capabilities& device, uint32_t subgroup) {
    if (!device.int8_dot_accelerated || subgroup < 32) return 0;
    for (const uint32_t workgroup : {256u, 128u, 64u})
        if (workgroup <= max_workgroup_of(device) && workgroup * 160 + 1024 <= device.shared_memory_bytes) return workgroup;
    return 0;
}

// Whether eight rows of attention spill: in subgroups of fewer than 32 (Intel), and if there is no more shared memory than on
// phones and on Apple's GPUs, which are short of registers, too.
bool has_few_registers(const Capabilities& device, uint32_t subgroup) {
    return (subgroup != 0 && subgroup < 32) || device.shared_memory_bytes <= 32768;
}

// Whether the queries and sums of attention_coopmat fit into registers: an invocation of a smaller subgroup (Intel) would have 64
// of each, and spills.
bool attends_by_matrices(const Capabilities& device, uint32_t subgroup) {
    return usable_subgroup(device) != 0 && subgroup >= std::max(device.matrix.m, 32u);
}

// Weights of a product that should be on their way at a time, in units of 32. By Little's law a core of the largest GPUs needs 27
// KB (of an H200: 4.8 TB/s, 132 cores, some 750 ns), others a third of that or less; 32 weights are 18 bytes (Q4_K) or more, and
// every invocation decodes matvec_blocks of them.
uint32_t loads_in_flight(const Capabilities& device) {
    constexpr uint32_t per_core = 1024, usual_cores = 32;
    return per_core * (device.shader_cores == 0 ? usual_cores : device.shader_cores);
}

} // namespace

Tuning choose_tuning(const Capabilities& device) {
    // CPU drivers run a workgroup on one core, subgroup after subgroup between barriers: with one subgroup per workgroup and
    // unshared rows barriers are cheap, and with few tokens per block a submission is short. A workgroup's rows of a matrix are
    // interleaved, so that each of them reads memory from one place. Subgroup variants are no faster there, and take llvmpipe
    // seconds to compile. The host can read the logits directly: sampling there is as fast.
    if (device.type == DeviceType::cpu) {
        const uint32_t lanes = std::clamp(device.subgroup_size, 4u, 64u);
        const bool attention_per_lane = device.driver_name == "llvmpipe";
        return {{.shared_bytes = device.shared_memory_bytes,
                 .max_workgroup = max_workgroup_of(device),
                 .float16 = device.float16,
                 .int8_dot = device.int8_dot_product,
                 .subgroup = 0,
                 .matrix_subgroup = 0,
                 .matrix = {},
                 .texel_buffers = true,
                 .texel_range_bytes = device.texel_range_bytes,
                 .attention_per_lane = attention_per_lane},
                {.workgroup = lanes,
                 .matvec_lanes = 1,
                 .matvec_loads = 0,
                 .matvec_rows = 4,
                 .matvec_blocks = 1,
                 .matvec_dot = 0,
                 .weight_interleave = 4 * lanes,
                 .matmul_rows = 4,
                 .matmul_tokens = 4,
                 .matmul_tiled = false,
                 .matmul_dot = false,
                 .matmul_coopmat = false,
                 .matmul_ahead = 0,
                 .matmul_blocks = 1,
                 .attention_rows = attention_per_lane ? 2u : 8u, // a prompt's kernel is then that of a token
                 .attention_keys = 1,
                 .decode_subgroups = 0,
                 .decode_heads = 4,
                 .attention_coopmat_rows = 0,
                 .splits = 4},
                {.batch_size = 64, .short_block = 16, .fold_norms = false, .sampling = false}};
    }
    const uint32_t matrix_subgroup = matrix_subgroup_size(device);
    const bool cooperative = TQ_COOPERATIVE_MATRIX && device.cooperative_matrix && matrix_subgroup <= max_workgroup_of(device);
    const uint32_t subgroup = usable_subgroup(device);
    const uint32_t decode_subgroups = default_decode_subgroups(device, subgroup);
    const bool attends = cooperative && attends_by_matrices(device, matrix_subgroup);
    return {{.shared_bytes = device.shared_memory_bytes,
             .max_workgroup = max_workgroup_of(device),
             .float16 = device.float16,
             .int8_dot = device.int8_dot_product,
             .subgroup = subgroup,
             .matrix_subgroup = cooperative ? matrix_subgroup : 0,
             .matrix = cooperative ? device.matrix : MatrixShape{},
             .texel_buffers = false,
             .texel_range_bytes = device.texel_range_bytes,
             .attention_per_lane = false},
            {.workgroup = 64,
             .matvec_lanes = subgroup == 0 ? 16 : std::min(subgroup, 16u), // lanes of a subgroup need no barrier
             .matvec_loads = loads_in_flight(device),
             .matvec_rows = 4,
             .matvec_blocks = 1,
             .matvec_dot = default_matvec_dot(device, subgroup),
             .weight_interleave = 1,
             .matmul_rows = subgroup < 32 || has_few_registers(device, subgroup) ? 1u : 2u, // of experts: two would spill
             .matmul_tokens = 8,
             .matmul_tiled = true,
             .matmul_dot = device.int8_dot_accelerated && !cooperative,
             .matmul_coopmat = cooperative,
             .matmul_ahead = cooperative && matrix_subgroup >= 32 ? 1u : 0u,  // in smaller ones registers spill (Intel)
             .matmul_blocks = cooperative && matrix_subgroup >= 64 ? 2u : 1u, // every invocation of a workgroup decodes one
             .attention_rows = has_few_registers(device, subgroup) ? 4u : 8u,
             .attention_keys = 1,
             .decode_subgroups = decode_subgroups,
             .decode_heads = subgroup >= 64 ? 4u : 5u,
             .attention_coopmat_rows = attends ? 64u : 0u,
             .splits = default_splits(device, decode_subgroups != 0)},
            {.batch_size = 512, .short_block = 64, .fold_norms = true, .sampling = true}};
}

} // namespace tq::gpu
