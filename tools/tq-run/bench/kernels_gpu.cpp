#include "model/gpu/kernels.h"
#include "model/gpu/plan.h"
#include "model/gpu/tuning_file.h"
#include "model/rope.h"
#include "runtime/uploader.h"
#include "tools/tq-run/bench/kernels.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace tq::bench {
namespace {

Buffer upload(Device& device, const char* label, std::span<const std::byte> content) {
    Buffer buffer = device.allocate(label, content.size());
    Uploader uploader(device);
    for (size_t at = 0; at < content.size(); at += Uploader::max_piece_bytes()) {
        const size_t piece = std::min(Uploader::max_piece_bytes(), content.size() - at);
        std::memcpy(uploader.begin(View(buffer, at, piece)).data(), content.data() + at, piece);
        uploader.end();
    }
    uploader.finish();
    return buffer;
}

Buffer upload(Device& device, const char* label, std::span<const float> content) {
    return upload(device, label, std::as_bytes(content));
}

// Position and tokens, which each run writes, followed by the rotary table.
Buffer make_context(Device& device, const CacheShape& shape, uint32_t positions) {
    std::vector<float> content(gpu::context_header_bytes / 4);
    const std::vector<float> table = rope_table(shape.config(), positions);
    content.insert(content.end(), table.begin(), table.end());
    return upload(device, "kernels, context", content);
}

bool projected(const CacheShape& shape) { return is_qjl(shape.kv.k) || is_qjl(shape.kv.v); }

class GpuKernels final : public CacheKernels {
  public:
    GpuKernels(Device& device, const CacheShape& shape, uint32_t length)
        : device_(device), shape_(shape), input_(shape), tuning_(gpu::tuning_for(device.capabilities())),
          cache_(device, shape.config(), shape.kv, (std::max(length, first_block) + 1) / 2 * 2),
          context_(make_context(device, shape, std::max(length, first_block))), k_(upload(device, "kernels, k", input_.k)),
          v_(upload(device, "kernels, v", input_.v)),
          ones_(upload(device, "kernels, w", std::vector<float>(shape.head_dim, 1.0f))),
          q_(device.allocate("kernels, q", 4 * gpu::q_floats(1, shape.heads, shape.head_dim, projected(shape)))),
          y_(device.allocate("kernels, y", input_.q.size() * 4)),
          partials_(device.allocate("kernels, partials",
                                    gpu::partials_bytes(tuning_, 1, shape.heads, shape.head_dim, projected(shape), false))),
          header_(device.allocate("kernels, step", gpu::context_header_bytes, Memory::upload)),
          q_upload_(device.allocate("kernels, q in", input_.q.size() * 4, Memory::upload)),
          y_readback_(device.allocate("kernels, y out", y_.bytes(), Memory::readback)) {
        std::memcpy(q_upload_.host().data(), input_.q.data(), q_upload_.bytes());
    }

    void fill(uint32_t length) override {
        const uint32_t block = std::min(length, first_block);
        step(0, block);
        record(block, 1, [&](gpu::Pass& pass) { append(pass); }).run();
        if (length > block) cache_.repeat(device_, block, length);
    }

    std::vector<float> attention(uint32_t length) override {
        step(length - 1, 1);
        record(1, 1, [&](gpu::Pass& pass) {
            pass.recorder.copy(View(q_, 0, q_upload_.bytes()), q_upload_);
            gpu::q_norm_rope(pass, q_, {ones_}, shape_.heads, cache_eps, cache_.layers[0].k);
            attend(pass);
            pass.recorder.copy(y_readback_, y_);
        }).run();
        const auto* y = reinterpret_cast<const float*>(y_readback_.host().data());
        return {y, y + input_.q.size()};
    }

    double append_seconds(uint32_t tokens) override {
        step(0, tokens);
        return seconds(tokens, [&](gpu::Pass& pass) { append(pass); });
    }
    double attention_seconds() override {
        return seconds(1, [&](gpu::Pass& pass) { attend(pass); });
    }

  private:
    template <class Record> Commands record(uint32_t tokens, uint32_t times, Record kernels) {
        Recorder recorder(device_);
        gpu::Pass pass{recorder, tuning_, context_, tokens, shape_.head_dim, step_};
        for (uint32_t i = 0; i < times; i++) kernels(pass);
        return recorder.finish();
    }
    template <class Record> double seconds(uint32_t tokens, Record kernels) {
        std::optional<Commands> commands; // of `recorded` calls
        uint32_t recorded = 0;
        return seconds_per_call([&](uint32_t times) {
            if (recorded != times) {
                commands.emplace(record(tokens, times, kernels));
                recorded = times;
            }
            commands->run();
        });
    }
    void step(uint32_t position, uint32_t tokens) {
        step_ = {position, tokens};
        const uint32_t header[4] = {position, tokens, 0, 0};
        std::memcpy(header_.host().data(), header, sizeof header);
        Recorder recorder(device_);
        recorder.copy(View(context_, 0, gpu::context_header_bytes), header_);
        recorder.finish().run();
    }
    void append(gpu::Pass& pass) {
        gpu::k_append(pass, cache_, 0, k_, {ones_}, shape_.kv_heads, cache_eps);
        gpu::v_append(pass, cache_, 0, v_, shape_.kv_heads);
    }
    void attend(gpu::Pass& pass) { gpu::attention(pass, y_, partials_, q_, cache_, 0, shape_.heads, shape_.kv_heads); }

    Device& device_;
    const CacheShape shape_;
    const CacheInput input_;
    const gpu::Tuning tuning_;
    gpu::KvCache cache_;
    Buffer context_, k_, v_, ones_, q_, y_, partials_, header_, q_upload_, y_readback_;
    gpu::Step step_{};
};

} // namespace

std::unique_ptr<CacheKernels> make_gpu_kernels(Device& device, const CacheShape& shape, uint32_t length) {
    gpu::require_bindable(device.capabilities(), shape.config(), shape.kv, std::max(length, first_block));
    return std::make_unique<GpuKernels>(device, shape, length);
}

} // namespace tq::bench
