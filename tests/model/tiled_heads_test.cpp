// Orders in which GGUF files have heads and rows of heads, made of Hugging Face's.
#include "model/weights/paired_rows.h"
#include "model/weights/tiled_heads.h"
#include <cstring>
#include <doctest/doctest.h>
#include <numeric>

using namespace tq;

namespace {

// A matrix in F32 whose values are its elements' numbers.
struct Numbered {
    std::vector<float> values;
    Tensor tensor;

    Numbered(std::string name, uint32_t rows, uint32_t cols) : values(size_t(rows) * cols) {
        std::iota(values.begin(), values.end(), 0.0f);
        tensor = {std::move(name), GgmlType::F32, rows, cols, std::as_bytes(std::span(values))};
    }
};

std::vector<float> values_of(const Tensor& t) {
    std::vector<std::byte> scratch;
    const auto bytes = t.read(0, t.rows, scratch);
    std::vector<float> out(bytes.size() / 4);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
}

// Two key heads of four channels; each has three value heads.
const Recurrent grouped{.key_heads = 2, .value_heads = 6, .head_dim = 4, .conv_kernel = 3, .tiled_heads = false};

// Returns the number in the old order of value head `head` in the new order.
uint32_t old_head(uint32_t head) {
    Recurrent tiled = grouped;
    tiled.tiled_heads = true;
    const uint32_t key = tiled.key_head(head);
    const uint32_t old = key * 3 + head / 2;
    CHECK(grouped.key_head(old) == key);
    return old;
}

} // namespace

TEST_CASE("value heads are tiled: rows of matrices, columns of the output, vectors") {
    const uint32_t dim = grouped.head_dim, keys = 2 * grouped.key_size();
    struct Kind {
        const char* name;
        uint32_t rows, cols, before, run; // `run` values of a head, after `before` values
    };
    for (const Kind& kind : {Kind{"blk.0.attn_qkv.weight", grouped.channels(), 2, keys * 2, dim * 2},
                             {"blk.0.attn_gate.weight", grouped.value_size(), 2, 0, dim * 2},
                             {"blk.0.ssm_beta.weight", 6, 2, 0, 2},
                             {"blk.0.ssm_alpha.weight", 6, 2, 0, 2},
                             {"blk.0.ssm_a", 1, 6, 0, 1},
                             {"blk.0.ssm_dt.bias", 1, 6, 0, 1},
                             {"blk.0.ssm_conv1d.weight", 1, grouped.channels() * 3, keys * 3, dim * 3},
                             {"blk.0.ssm_out.weight", 1, grouped.value_size(), 0, dim}}) {
        CAPTURE(kind.name);
        const Numbered from(kind.name, kind.rows, kind.cols);
        const std::vector<float> made = values_of(in_tiled_order(from.tensor, grouped));
        REQUIRE(made.size() == from.values.size());
        for (uint32_t i = 0; i < kind.before; ++i) CHECK(made[i] == float(i));
        for (uint32_t head = 0; head < grouped.value_heads; ++head)
            for (uint32_t i = 0; i < kind.run; ++i)
                CHECK(made[kind.before + head * kind.run + i] == float(kind.before + old_head(head) * kind.run + i));
    }
}

TEST_CASE("other tensors, and heads in one order already, stay") {
    const Numbered norm("blk.0.ssm_norm.weight", 1, 4), q("blk.3.attn_q.weight", 8, 2), gate("blk.0.attn_gate.weight", 8, 2);
    CHECK(values_of(in_tiled_order(norm.tensor, grouped)) == norm.values);
    CHECK(values_of(in_tiled_order(q.tensor, grouped)) == q.values);
    Recurrent equal = grouped;
    equal.value_heads = 2;
    CHECK(values_of(in_tiled_order(gate.tensor, equal)) == gate.values);
}

TEST_CASE("rows of heads in pairs of neighbours are those that halves are made of") {
    const Numbered from("blk.0.attn_q.weight", 16, 3);
    const Tensor neighbours = rope_neighbours(from.tensor, 8);
    CHECK(values_of(neighbours) != from.values);
    CHECK(values_of(rope_split(neighbours, 8)) == from.values);
    CHECK(values_of(neighbours)[3] == 4 * 3); // row 1 is the first of the second half
}
