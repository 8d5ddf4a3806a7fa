// The codec on a device: the cache's own kernels, v_append and kv_decode, on vectors from the host.
#pragma once
#include "model/gpu/context.h"
#include "model/gpu/kernels.h"

namespace tq::gpu {

class VectorCodec {
  public:
    // At most `batch` vectors at a time; fewer if the device has less room: see batch(). Throws Error when memory runs out.
    VectorCodec(Device& device, KvCodec codec, uint32_t batch);
    VectorCodec(const VectorCodec&) = delete;
    VectorCodec& operator=(const VectorCodec&) = delete;

    const KvCodec& codec() const { return cache_.layers[0].v; }
    uint32_t batch() const { return layout_.max_rows; }

    // codes[n][words] and scales[n][scales] of x[n][head_dim], n <= batch(): the same bytes as encode() in model/kv/codec.h.
    void encode(std::span<uint32_t> codes, std::span<uint16_t> scales, std::span<const float> x);
    // The reverse: the same values as decode().
    void decode(std::span<float> x, std::span<const uint32_t> codes, std::span<const uint16_t> scales);

    // Run the kernels alone, on the vectors of the last encode() or decode(), for timing.
    void run_encoder() { encoder_->run(); }
    void run_decoder() { decoder_->run(); }

  private:
    template <class Record> Commands record(Record record_pass);
    void write_rows(uint32_t count);
    const CacheSlice& slice() const { return cache_.layers[0].slices[0]; }
    View stored() const; // the part of the slice that holds the vectors

    Device& device_;
    Tuning tuning_;
    ContextLayout layout_; // of context_
    DeviceStorage cache_;  // one layer of one head: vector i is the value at position i
    Buffer context_, x_in_, x_device_, x_out_, stored_in_, stored_out_;
    Step step_;
    Commands upload_vectors_, download_stored_, upload_stored_, download_vectors_;
    std::optional<Commands> encoder_, decoder_; // made on first use: some drivers take long to compile a kernel
};

} // namespace tq::gpu
