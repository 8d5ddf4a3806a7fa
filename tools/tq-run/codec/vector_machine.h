// Encodes and decodes vectors for the codec command: on the CPU's threads or on a device.
#pragma once
#include "model/kv/codec.h"
#include <memory>
#include <string>

namespace tq {

// All machines give the same bytes. One thread at a time uses one.
class VectorMachine {
  public:
    virtual ~VectorMachine() = default;

    // Encodes x[n][head_dim] to codes[n][words] and scales[n][scales], n <= batch(); decode() is the reverse.
    virtual void encode(std::span<uint32_t> codes, std::span<uint16_t> scales, std::span<const float> x) = 0;
    virtual void decode(std::span<float> x, std::span<const uint32_t> codes, std::span<const uint16_t> scales) = 0;

    // Repeats the last operation, without moving data to or from a device.
    virtual void encode_again() = 0;
    virtual void decode_again() = 0;

    virtual uint32_t batch() const = 0;
    virtual std::string name() const = 0;
};

// `device`: "cpu", or what Device takes ("": the best one). Throws Error if the device does not exist.
std::unique_ptr<VectorMachine> make_vector_machine(const KvCodec& codec, const std::string& device, uint32_t batch);

} // namespace tq
