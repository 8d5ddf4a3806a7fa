// Reads and checks weights on all threads: for the device, which repacks and uploads them, and for the CPU, which uses them in
// place.
#pragma once
#include "base/thread_pool.h"
#include "model/progress.h"
#include "model/weights/channel_scales.h"
#include <functional>
#include <memory>
#include <vector>

namespace tq {

inline constexpr uint64_t progress_bytes = 16 << 20; // between two calls of LoadProgress

// One rule for all devices, so that a damaged model fails on each: no weight is NaN or infinite, and none of a norm or bias
// exceeds this, fp16's greatest number. An overflow in spite of that is found in the results (Forward::run()), possibly later if
// numbers have more range.
constexpr float max_norm_weight = 65504;

// Calls body(r, rows) for all rows first .. first + count - 1 of a tensor, a few hundred KiB of them at a time, so that they
// are still in the cache when they are used, on all threads. body must not throw. Throws an Error naming the tensor and row
// when a weight is NaN, infinite or, in a norm or bias, beyond max_norm_weight; or naming the file when it has been truncated.
void read_rows(ThreadPool& pool, const Tensor& tensor, uint32_t first, uint32_t count,
               const std::function<void(uint32_t r, std::span<const std::byte> rows)>& body);

// Whether load_weights() checks matrices in mapped files. `leave`: if they exceed memory, pages that were read now would be
// evicted before use.
enum class MappedMatrices { check, leave };

// Weights that all have an address: in the mapped files, or in `made`, if a RowSource made them.
struct LoadedWeights {
    Weights weights;
    std::vector<std::unique_ptr<std::byte[]>> made;
    uint64_t made_bytes = 0;
    MappedMatrices mapped = MappedMatrices::check;
    std::vector<AttentionSquares> attention_squares = {}; // of each layer, and of a head's for multi-token prediction
};

// Reads every byte once, except matrices that are left. Throws as read_rows() does, and LoadStopped.
LoadedWeights load_weights(ThreadPool& pool, const Weights& weights, const LoadProgress& on_progress = {},
                           MappedMatrices mapped = MappedMatrices::check);

} // namespace tq
