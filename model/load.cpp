// Brings a model's weights into memory and checks them on the way. Weights mapped from a file stay there, and are only read once,
// for the check. Weights that are made (stacks, conversions, random weights) are made into memory of their own. The check is for
// NaN and infinity in every block, since one such weight spoils all answers without an error. Rows are read in chunks of 256 KiB,
// so that the check, and a copy after it, find them in the core's cache. If several rows are bad, the first is named, whichever
// thread finds it first.
#include "model/load.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

namespace tq {
namespace {

constexpr uint64_t chunk_bytes = 256 << 10; // well within a core's own cache

// Lowers `min` to `row` if that is lower.
void keep_min(std::atomic<uint64_t>& min, uint64_t row) {
    uint64_t seen = min.load();
    while (row < seen && !min.compare_exchange_weak(seen, row)) {
    }
}

[[noreturn]] void fail_damaged(const Tensor& tensor, const std::string& what) {
    fail("{}tensor '{}' has {}: the file is damaged, download it again{}", tensor.file ? *tensor.file + ": " : "", tensor.name,
         what, tensor.of_mtp ? ", or go without its head for multi-token prediction: --spec none" : "");
}

// The products of a norm overflow only if a device multiplies in fp16, so the norm itself is refused, on every device; so are
// biases.
void check_vector(const Tensor& tensor) {
    const std::vector<float> values = to_floats(tensor);
    if (tensor.name.ends_with(".ssm_a") && std::ranges::any_of(values, [](float v) { return v > 0; }))
        fail_damaged(tensor, "a value above 0, by which the state of a recurrent layer would grow without end");
    const auto great = std::ranges::find_if(values, [](float v) { return std::fabs(v) > max_norm_weight; });
    if (great == values.end()) return;
    fail_damaged(tensor, fmt::format("the value {:.3g} at index {}, but norms and biases of working models reach at most {}",
                                     *great, great - values.begin(), max_norm_weight));
}

class Loader {
  public:
    Loader(ThreadPool& pool, const Weights& weights, const LoadProgress& on_progress, MappedMatrices mapped)
        : pool_(pool), on_progress_(on_progress), result_{.weights = weights, .mapped = mapped} {
        for_each_tensor(weights, [this](const Tensor& t) { total_ += is_read(t) ? t.bytes() : 0; });
    }

    LoadedWeights load() {
        for_each_tensor(result_.weights, [this](Tensor& tensor) {
            if (is_read(tensor)) load(tensor);
        });
        if (result_.weights.tied) result_.weights.output = result_.weights.token_embd;
        for (const LayerWeights& layer : result_.weights.layers)
            result_.attention_squares.push_back(attention_squares(pool_, layer));
        if (result_.weights.mtp) result_.attention_squares.push_back(attention_squares(pool_, result_.weights.mtp->layer));
        return std::move(result_);
    }

  private:
    bool is_read(const Tensor& t) const { return result_.mapped == MappedMatrices::check || !t.is_mapped() || t.rows == 1; }

    void load(Tensor& tensor) {
        std::byte* const to = tensor.is_mapped() ? nullptr : allocate(tensor);
        const uint64_t row = tensor.row_bytes();
        const auto max = uint32_t(std::max<uint64_t>(1, progress_bytes / row));
        for (uint32_t r = 0; r < tensor.rows; r += max) {
            const uint32_t count = std::min(max, tensor.rows - r);
            read_rows(pool_, tensor, r, count, [&](uint32_t first, std::span<const std::byte> rows) {
                if (to) std::memcpy(to + first * row, rows.data(), rows.size());
            });
            done_ += count * row;
            if (on_progress_ && !on_progress_(done_, total_)) throw LoadStopped();
        }
        if (!to) return;
        tensor.data = {to, tensor.bytes()};
        tensor.source = nullptr;
    }

    std::byte* allocate(const Tensor& tensor) {
        result_.made_bytes += tensor.bytes();
        return result_.made.emplace_back(new std::byte[tensor.bytes()])
            .get(); // not zeroed: its pages are first touched when filled
    }

    ThreadPool& pool_;
    const LoadProgress& on_progress_;
    uint64_t done_ = 0, total_ = 0;
    LoadedWeights result_;
};

} // namespace

void read_rows(ThreadPool& pool, const Tensor& tensor, uint32_t first, uint32_t count,
               const std::function<void(uint32_t, std::span<const std::byte>)>& body) {
    const uint64_t row = tensor.row_bytes(), row_blocks = tensor.cols / block_format(tensor.type)->elements;
    const auto rows_at_once = uint32_t(std::clamp<uint64_t>(chunk_bytes / row, 1, count));
    const uint32_t chunks = (count + rows_at_once - 1) / rows_at_once;
    std::atomic<uint64_t> bad_row = UINT64_MAX;
    pool.each(chunks, 1, [&](uint32_t begin, uint32_t end) {
        std::vector<std::byte> scratch;
        for (uint32_t chunk = begin; chunk < end; chunk++) {
            const uint32_t r = first + chunk * rows_at_once, n = std::min(rows_at_once, first + count - r);
            const std::span rows = tensor.read(r, n, scratch);
            if (const auto block = find_nonfinite_block(tensor.type, rows)) keep_min(bad_row, r + *block / row_blocks);
            body(r, rows);
        }
    });
    check_mapped_files();
    if (bad_row == UINT64_MAX) {
        if (tensor.rows == 1) check_vector(tensor);
        return;
    }
    fail_damaged(tensor, fmt::format("a weight in row {} that is NaN or infinite", bad_row.load()));
}

LoadedWeights load_weights(ThreadPool& pool, const Weights& weights, const LoadProgress& on_progress, MappedMatrices mapped) {
    return Loader(pool, weights, on_progress, mapped).load();
}

} // namespace tq
