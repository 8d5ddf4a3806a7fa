// ggml's weight block formats: sizes, and decoding to fp32 exactly as the format defines it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tq {

// The numbers are ggml's type ids as stored in GGUF.
enum class GgmlType : uint32_t {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    IQ2_XXS = 16,
    IQ2_XS = 17,
    IQ3_XXS = 18,
    IQ1_S = 19,
    IQ4_NL = 20,
    IQ3_S = 21,
    IQ2_S = 22,
    IQ4_XS = 23,
    IQ1_M = 29,
    BF16 = 30,
    TQ1_0 = 34,
    TQ2_0 = 35,
    MXFP4 = 39,
    NVFP4 = 40,
    Q1_0 = 41,
    Q2_0 = 42,
};

// All formats that matrices of a model can have. TQ1_0 and Q1_0, which can be decoded, too, become TQ2_0 and Q2_0 when a model is
// loaded.
inline constexpr auto weight_formats = std::array{
    GgmlType::F32,    GgmlType::F16,     GgmlType::BF16,   GgmlType::Q8_0,  GgmlType::Q4_0,    GgmlType::Q4_1,  GgmlType::Q5_0,
    GgmlType::Q5_1,   GgmlType::Q2_K,    GgmlType::Q3_K,   GgmlType::Q4_K,  GgmlType::Q5_K,    GgmlType::Q6_K,  GgmlType::IQ1_S,
    GgmlType::IQ1_M,  GgmlType::IQ2_XXS, GgmlType::IQ2_XS, GgmlType::IQ2_S, GgmlType::IQ3_XXS, GgmlType::IQ3_S, GgmlType::IQ4_NL,
    GgmlType::IQ4_XS, GgmlType::TQ2_0,   GgmlType::MXFP4,  GgmlType::NVFP4, GgmlType::Q2_0,
};

// The offsets in bytes of the fp16 numbers of a block that scale its levels; -1: it has none.
struct BlockScales {
    int scale = -1, minimum = -1;
    float ratio = 0; // minimum / scale at which weights with random levels have mean 0
    // The file's block has the scale in nibbles, the upper ones of four 16-bit words from `scale` on, the lowest first; the block
    // that `arrange` makes has it at `scale`.
    bool in_nibbles = false;
};

// Adjacent fields of a block.
struct BlockPart {
    uint32_t from, bytes;
};

struct BlockFormat {
    const char* name;  // "Q4_K"
    uint32_t elements; // per block, along the row
    uint32_t bytes;    // per block

    // Only set for formats that we can decode.
    void (*decode)(float* y, const std::byte* x, size_t blocks) = nullptr;
    BlockScales scales = {};
    // The parts that a row on a device stores separately, each as an array over the row's blocks; levels first, bytes = 0 ends
    // the list (device_layout.h). They are of the block that `arrange` makes, or of the file's.
    std::array<BlockPart, 3> parts = {};
    void (*arrange)(std::byte* to, const std::byte* from) = nullptr; // device_blocks.h
    std::span<const uint32_t> grid = {};                             // that a matrix on a device begins with (grids.h)
    // Whether weights are these values times a number of the matrix (Tensor::factors), which is stored at the end of a device's
    // rows.
    bool has_factor = false;
};

// Returns nullptr for a type we cannot decode (type_name still names it when ggml knows it: "IQ3_S", else "type 77").
const BlockFormat* block_format(GgmlType type);
std::string type_name(GgmlType type);

// Returns the sizes of any type ggml knows, decodable or not: enough to skip a tensor. nullptr for an unknown type.
const BlockFormat* stored_format(GgmlType type);

// Bytes of one row of `cols` elements. `cols` is a multiple of the block's elements.
uint64_t row_bytes(GgmlType type, uint64_t cols);

// y[cols] = the row's exact fp32 values. Rounding: products of an fp16 scale, an integer scale and an integer level are
// evaluated in fp32 in the order the format's definition gives.
void decode_row(GgmlType type, std::span<float> y, std::span<const std::byte> row);

// Sets the fp16 number that scales a block's levels, and its minimum, if it has one.
void set_block_scales(const BlockFormat& format, std::byte* block, uint16_t scale, uint16_t minimum = 0);

// Index of the first block in `data` that holds a NaN or infinite value or scale. Fast enough to call on every byte of a model.
std::optional<uint64_t> find_nonfinite_block(GgmlType type, std::span<const std::byte> data);

} // namespace tq
