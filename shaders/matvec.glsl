// y = W x, as `matvec_output` selects: the common code of the kernels of one vector, or of a few. A group of `lanes` invocations
// shares `rows` rows: many lanes read memory in long runs (GPUs), one lane needs no reduction (processors); several rows reuse
// each loaded x. W may be multiplied by several vectors, which share its decoded weights. Neither changes the order in which a
// result is summed. A kernel defines multiply().
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint lanes = 16; // a power of two
layout(constant_id = 2) const uint rows = 2;   // also if the output is MATVEC_GATED
layout(constant_id = 3) const uint matvec_output = MATVEC_STORE;
layout(constant_id = 4) const uint interleave = 1; // of the rows of the weights
layout(constant_id = 5) const uint normed = 0;     // 1: x must still be divided by its rms; its sums of squares follow it
layout(constant_id = 6) const uint subgroup = 32; // invocations of a subgroup, in a subgroup variant
layout(constant_id = 7) const uint columns = 1; // vectors x and y, of each workgroup in z; several: MATVEC_STORE or MATVEC_ADD
layout(constant_id = 8) const uint experts = 0; // 1: workgroups in y are pairs of experts (rows.glsl), of one column
layout(push_constant) uniform Push { matvec_params p; };
layout(binding = 0) buffer Y { float y[]; };
#define WEIGHTS_BINDING 1
#include "weights.glsl"
#include "rms.glsl"
READ_VECTORS(2, x)
#include "rows.glsl"
layout(binding = 3) readonly buffer NextNorm { float next_norm[]; };
const uint summed = rows * columns;
uint x_start = 0; // offsets of a pair of experts, or of the workgroup's vectors, and of their results
uint y_start = 0;

#ifdef SUBGROUP
const uint group_subgroups = lanes > subgroup ? lanes / subgroup : 1; // subgroups that share rows
shared float subgroup_sums[group_subgroups > 1 ? summed * (workgroup / subgroup) : 1];

// Adds up the first `used` sums of all lanes of a group.
void add_lanes(inout float sums[summed], uint used) {
    [[unroll]] for (uint r = 0; r < used; r++)
        for (uint s = lanes / group_subgroups / 2; s > 0; s >>= 1) sums[r] += subgroupShuffleXor(sums[r], s);
    if (group_subgroups == 1) return;
    const uint self = gl_LocalInvocationID.x / subgroup, first = self / group_subgroups * group_subgroups;
    if (gl_LocalInvocationID.x % subgroup == 0)
        [[unroll]] for (uint r = 0; r < used; r++) subgroup_sums[r * (workgroup / subgroup) + self] = sums[r];
    barrier();
    [[unroll]] for (uint r = 0; r < used; r++) {
        sums[r] = 0.0;
        for (uint i = 0; i < group_subgroups; i++) sums[r] += subgroup_sums[r * (workgroup / subgroup) + first + i];
    }
    barrier();
}
#else
shared float lane_sums[lanes > 1 ? summed * workgroup : 1];
void add_lanes(inout float sums[summed], uint used) {
    if (lanes == 1) return;
    const uint self = gl_LocalInvocationID.x, first = self / lanes * lanes;
    [[unroll]] for (uint r = 0; r < used; r++) lane_sums[r * workgroup + self] = sums[r];
    barrier();
    [[unroll]] for (uint r = 0; r < used; r++) {
        sums[r] = 0.0;
        for (uint i = 0; i < lanes; i++) sums[r] += lane_sums[r * workgroup + first + i];
    }
    barrier();
}
#endif

// sums[row][column] = the sums of this lane's products of the rows that begin at `starts`. The whole workgroup calls it.
void multiply(uint starts[rows], uint lane, inout float sums[summed]);

