// Streams the weights of feed-forward networks that are on the CPU to a device, which runs them in long blocks. Double-buffered:
// while one layer's are in use, the next layer's are uploaded.
#pragma once
#include "model/gpu/weight_uploader.h"
#include <future>

namespace tq::gpu {

class WeightStream {
  public:
    // `into` gets matrices of these layers, at least one, whose content bring() replaces. `weights` has all of them; both outlive
    // this. `threads`: to repack on. Throws as upload_weights() does.
    WeightStream(Device& device, uint32_t threads, const Weights& weights, const std::vector<uint32_t>& layers,
                 uint32_t interleave, DeviceWeights& into);
    ~WeightStream(); // waits for the weights that are coming

    // Returns when the weights of this layer are there, and begins with those of the next. No pass may be running.
    void bring(uint32_t layer);

    // Returns the bytes that it will allocate; 0 for no layers.
    static uint64_t device_bytes(const Weights& weights, const std::vector<uint32_t>& layers, uint32_t interleave);

  private:
    // Buffers for one layer: of each matrix, those of its slices.
    using Room = std::vector<std::vector<Buffer>>;

    struct Streamed {
        uint32_t layer;
        bool filled = false; // whether its scales are raised is then fixed in the recordings
    };
    void make(Room& room) const;
    static void place(LayerMatrices& layer, const Room& room);
    void fill(size_t index);
    void arrive();

    Device& device_;
    ThreadPool pool_;
    const LoadProgress none_;
    WeightUploader uploader_;
    const Weights& weights_;
    DeviceWeights& into_;
    std::vector<Streamed> streamed_;
    std::vector<Room> rooms_;               // for the layers in turn
    std::vector<std::optional<size_t>> in_; // index in streamed_ of the layer that a room has
    std::optional<size_t> coming_;
    std::future<void> arrival_; // of coming_
};

} // namespace tq::gpu
