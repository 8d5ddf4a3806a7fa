// Encodes and decodes vectors on a device with the kernels of the cache: a cache of one layer and one head, whose values are the
// vectors. So `tq-run codec` and the tests of the codec measure what a model runs. Keys are of the smallest type and unused. A
// batch is a pass of one span.
#include "model/gpu/vector_codec.h"
#include "base/ensure.h"
#include "model/gpu/tuning_file.h"
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace tq::gpu {
namespace {

constexpr KvType unused_keys = KvType::tq2; // the smallest

uint32_t batch_within(const Capabilities& caps, uint32_t head_dim, uint32_t batch) {
    const uint64_t room = std::min(caps.storage_range_bytes, caps.allocation_bytes) / (uint64_t(head_dim) * 8);
    return uint32_t(std::min<uint64_t>({batch, caps.max_workgroup_count[1], room}));
}

DeviceStorage one_layer(Device& device, KvCodec codec, uint32_t batch) {
    const uint32_t d = codec.head_dim(), pages = pages_of(batch);
    const CacheLayout layout({unused_keys, codec.type}, d, 1, pages);
    std::vector<LayerCache> layers;
    layers.push_back({{device, {.type = unused_keys, .rotation = make_rotation(RotationKind::wht, 0, KvSide::key, d)}},
                      {device, std::move(codec)},
                      {}});
    layers[0].slices.push_back({device.allocate("vectors, stored", uint64_t(layout.words) * 4), 0, 1, layout});
    return {d, 1, pages, std::move(layers)};
}

ContextLayout layout_for(uint32_t batch) {
    return {.max_rows = batch, .max_spans = 1, .slots = 1, .table_pages = pages_of(batch), .positions = 0, .head_dim = 0};
}

template <class T> T* host(const Buffer& buffer) { return reinterpret_cast<T*>(buffer.host().data()); }

} // namespace

VectorCodec::VectorCodec(Device& device, KvCodec codec, uint32_t batch)
    : device_(device), tuning_(tuning_for(device.capabilities())),
      layout_(layout_for(batch_within(device.capabilities(), codec.head_dim(), batch))),
      cache_(one_layer(device, std::move(codec), layout_.max_rows)),
      context_(device.allocate("vectors, context", layout_.bytes(), Memory::upload)),
      x_in_(device.allocate("vectors, in", 4ull * this->batch() * cache_.head_dim, Memory::upload)),
      x_device_(device.allocate("vectors", x_in_.bytes())),
      x_out_(device.allocate("vectors, out", x_in_.bytes(), Memory::readback)),
      stored_in_(device.allocate("vectors, stored, in", stored().bytes, Memory::upload)),
      stored_out_(device.allocate("vectors, stored, out", stored().bytes, Memory::readback)), step_{0, this->batch()},
      upload_vectors_(record([&](Pass& pass) { pass.recorder.copy(x_device_, x_in_); })),
      download_stored_(record([&](Pass& pass) { pass.recorder.copy(stored_out_, stored()); })),
      upload_stored_(record([&](Pass& pass) { pass.recorder.copy(stored(), stored_in_); })),
      download_vectors_(record([&](Pass& pass) { pass.recorder.copy(x_out_, x_device_); })) {
    std::vector<uint32_t> table(layout_.table_pages);
    std::iota(table.begin(), table.end(), 0u);
    layout_.write_table(context_.host(), 0, table);
}

// Vector i is row i of a pass of one span.
void VectorCodec::write_rows(uint32_t count) {
    std::vector<Row> rows(count);
    for (uint32_t i = 0; i < count; i++) rows[i] = {i, 0, i, count - 1 - i};
    layout_.write_rows(context_.host(), rows, std::array{RowSpan{0, count}});
    step_.tokens = count;
}

template <class Record> Commands VectorCodec::record(Record record_pass) {
    Recorder recorder(device_);
    Pass pass{.recorder = recorder,
              .tuning = tuning_,
              .context = context_,
              .tokens = batch(),
              .head_dim = cache_.head_dim,
              .step = step_};
    record_pass(pass);
    return recorder.finish();
}

View VectorCodec::stored() const {
    const uint64_t first = slice().layout.v_codes;
    return {slice().buffer, first * 4, (slice().layout.words - first) * 4};
}

void VectorCodec::encode(std::span<uint32_t> codes, std::span<uint16_t> scales, std::span<const float> x) {
    ENSURE(x.size() % cache_.head_dim == 0 && x.size_bytes() <= x_in_.bytes(), "{} floats", x.size());
    const auto count = uint32_t(x.size() / cache_.head_dim);
    std::memcpy(host<float>(x_in_), x.data(), x.size_bytes());
    write_rows(count);
    upload_vectors_.run();
    if (!encoder_) encoder_ = record([&](Pass& pass) { v_append(pass, cache_, 0, x_device_, 1); });
    run_encoder();
    download_stored_.run();
    std::memcpy(codes.data(), host<uint32_t>(stored_out_), codes.size_bytes());
    if (scales.empty()) return;
    std::memcpy(scales.data(), host<uint32_t>(stored_out_) + (slice().layout.v_scales - slice().layout.v_codes),
                scales.size_bytes());
}

void VectorCodec::decode(std::span<float> x, std::span<const uint32_t> codes, std::span<const uint16_t> scales) {
    ENSURE(x.size() % cache_.head_dim == 0 && x.size_bytes() <= x_out_.bytes(), "{} floats", x.size());
    std::memcpy(host<uint32_t>(stored_in_), codes.data(), codes.size_bytes());
    if (!scales.empty())
        std::memcpy(host<uint32_t>(stored_in_) + (slice().layout.v_scales - slice().layout.v_codes), scales.data(),
                    scales.size_bytes());
    write_rows(uint32_t(x.size() / cache_.head_dim));
    upload_stored_.run();
    if (!decoder_) decoder_ = record([&](Pass& pass) { kv_decode(pass, x_device_, cache_, 0, KvSide::value, 1); });
    run_decoder();
    download_vectors_.run();
    std::memcpy(x.data(), host<float>(x_out_), x.size_bytes());
}

} // namespace tq::gpu
