#include "model/weights/quantised_rows.h"
#include "base/ensure.h"
#include "model/files/formats/blocks_iq.h"
#include "model/files/formats/quantise.h"

namespace tq {

bool can_quantise(const Tensor& t) { return t.type == GgmlType::F32 || t.type == GgmlType::F16 || t.type == GgmlType::BF16; }

Tensor quantised(const Tensor& t, GgmlType type) {
    ENSURE(can_quantise(t) && t.cols % 32 == 0, "{}: {} columns of {}", t.name, t.cols, type_name(t.type));
    return made_tensor(t.name, type, t.rows, t.cols, [t, type](std::span<std::byte> to, uint32_t row) {
        std::vector<float> values(t.cols);
        std::vector<std::byte> scratch;
        t.decode(row, values, scratch);
        quantise_row(type, to, values);
    });
}

Tensor in_two_bits(const Tensor& t) {
    if (t.type != GgmlType::TQ1_0 && t.type != GgmlType::Q1_0) return t;
    const bool trits = t.type == GgmlType::TQ1_0;
    return made_tensor(t.name, trits ? GgmlType::TQ2_0 : GgmlType::Q2_0, t.rows, t.cols,
                       [t, trits](std::span<std::byte> to, uint32_t row) {
                           const size_t from_block = block_format(t.type)->bytes, blocks = t.row_bytes() / from_block,
                                        to_block = to.size() / blocks;
                           std::vector<std::byte> scratch;
                           const std::span from = t.read(row, 1, scratch);
                           for (size_t i = 0; i < blocks; i++)
                               (trits ? tq1_0_to_tq2_0 : q1_0_to_q2_0)(&to[i * to_block], &from[i * from_block]);
                       });
}

} // namespace tq
