// The bench on which rows run. Outputs are filled with a NaN that no kernel computes (poison), so an element that was never
// written is found, and followed by guard words, so one that was written beyond the end is found. Contexts have room for more
// rows, spans and pages than the row uses, all poison, and page tables are scattered.
// compare() measures ||got - want|| / ||want||, so one limit fits all sizes; if that fails, the elements that are off by more
// than their share are counted and the first and worst named. A row's random numbers follow from the seed and its name alone
// (row_seed), so a row that is run alone gets the inputs that it had among all.
// variants(): the device's own tuning, that of a GPU, that of a CPU driver, vectors in digits, and small odd tiles. So one device
// runs the variants that others would choose.
#include "tools/check/conformance/rig.h"
#include "model/gpu/device_layout.h"
#include "model/gpu/weights.h"
#include "runtime/uploader.h"
#include "tools/check/conformance/evidence.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace tq::conformance {
namespace {

constexpr size_t guard_words = 1024;
constexpr uint32_t guard = 0x4b0dbead;                    // a number: a kernel that works in place would leave a NaN unchanged
constexpr uint64_t min_range_bytes = uint64_t(128) << 20; // of a binding: Vulkan's minimum

std::span<const float> floats(std::span<const uint32_t> words) {
    return {reinterpret_cast<const float*>(words.data()), words.size()};
}

} // namespace

Outcome worse(Outcome a, Outcome b) {
    if (a.passed != b.passed) return a.passed ? b : a;
    const auto share = [](const Outcome& o) { return o.limit > 0 ? o.error / o.limit : o.error; };
    return share(b) > share(a) ? b : a;
}

uint64_t row_seed(uint64_t seed, std::string_view name) {
    uint64_t hash = 0xcbf29ce484222325; // FNV-1a
    for (const char c : name) hash = (hash ^ uint8_t(c)) * 0x100000001b3;
    return seed * 0x9e3779b97f4a7c15 ^ hash;
}

namespace {

// Finds the wrong elements of a result that is wrong as a whole: elements that are off by more than `allowed`, or not a number.
struct WrongElements {
    size_t count = 0, first = 0, worst = 0;

    WrongElements(std::span<const float> got, std::span<const float> want, double allowed) {
        double furthest = -1;
        for (size_t i = 0; i < want.size(); i++) {
            const double difference = std::fabs(double(got[i]) - want[i]);
            if (difference <= allowed) continue;
            if (count++ == 0) first = i;
            if (std::isnan(difference) || difference > furthest) worst = i;
            furthest = std::isnan(difference) ? INFINITY : std::max(furthest, difference);
        }
    }
    std::string text(std::span<const float> got, std::span<const float> want, double allowed) const {
        const auto element = [&](size_t i) {
            return fmt::format("element {} is {:.9g} and should be {:.9g}", i, got[i], want[i]);
        };
        std::string out = fmt::format("{} of {} elements are off by more than {:.2g}, the first: {}", count, want.size(), allowed,
                                      element(first));
        return worst == first ? out : out + ", the worst: " + element(worst);
    }
};

std::span<const uint32_t> words(std::span<const float> values) {
    return {reinterpret_cast<const uint32_t*>(values.data()), values.size()};
}

} // namespace

// A NaN in `got` makes the relative error a NaN, which is not <= any limit, so the outcome fails. `min_norm` is for results near
// 0, whose own norm would make rounding look large.
Outcome compare(std::span<const float> got, std::span<const float> want, double limit, double min_norm) {
    ENSURE(!want.empty() && got.size() >= want.size(), "{} elements of {}", got.size(), want.size());
    double error = 0, squares = 0;
    size_t forgotten = 0;
    for (size_t i = 0; i < want.size(); i++) {
        const double difference = std::fabs(double(got[i]) - want[i]);
        forgotten += std::bit_cast<uint32_t>(got[i]) == poison ? 1 : 0;
        error += difference * difference;
        squares += double(want[i]) * want[i];
    }
    const double norm = std::max(std::sqrt(squares), min_norm), relative = error == 0 ? 0 : std::sqrt(error) / norm;
    Outcome outcome{relative <= limit, relative, limit, {}};
    Evidence::compared("float32", words(got), words(want), outcome.passed, limit * norm);
    if (forgotten != 0) outcome.reason = fmt::format("{} of {} elements were never written, ", forgotten, want.size());
    if (outcome.passed) return outcome;
    const double allowed = limit * norm / std::sqrt(double(want.size())); // the error of one element if all were off by as much
    outcome.reason += WrongElements(got, want, allowed).text(got, want, allowed);
    return outcome;
}

// Returns `want` with the NaNs of `got` where both have one: the processor chooses which NaN a sum gives.
static uint32_t with_nans_of(uint32_t got, uint32_t want) {
    for (const uint32_t half : {0xffffu, 0xffff0000u}) {
        const auto is_nan = [&](uint32_t word) { return (word & half & 0x7fff7fff) > (0x7c007c00 & half); };
        if (is_nan(got) && is_nan(want)) want = (want & ~half) | (got & half);
    }
    return want;
}

