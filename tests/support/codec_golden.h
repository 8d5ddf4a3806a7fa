// tests/data/codec_golden.bin: vectors at the limits of encoders with their stored bytes for every codec, as of when the format
// was fixed. make_codec_golden writes it; codec_test and gpu_million_test read it.
#pragma once
#include "model/kv/codec.h"
#include <filesystem>

namespace tq::test {

// Every type with each rotation and scale rule that changes its bytes.
std::vector<KvCodec> all_codecs(uint32_t head_dim, uint32_t layer, KvSide side);
std::string describe(const KvCodec& codec); // "tq4, head_dim 128, haar, norm"

struct Stored {
    std::vector<uint32_t> codes; // [vectors][words]
    std::vector<uint16_t> scales;
    bool operator==(const Stored&) const = default;
};

// The bytes that the CPU stores for x[vectors][head_dim]; and the vectors that they decode to.
Stored encoded(const KvCodec& codec, std::span<const float> x);
std::vector<float> decoded(const KvCodec& codec, const Stored& stored);

struct GoldenVectors {
    KvCodec codec;
    std::vector<float> x; // [vectors][head_dim]
    Stored stored;
};

std::vector<GoldenVectors> make_codec_golden(); // with today's codec
void write_codec_golden(const std::filesystem::path& path, const std::vector<GoldenVectors>& golden);
std::vector<GoldenVectors> read_codec_golden(const std::filesystem::path& path); // throws Error

} // namespace tq::test
