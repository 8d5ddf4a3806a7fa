// The environment of a row: a device, seeded inputs, buffers that detect missing and out-of-bounds writes, and comparison.
#pragma once
#include "base/thread_pool.h"
#include "model/gpu/context.h"
#include "model/gpu/device_layout.h"
#include "model/gpu/kernels.h"
#include "model/gpu/tuning_file.h"
#include "model/kv/turboquant.h"
#include "runtime/device.h"
#include "tools/check/conformance/row.h"
#include "tools/check/conformance/vectors/random.h"
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

namespace tq::conformance {

// A seed for the row `name` of a run: rows do not depend on which other rows run before them.
uint64_t row_seed(uint64_t seed, std::string_view name);

// The content of untouched words of an output: a NaN that no kernel produces.
inline constexpr uint32_t poison = 0xffdeadbe;

// Passes if the error, ||got - want|| / ||want||, is at most `limit`; it is not finite if `got` is not. Names the element
// that is furthest off. `norm` replaces ||want|| if it is greater: of few sums whose terms cancel, an error relative to the
// result says little.
Outcome compare(std::span<const float> got, std::span<const float> want, double limit, double norm = 0);

// Requires every word to be equal.
// `halves`: ranges of words that are two fp16 numbers, of which any NaN is as good as any other.
Outcome compare_words(std::span<const uint32_t> got, std::span<const uint32_t> want, std::span<const WordRange> halves = {});

class Rig {
  public:
    Rig(std::string_view device_selector, std::filesystem::path model)
        : device(device_selector), model(std::move(model)), tuning(gpu::tuning_for(device.capabilities())) {}

    Device device;
    const std::filesystem::path model; // the demo; empty if it was not found
    ThreadPool pool;
    Random random{0}; // seeded for each row
    gpu::Tuning tuning;

    Buffer upload(std::span<const std::byte> content);
    Buffer upload(std::span<const float> values) { return upload(std::as_bytes(values)); }
    std::vector<uint32_t> read(const Buffer& from);

    // An output buffer: `content`, or `words` words of poison, followed by guard words. check() reads it back.
    Buffer output(size_t words);
    Buffer output(std::span<const float> content);
    // Runs compare() on the first want.size() elements; fails too when the guard words have changed.
    Outcome check(const Buffer& output, std::span<const float> want, double limit, double norm = 0);

    // Makes the buffer of shaders/context.glsl: for rows of slots with these page tables, or for `tokens` tokens of one slot from
    // `position` on, with scattered_pages(). rope: a table of `rotary` channels.
    Buffer context(const gpu::PassRows& rows, std::span<const std::vector<uint32_t>> tables, std::span<const float> rope = {},
                   uint32_t rotary = 0);
    Buffer context(uint32_t position, uint32_t tokens, std::span<const float> rope = {}, uint32_t rotary = 0);
    // The head's context, for these rows.
    Buffer head_context(std::span<const uint32_t> rows);
    // Uploads a matrix in slices of at most `max_rows` rows; 0: as on a device that binds no more than 128 MiB, the least that
    // Vulkan allows.
    gpu::Matrix matrix(const Tensor& tensor, uint32_t max_rows, uint32_t interleave);
    // Records body(pass) for at most `tokens` rows in `spans` spans, or for separate rows, and runs it.
    void run(const gpu::Tuning& tuning, const Buffer& context, uint32_t tokens, uint32_t head_dim,
             const std::function<void(gpu::Pass&)>& body, uint32_t spans = 1, bool separate = false);

  private:
    std::optional<gpu::Matrix> repacked(const Tensor& tensor, uint32_t max_rows, const gpu::RowLayout& layout);
};

// Returns the pages of `tokens` tokens of a slot in a cache of pages_for(tokens) pages: not in order, and with others between
// them.
std::vector<uint32_t> scattered_pages(uint32_t tokens);
constexpr uint32_t pages_for(uint32_t tokens) { return 2 * pages_of(tokens) + 1; }

// A matrix of random blocks in a weight format, with scales that keep products near 2^exponent.
struct RandomTensor {
    std::vector<std::byte> bytes;
    Tensor tensor;

    RandomTensor(Random& random, GgmlType type, uint32_t rows, uint32_t cols, int exponent = 0);
};

// A tuning that kernels are tested with: the device's own choice, and others that a device could be given.
struct NamedTuning {
    std::string name;
    gpu::Tuning tuning;
};
inline constexpr const char* vectors_in_digits = "vectors in digits"; // that of matvec_dot
std::vector<NamedTuning> variants(const Capabilities& device);
// Returns the tuning without kernels of cooperative matrices.
gpu::Tuning without_matrices(gpu::Tuning tuning);

} // namespace tq::conformance
