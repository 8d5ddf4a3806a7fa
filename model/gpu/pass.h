// The arguments that every kernel of a recorded pass gets, and common parts of the families of kernels.
#pragma once
#include "base/sizes.h"
#include "model/gpu/tuning.h"
#include "runtime/recorder.h"
#include <algorithm>
#include <initializer_list>

namespace tq::gpu {

struct Matrix;

// The per-run values of a recording that its work depends on: the position of the first row, and the number of rows.
struct Step {
    uint32_t position, tokens;
};

// The state that all kernels of one recorded pass share.
struct Pass {
    Recorder& recorder;
    const Tuning& tuning;
    const Buffer& context; // rows, page tables, rotary table: shaders/context.glsl
    uint32_t tokens;       // the rows: the maximum of a run of the recording; context has the actual number
    uint32_t head_dim;
    const Step& step;                  // sizes of the largest run while recording, of this run afterwards. Outlives the commands.
    uint32_t spans = 1;                // spans of the rows; like tokens, the maximum while recording
    bool separate = false;             // each row gets the bits that it would get alone, and may be of another slot
    uint32_t block = 0;                // if more than `tokens`: kernels are chosen as for a block of this many rows
    uint32_t rotary_dim = 0;           // channels of a head that RoPE turns; 0: all
    const Matrix* shortened = nullptr; // products with it compute only the slices that begin below likely_ids

    bool rows_are_separate() const { return separate || kernel_rows() == 1; }
    uint32_t rotary() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
    uint32_t kernel_rows() const { return std::max(tokens, block); } // the rows that kernels are chosen for
};

constexpr uint32_t groups(uint64_t count, uint32_t per_group) { return uint32_t((count + per_group - 1) / per_group); }

// The Work of a dispatch that depends on the step: `work(step)` as recorded, and called again for each run that is profiled.
template <class F> Work per_step(const Step& step, F work) {
    Work max = work(step);
    max.now = [&step, work] { return work(step); };
    return max;
}

// Whether kernels that read these buffers use texel-buffer variants, for which there are texel views.
inline bool reads_texels(const Pass& pass, std::initializer_list<View> reads) {
    const auto fits = [&](const View& view) { return view.bytes <= pass.tuning.texel_range_bytes && view.bytes % 16 == 0; };
    return pass.tuning.texel_buffers && std::ranges::all_of(reads, fits);
}

} // namespace tq::gpu
