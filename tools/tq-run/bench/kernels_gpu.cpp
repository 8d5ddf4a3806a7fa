// The device's half of bench --kernels. It has the buffers of a real pass in small: context with rows, page table and rotary
// table (ContextLayout), cache, partials. A timing records the kernel `times` times into one command buffer, so that the
// submission is shared, and runs that; it is recorded again only if the number changes. The recorder's barriers between the
// calls are part of the time, as they are in a model.
#include "model/gpu/context.h"
#include "model/gpu/kernels.h"
#include "model/gpu/tuning_file.h"
#include "runtime/uploader.h"
#include "tools/tq-run/bench/kernels.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace tq::bench {
namespace {

// The layout for a single slot, whose pages are in order.
gpu::ContextLayout context_layout(const CacheShape& shape, uint32_t positions) {
    return {.max_rows = first_block,
            .max_spans = 1,
            .slots = 1,
            .table_pages = pages_of(positions),
            .positions = positions,
            .head_dim = shape.head_dim};
}

std::vector<uint32_t> pages_in_order(uint32_t count) {
    std::vector<uint32_t> out(count);
    std::iota(out.begin(), out.end(), 0u);
    return out;
}

class GpuKernels final : public CacheKernels {
  public:
    GpuKernels(Device& device, const CacheShape& shape, uint32_t length)
        : device_(device), shape_(shape), input_(shape), tuning_(gpu::tuning_for(device.capabilities())),
          layout_(context_layout(shape, std::max(length, first_block))),
          cache_(device, shape.config(), shape.kv, layout_.table_pages), table_(pages_in_order(cache_.pages)),
          context_(gpu::make_context(device, shape.config(), layout_)), k_(upload(device, "kernels, k", input_.k)),
          v_(upload(device, "kernels, v", input_.v)),
          ones_(upload(device, "kernels, w", std::vector<float>(shape.head_dim, 1.0f))),
          q_(device.allocate("kernels, q", 4ull * shape.heads * shape.head_dim)),
          y_(device.allocate("kernels, y", input_.q.size() * 4)),
          partials_(device.allocate("kernels, partials", gpu::partials_bytes(tuning_, 1, 1, shape.heads, shape.head_dim, false,
                                                                             KvTypes{shape.kv.k, shape.kv.v}.coded()))),
          header_(device.allocate("kernels, step", layout_.rope_at(), Memory::upload)),
          q_upload_(device.allocate("kernels, q in", input_.q.size() * 4, Memory::upload)),
          y_readback_(device.allocate("kernels, y out", y_.bytes(), Memory::readback)) {
        std::memcpy(q_upload_.host().data(), input_.q.data(), q_upload_.bytes());
    }

    // Only the first block is computed; its stored vectors are repeated up to `length`. Attention's time depends on the number of
    // tokens and not on their values, and a million tokens would take long to make.
    void fill(uint32_t length) override {
        const uint32_t block = std::min(length, first_block);
        step(0, block);
        record(block, 1, [&](gpu::Pass& pass) { append(pass); }).run();
        if (length > block) cache_.repeat(device_, table_, block, length);
    }

    std::vector<float> attention(uint32_t length) override {
        step(length - 1, 1);
        record(1, 1, [&](gpu::Pass& pass) {
            pass.recorder.copy(View(q_, 0, q_upload_.bytes()), q_upload_);
            gpu::q_norm_rope(pass, q_, {}, {ones_}, shape_.heads, cache_eps, cache_.layers[0].k);
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
        gpu::Pass pass{.recorder = recorder,
                       .tuning = tuning_,
                       .context = context_,
                       .tokens = tokens,
                       .head_dim = shape_.head_dim,
                       .step = step_};
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
    // The context's head (rows, spans, page table) changes with each step, and the rotary table behind it stays. So only the
    // bytes before rope_at() are copied.
    void step(uint32_t position, uint32_t tokens) {
        step_ = {position, tokens};
        gpu::PassRows rows;
        rows.add(0, position, std::vector<uint32_t>(tokens), 0, false);
        layout_.write_rows(header_.host(), rows.rows, rows.spans);
        layout_.write_table(header_.host(), 0, table_);
        Recorder recorder(device_);
        recorder.copy(View(context_, 0, layout_.rope_at()), header_);
        recorder.finish().run();
    }
    void append(gpu::Pass& pass) {
        gpu::k_append(pass, cache_, 0, k_, {ones_}, shape_.kv_heads, cache_eps);
        gpu::v_append(pass, cache_, 0, v_, shape_.kv_heads);
    }
    void attend(gpu::Pass& pass) { gpu::attention(pass, y_, partials_, q_, {}, cache_, 0, shape_.heads, shape_.kv_heads); }

    Device& device_;
    const CacheShape shape_;
    const CacheInput input_;
    const gpu::Tuning tuning_;
    const gpu::ContextLayout layout_;
    gpu::DeviceStorage cache_;
    const std::vector<uint32_t> table_;
    Buffer context_, k_, v_, ones_, q_, y_, partials_, header_, q_upload_, y_readback_;
    gpu::Step step_{};
};

} // namespace

std::unique_ptr<CacheKernels> make_gpu_kernels(Device& device, const CacheShape& shape, uint32_t length) {
    gpu::require_bindable(device.capabilities(), shape.config(), shape.kv, pages_of(std::max(length, first_block)));
    return std::make_unique<GpuKernels>(device, shape, length);
}

} // namespace tq::bench
