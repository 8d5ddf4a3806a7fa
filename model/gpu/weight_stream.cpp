// Long blocks of a prompt can run a feed-forward network of the CPU on a device, because the product of many rows takes longer on
// the CPU than the upload of its weights. The device has room for two layers' weights. bring(layer) waits until this layer's
// are there, and then begins to repack and upload the next layer's on another thread, while the device runs this one: so a block
// waits for weights only if uploading is slower than computing. The i-th of the streamed layers (not the i-th layer of the model)
// uses room i modulo 2, so a recorded pass always finds a layer's weights in the same buffers. The matrices of a layer are
// recorded before they have content (shape_of); fill() of the first time also decides how their scales are stored, fill_again()
// keeps to that.
#include "model/gpu/weight_stream.h"
#include "base/ensure.h"
#include "base/error.h"
#include <algorithm>

namespace tq::gpu {
namespace {

void add_tensors(std::vector<std::vector<Tensor>>& to, const Tensor& gate, const Tensor& up, const Tensor& down) {
    if (are_pairs(gate, up)) {
        to.push_back({gate, up});
    } else {
        to.push_back({gate});
        to.push_back({up});
    }
    to.push_back({down});
}

// Returns the tensors of each matrix of a feed-forward network: the router's, gate and up, down; and of the expert that all
// tokens have.
std::vector<std::vector<Tensor>> tensors_of(const LayerWeights& w) {
    std::vector<std::vector<Tensor>> out;
    if (w.ffn_gate_inp) out.push_back({*w.ffn_gate_inp});
    add_tensors(out, w.ffn_gate, w.ffn_up, w.ffn_down);
    if (w.shared_expert) add_tensors(out, w.shared_expert->gate, w.shared_expert->up, w.shared_expert->down);
    return out;
}

// Returns the matrices of the layer, in the order of tensors_of().
std::vector<Matrix*> matrices_of(LayerMatrices& m) {
    std::vector<Matrix*> out;
    if (m.ffn_gate_inp) out.push_back(&*m.ffn_gate_inp);
    for (Matrix& matrix : m.ffn_gate_up) out.push_back(&matrix);
    out.push_back(&m.ffn_down);
    if (!m.shared) return out;
    for (Matrix& matrix : m.shared->gate_up) out.push_back(&matrix);
    out.push_back(&m.shared->down);
    return out;
}

// Makes gate_up the matrices of gate and up, one or both; they get their shapes later.
void resize(std::vector<Matrix>& gate_up, const Tensor& gate, const Tensor& up) {
    gate_up.clear();
    for (int count = are_pairs(gate, up) ? 1 : 2; count > 0; count--) gate_up.emplace_back();
}

constexpr uint32_t rooms = 2;

} // namespace

uint64_t WeightStream::device_bytes(const Weights& weights, const std::vector<uint32_t>& layers, uint32_t interleave) {
    std::vector<uint64_t> max; // of each matrix
    for (const uint32_t layer : layers) {
        const auto all = tensors_of(weights.layers[layer]);
        max.resize(std::max(max.size(), all.size()));
        for (size_t i = 0; i < all.size(); i++) {
            const Tensor& first = all[i][0];
            max[i] =
                std::max(max[i], device_matrix_bytes(first.type, uint32_t(all[i].size()) * first.rows, first.cols, interleave));
        }
    }
    uint64_t sum = 0;
    for (const uint64_t bytes : max) sum += bytes;
    return sum * std::min<uint64_t>(rooms, layers.size());
}

WeightStream::WeightStream(Device& device, uint32_t threads, const Weights& weights, const std::vector<uint32_t>& layers,
                           uint32_t interleave, DeviceWeights& into)
    : device_(device), pool_(threads), uploader_(device, pool_, interleave, 0, none_), weights_(weights), into_(into) {
    for (const uint32_t layer : layers) {
        streamed_.push_back({layer});
        LayerMatrices& m = into_.layers[layer];
        const LayerWeights& w = weights.layers[layer];
        resize(m.ffn_gate_up, w.ffn_gate, w.ffn_up);
        if (w.shared_expert) resize(m.shared->gate_up, w.shared_expert->gate, w.shared_expert->up);
        const auto all = tensors_of(w);
        const std::vector<Matrix*> matrices = matrices_of(m);
        for (size_t i = 0; i < all.size(); i++) *matrices[i] = uploader_.shape_of(all[i]);
    }
    in_.resize(std::min<size_t>(rooms, layers.size()));
    rooms_.resize(in_.size());
    for (Room& room : rooms_) make(room);
    for (size_t i = 0; i < streamed_.size(); i++) place(into_.layers[streamed_[i].layer], rooms_[i % rooms_.size()]);
    fill(0); // now, on this thread: it allocates what uploads need
}

WeightStream::~WeightStream() {
    if (arrival_.valid()) arrival_.wait();
}

// Makes room for the largest of each layer's matrices, slice by slice.
void WeightStream::make(Room& room) const {
    std::vector<std::vector<uint64_t>> max;
    for (const Streamed& one : streamed_) {
        const std::vector<Matrix*> matrices = matrices_of(into_.layers[one.layer]);
        max.resize(std::max(max.size(), matrices.size()));
        for (size_t i = 0; i < matrices.size(); i++) {
            const auto& slices = matrices[i]->slices;
            max[i].resize(std::max(max[i].size(), slices.size()));
            for (size_t k = 0; k < slices.size(); k++) max[i][k] = std::max(max[i][k], slices[k].buffer.bytes());
        }
    }
    for (const std::vector<uint64_t>& slices : max) {
        room.emplace_back();
        for (const uint64_t bytes : slices) room.back().push_back(device_.allocate("weights that come and go", bytes));
    }
}

void WeightStream::place(LayerMatrices& layer, const Room& room) {
    const std::vector<Matrix*> matrices = matrices_of(layer);
    for (size_t i = 0; i < matrices.size(); i++)
        for (size_t k = 0; k < matrices[i]->slices.size(); k++) matrices[i]->slices[k].buffer = Buffer(room[i][k].keep());
}

void WeightStream::fill(size_t index) {
    Streamed& one = streamed_[index];
    const auto tensors = tensors_of(weights_.layers[one.layer]);
    const std::vector<Matrix*> matrices = matrices_of(into_.layers[one.layer]);
    for (size_t i = 0; i < tensors.size(); i++) {
        if (!one.filled)
            uploader_.fill(tensors[i], *matrices[i]);
        else if (!uploader_.fill_again(tensors[i], *matrices[i]))
            fail("{}: the weights have changed since the model was loaded: load it again", tensors[i][0].name);
    }
    uploader_.finish();
    one.filled = true;
}

// Waits for the weights that are coming, if any.
void WeightStream::arrive() {
    if (!coming_) return;
    const size_t index = *std::exchange(coming_, std::nullopt);
    arrival_.get();
    in_[index % in_.size()] = index;
}

void WeightStream::bring(uint32_t layer) {
    const auto found = std::ranges::find(streamed_, layer, &Streamed::layer);
    ENSURE(found != streamed_.end(), "layer {}", layer);
    const size_t index = size_t(found - streamed_.begin()), next = index + 1;
    std::optional<size_t>& room = in_[index % in_.size()];
    if (room != index || coming_ == index) arrive();
    if (room != index) {
        room.reset();
        fill(index);
        room = index;
    }
    if (coming_ || next == streamed_.size() || in_[next % in_.size()] == next) return;
    in_[next % in_.size()].reset();
    coming_ = next;
    arrival_ = std::async(std::launch::async, [this, next] { fill(next); });
}

} // namespace tq::gpu