#ifndef TEXEL
// Returns 1 / rms of the vector whose sums of squares are in x[squares ...].
float inverse_rms_of_x(uint lane) {
    float sums[summed];
    sums[0] = 0.0;
    for (uint i = lane; i < (p.square_count + 3) / 4; i += lanes) {
        const vec4 four = uintBitsToFloat(x(p.squares / 4 + i));
        for (uint j = 0; j < 4; j++) sums[0] += 4 * i + j < p.square_count ? four[j] : 0.0;
    }
    add_lanes(sums, 1);
    return inverse_rms_of(sums[0] / float(p.cols) + p.eps);
}

shared float group_squares[workgroup / lanes];

// y[squares + the workgroup's number] = the sum of all groups' `squares`.
void store_squares(uint lane, uint group, float squares) {
    if (lane == 0) group_squares[group] = squares;
    barrier();
    if (gl_LocalInvocationID.x != 0) return;
    float sum = 0.0;
    for (uint i = 0; i < workgroup / lanes; i++) sum += group_squares[i];
    y[p.squares + gl_WorkGroupID.x] = sum;
}
#endif

void store_columns(uint first, float sums[summed]) {
    [[unroll]] for (uint r = 0; r < rows; r++) {
        if (first + r >= row_count) break;
        [[unroll]] for (uint c = 0; c < columns; c++) {
            const uint at = y_start + c * p.y_cols + p.first_row + first + r;
            y[at] = matvec_output == MATVEC_STORE ? sums[r * columns + c] : y[at] + sums[r * columns + c];
        }
    }
}

float silu(float g) { return g / (1.0 + exp(-g)); }

// Finds the expert, the vector and the results of this workgroup's pair; returns false if it has nothing to do.
bool find_pair() {
    const uint pair = gl_WorkGroupID.y;
    if (pair >= routes[ROUTES_PAIRS] || !find_expert(routes[ROUTES_HEADER_WORDS + pair])) return false;
    x_start = pair / p.pairs_per_x * (p.cols / 4);
    y_start = pair * p.expert_rows;
    return true;
}

// Finds the workgroup's vectors among those of a pass; returns false if there are none.
bool find_vectors() {
    const uint vector = gl_WorkGroupID.z * columns;
    x_start = vector * (p.cols / 4);
    y_start = vector * p.y_cols;
    return vector < routes[0];
}

void main() {
    if (experts != 0 && !find_pair()) return;
    if (columns > 1 && !find_vectors()) return;
    prepare_weights();
    const uint lane = gl_LocalInvocationID.x % lanes, group = gl_LocalInvocationID.x / lanes;
    const uint first = (gl_WorkGroupID.x * (workgroup / lanes) + group) * rows;

    uint starts[rows];
    float sums[summed];
    // Rows past the end are the last row, and are never stored.
    [[unroll]] for (uint r = 0; r < rows; r++) starts[r] = row_start(matrix_row + min(first + r, row_count - 1), p.cols);
    [[unroll]] for (uint r = 0; r < summed; r++) sums[r] = 0.0;
    multiply(starts, lane, sums);
    add_lanes(sums, summed);
    if (columns > 1) {
        if (lane == 0) store_columns(first, sums);
        return;
    }
#ifndef TEXEL
    if (normed != 0) {
        const float by = inverse_rms_of_x(lane);
        [[unroll]] for (uint r = 0; r < rows; r++) sums[r] *= by;
    }
#endif

    float squares = 0.0;
    if (lane == 0)
        [[unroll]] for (uint r = 0; r < rows; r++) {
            const uint at = y_start + first_column + first + r;
            if (first + r >= row_count) break;
            if (matvec_output == MATVEC_GATED) {
                if ((r & 1) == 0) y[at / 2] = silu(sums[r]) * sums[min(r + 1, rows - 1)];
                continue;
            }
            const float value = matvec_output == MATVEC_STORE ? sums[r] : y[at] + sums[r];
            y[at] = value;
#ifndef TEXEL
            if (matvec_output == MATVEC_RESIDUAL) {
                y[p.scaled + at] = value * next_norm[at];
                squares += value * value;
            }
#endif
        }
#ifndef TEXEL
    if (matvec_output == MATVEC_RESIDUAL) store_squares(lane, group, squares);
#endif
}