Outcome compare_words(std::span<const uint32_t> got, std::span<const uint32_t> all, std::span<const WordRange> halves) {
    std::vector<uint32_t> want(all.begin(), all.end());
    ENSURE(!want.empty() && got.size() >= want.size(), "{} words of {}", got.size(), want.size());
    for (const auto& [begin, count] : halves)
        for (size_t i = begin; i < begin + count; i++) want[i] = with_nans_of(got[i], want[i]);
    size_t differing = 0, first = 0;
    for (size_t i = want.size(); i-- > 0;) {
        if (got[i] == want[i]) continue;
        differing++;
        first = i;
    }
    Outcome outcome{differing == 0, double(differing), 0, {}};
    Evidence::compared("uint32", got, want, outcome.passed, 0, halves);
    if (differing != 0)
        outcome.reason = fmt::format("{} of {} words differ, the first is word {}: {:08x}, and should be {:08x}", differing,
                                     want.size(), first, got[first], want[first]);
    return outcome;
}

Buffer Rig::upload(std::span<const std::byte> content) {
    Buffer result = device.allocate("conformance", std::max<size_t>(content.size(), 16));
    Uploader uploader(device);
    uploader.write(result, content);
    uploader.finish();
    return result;
}

std::vector<uint32_t> Rig::read(const Buffer& from) {
    const Buffer copy = device.allocate("conformance read back", from.bytes(), Memory::readback);
    Recorder recorder(device);
    recorder.copy(copy, from);
    recorder.finish().run();
    std::vector<uint32_t> words(size_t(from.bytes() / 4));
    std::memcpy(words.data(), copy.host().data(), words.size() * 4);
    Evidence::was_read(from, words);
    return words;
}

Buffer Rig::output(size_t words) {
    std::vector<uint32_t> content(words, poison);
    content.resize(words + guard_words, guard);
    return upload(std::as_bytes(std::span(content)));
}

Buffer Rig::output(std::span<const float> content) {
    std::vector<uint32_t> words(content.size() + guard_words, guard);
    std::ranges::copy(std::as_bytes(content), std::as_writable_bytes(std::span(words)).begin());
    return upload(std::as_bytes(std::span(words)));
}

// Values first, then the guard words behind them: both must hold, and a wrong value is reported before an overrun.
Outcome Rig::check(const Buffer& output, std::span<const float> want, double limit, double norm) {
    const std::vector<uint32_t> words = read(output);
    Outcome outcome{true, 0, limit, {}};
    if (!want.empty()) outcome = compare(floats(words).first(want.size()), want, limit, norm); // else the guard words alone
    for (size_t i = words.size() - guard_words; i < words.size() && outcome.passed; i++)
        if (words[i] != guard) {
            outcome.passed = false;
            outcome.reason =
                fmt::format("word {} was overwritten, and the output ends at word {}", i, words.size() - guard_words);
        }
    return outcome;
}

Buffer Rig::context(const gpu::PassRows& rows, std::span<const std::vector<uint32_t>> tables, std::span<const float> rope,
                    uint32_t rotary) {
    size_t pages = 0;
    for (const auto& table : tables) pages = std::max(pages, table.size());
    const gpu::ContextLayout layout{.max_rows = rows.count() + 3, // others lie between the parts
                                    .max_spans = uint32_t(rows.spans.size()) + 1,
                                    .slots = uint32_t(tables.size()),
                                    .table_pages = uint32_t(pages),
                                    .positions = rope.empty() ? 0 : uint32_t(rope.size()) / rotary,
                                    .head_dim = rotary};
    std::vector<uint32_t> content(layout.bytes() / 4, poison);
    const auto bytes = std::as_writable_bytes(std::span(content));
    layout.write_rows(bytes, rows.rows, rows.spans);
    for (uint32_t slot = 0; slot < tables.size(); slot++) layout.write_table(bytes, slot, tables[slot]);
    layout.write_rope(bytes, rope);
    return upload(std::as_bytes(std::span(content)));
}

Buffer Rig::context(uint32_t position, uint32_t tokens, std::span<const float> rope, uint32_t rotary) {
    gpu::PassRows rows;
    rows.add(0, position, std::vector<uint32_t>(tokens), 0, false);
    return context(rows, std::array{scattered_pages(position + tokens)}, rope, rotary);
}

Buffer Rig::head_context(std::span<const uint32_t> rows) {
    const gpu::ContextLayout layout{
        .max_rows = uint32_t(rows.size()) + 3, .max_spans = 1, .slots = 1, .table_pages = 1, .positions = 0, .head_dim = 1};
    std::vector<uint32_t> content(layout.bytes() / 4, poison);
    layout.write_head(std::as_writable_bytes(std::span(content)), rows);
    return upload(std::as_bytes(std::span(content)));
}

std::vector<uint32_t> scattered_pages(uint32_t tokens) {
    std::vector<uint32_t> out(pages_of(tokens));
    for (uint32_t i = 0; i < out.size(); i++) out[i] = 2 * (uint32_t(out.size()) - i) - 1;
    return out;
}

