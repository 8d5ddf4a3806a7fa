// What encodes and decodes vectors for the codec command: the CPU's threads or a device.
#pragma once
#include "model/kv/codec.h"
#include <memory>
#include <string>

namespace tq {

class VectorMachine {
  public:
    virtual ~VectorMachine() = default;

    // codes[n][words] and scales[n][scales] of x[n][head_dim], n <= batch(), and the reverse.
    virtual void encode(std::span<uint32_t> codes, std::span<uint16_t> scales, std::span<const float> x) = 0;
    virtual void decode(std::span<float> x, std::span<const uint32_t> codes, std::span<const uint16_t> scales) = 0;

    // Again what was done last, without moving it to or from a device.
    virtual void encode_again() = 0;
    virtual void decode_again() = 0;

    virtual uint32_t batch() const = 0;
    virtual std::string name() const = 0;
};

// `device`: "cpu", or what Device takes ("": the best one). Throws Error when there is no such device.
std::unique_ptr<VectorMachine> make_vector_machine(const KvCodec& codec, const std::string& device, uint32_t batch);

} // namespace tq
