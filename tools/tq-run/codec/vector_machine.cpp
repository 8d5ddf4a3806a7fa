// The codec on the CPU's threads or on a device, behind one interface, for files and timings. encode() and decode() move vectors
// and compute; the _again() functions compute once more on the data that is there, so that a timing has no transfers. The CPU
// keeps the spans of the last call for that, which must stay valid.
#include "tools/tq-run/codec/vector_machine.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/thread_pool.h"
#include "model/gpu/vector_codec.h"
#include "tools/tq-run/engine/choose_device.h"
#include <fmt/format.h>

namespace tq {
namespace {

// The spans of the last call are kept, so that the same work can be repeated for its time. They must outlive the machine's use.
class Cpu : public VectorMachine {
  public:
    Cpu(KvCodec codec, uint32_t batch) : codec_(std::move(codec)), batch_(batch) {}

    void encode(std::span<uint32_t> codes, std::span<uint16_t> scales, std::span<const float> x) override {
        codes_out_ = codes, scales_out_ = scales, x_in_ = x;
        encode_again();
    }

    void decode(std::span<float> x, std::span<const uint32_t> codes, std::span<const uint16_t> scales) override {
        x_out_ = x, codes_in_ = codes, scales_in_ = scales;
        decode_again();
    }

    void encode_again() override {
        const size_t d = codec_.head_dim(), words = codec_.words(), scales = codec_.scales();
        each_vector(x_in_.size() / d, [&](size_t i) {
            tq::encode(codec_, codes_out_.subspan(i * words, words), scales_out_.subspan(i * scales, scales),
                       x_in_.subspan(i * d, d));
        });
    }

    void decode_again() override {
        const size_t d = codec_.head_dim(), words = codec_.words(), scales = codec_.scales();
        each_vector(x_out_.size() / d, [&](size_t i) {
            tq::decode(codec_, x_out_.subspan(i * d, d), codes_in_.subspan(i * words, words),
                       scales_in_.subspan(i * scales, scales));
        });
    }

    uint32_t batch() const override { return batch_; }
    std::string name() const override { return fmt::format("CPU, {} threads", pool_.threads()); }

  private:
    template <class Body> void each_vector(size_t count, Body body) {
        pool_.each(uint32_t(count), 64, [&](uint32_t begin, uint32_t end) {
            for (uint32_t i = begin; i < end; i++) body(i);
        });
    }

    const KvCodec codec_;
    const uint32_t batch_;
    ThreadPool pool_;
    std::span<uint32_t> codes_out_;
    std::span<uint16_t> scales_out_;
    std::span<float> x_out_;
    std::span<const uint32_t> codes_in_;
    std::span<const uint16_t> scales_in_;
    std::span<const float> x_in_;
};

class OnDevice : public VectorMachine {
  public:
    OnDevice(const KvCodec& codec, std::unique_ptr<Device> device, uint32_t batch)
        : device_(std::move(device)), codec_(*device_, codec, batch) {}

    void encode(std::span<uint32_t> codes, std::span<uint16_t> scales, std::span<const float> x) override {
        codec_.encode(codes, scales, x);
    }
    void decode(std::span<float> x, std::span<const uint32_t> codes, std::span<const uint16_t> scales) override {
        codec_.decode(x, codes, scales);
    }
    void encode_again() override { codec_.run_encoder(); }
    void decode_again() override { codec_.run_decoder(); }
    uint32_t batch() const override { return codec_.batch(); }
    std::string name() const override { return printable(device_->capabilities().name); }

  private:
    std::unique_ptr<Device> device_;
    gpu::VectorCodec codec_;
};

} // namespace

std::unique_ptr<VectorMachine> make_vector_machine(const KvCodec& codec, const std::string& device, uint32_t batch) {
    if (device == "cpu") return std::make_unique<Cpu>(codec, batch);
    auto opened = choose_device(device, WithoutGpu::software);
    if (!opened) fail("no Vulkan driver can be used: give --device cpu");
    return std::make_unique<OnDevice>(codec, std::move(opened), batch);
}

} // namespace tq