// Returns nothing if a scale cannot be raised.
std::optional<gpu::Matrix> Rig::repacked(const Tensor& tensor, uint32_t max_rows, const gpu::RowLayout& layout) {
    const uint32_t interleave = layout.interleave;
    const uint64_t row = tensor.data.size() / tensor.rows, device_row = gpu::device_row_bytes(tensor.type, tensor.cols);
    const std::span<const std::byte> grid = gpu::device_grid(tensor.type);
    if (max_rows == 0)
        max_rows = uint32_t(std::min<uint64_t>((min_range_bytes - grid.size()) / device_row, gpu::max_slice_rows)) / interleave *
                   interleave;
    gpu::Matrix matrix{.type = tensor.type,
                       .rows = tensor.rows,
                       .cols = tensor.cols,
                       .interleave = interleave,
                       .slices = {},
                       .scale_unit = layout.scale_unit()};
    for (uint32_t first = 0; first < tensor.rows; first += std::min(max_rows, tensor.rows - first)) {
        const uint32_t rows = std::min(max_rows, tensor.rows - first);
        std::vector<std::byte> packed(gpu::device_matrix_bytes(tensor.type, rows, tensor.cols, interleave));
        std::ranges::copy(grid, packed.begin());
        const std::span rows_of_it = std::span(packed).subspan(grid.size());
        if (!gpu::repack_rows(layout, rows_of_it, tensor.data.subspan(first * row, rows * row), 0, 1,
                              tensor.row_factors(first, rows)))
            return std::nullopt;
        matrix.slices.push_back({upload(packed), first, rows});
    }
    return matrix;
}

// Scales are raised if all of a matrix can be; otherwise all stay as they are.
gpu::Matrix Rig::matrix(const Tensor& tensor, uint32_t max_rows, uint32_t interleave) {
    std::optional<gpu::Matrix> matrix = repacked(tensor, max_rows, {tensor.type, tensor.cols, interleave, true});
    return matrix ? std::move(*matrix) : repacked(tensor, max_rows, {tensor.type, tensor.cols, interleave, false}).value();
}

void Rig::run(const gpu::Tuning& with, const Buffer& context, uint32_t tokens, uint32_t head_dim,
              const std::function<void(gpu::Pass&)>& body, uint32_t spans, bool separate) {
    Recorder recorder(device);
    const gpu::Step step{0, tokens};
    gpu::Pass pass{.recorder = recorder,
                   .tuning = with,
                   .context = context,
                   .tokens = tokens,
                   .head_dim = head_dim,
                   .step = step,
                   .spans = spans,
                   .separate = separate};
    body(pass);
    recorder.finish().run();
}

gpu::Tuning without_matrices(gpu::Tuning tuning) {
    tuning.matmul_coopmat = false;
    tuning.attention_coopmat_rows = 0;
    return tuning;
}

// Returns the tunings that rows are run with, so that kernels of other devices are tested here, too: the device's own; the
// tunings for a GPU and for a CPU driver, if they differ from it; products of vectors with int8 digits in another workgroup;
// and small odd sizes with the least shared memory that Vulkan allows.
std::vector<NamedTuning> variants(const Capabilities& device) {
    const gpu::Tuning own = gpu::tuning_for(device);
    std::vector<NamedTuning> out{{"own", own}};
    for (const auto& [name, type] :
         {std::pair("of a GPU", DeviceType::discrete), std::pair("of a CPU driver", DeviceType::cpu)}) {
        Capabilities other = device;
        other.type = type;
        gpu::Tuning tuning = gpu::choose_tuning(other);
        if (device.type == DeviceType::cpu) tuning = without_matrices(tuning); // they have rows that build in time
        if (tuning != own) out.push_back({name, tuning});
    }
    Capabilities gpu = device;
    gpu.type = DeviceType::discrete;
    gpu::Tuning digits = without_matrices(gpu::choose_tuning(gpu));
    if (digits.int8_dot && digits.subgroup >= 8) { // in workgroups that the device would not choose
        digits.matvec_dot = own.matvec_dot == 64 ? 128 : 64;
        digits.matvec_rows = 2;
        out.push_back({vectors_in_digits, digits});
    }
    gpu::Tuning odd = own;
    odd.workgroup = 32;
    odd.matvec_lanes = 32;
    odd.matvec_rows = 1;
    odd.matvec_blocks = 2;
    odd.matmul_rows = 1;
    odd.matmul_tokens = 4;
    odd.attention_rows = 1;
    odd.attention_keys = 2;
    odd.splits = 3;
    odd.weight_interleave = 4;
    odd.fold_norms = true;
    odd.subgroup = odd.decode_subgroups = odd.matvec_dot = 0;
    odd.texel_buffers = odd.attention_per_lane = false;
    odd.shared_bytes = 16384; // the least that a device has
    out.push_back({"small tiles", odd});
    return out;
}

} // namespace tq::conformance
