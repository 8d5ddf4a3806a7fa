#include "model/kv/window.h"
#include "base/ensure.h"
#include "base/half.h"
#include <array>

namespace tq {

void encode_window(const KvCodec& codec, std::span<uint32_t> words, std::span<const float> x) {
    ENSURE(x.size() == codec.head_dim() && words.size() == x.size() / 2, "{} words of {}", words.size(), x.size());
    std::array<float, 256> storage;
    const std::span y(storage.data(), x.size());
    std::ranges::copy(x, y.begin());
    if (is_turboquant(codec.type)) rotate(y, codec.rotation);
    for (size_t i = 0; i < words.size(); i++)
        words[i] = float_to_half(y[2 * i] * window_unit) | uint32_t(float_to_half(y[2 * i + 1] * window_unit)) << 16;
}

void decode_window(std::span<float> y, std::span<const uint32_t> words) {
    for (size_t i = 0; i < y.size(); i++) y[i] = half_to_float(uint16_t(words[i / 2] >> (16 * (i % 2)))) / window_unit;
}

} // namespace tq
