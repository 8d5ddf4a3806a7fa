// Measures the most that a device can do: GB/s of reading and copying, GFLOP/s of fp32, fp16, int8 dot products and cooperative
// matrices. Shares in other tables are of these measured limits, not of data sheets. Each measurement repeats its dispatch in one
// command buffer until that takes 15 ms, and the best of three counts, since anything else that runs can only make it slower.
// Each kernel's result is known beforehand and compared: sums of a known filling modulo 2^32, chains that count (exact in fp16,
// too), dot products that the host repeats. A driver that leaves work out or computes wrongly ends the measurement instead of
// setting a record.
#include "tools/tq-run/bench/limits.h"
#include "base/error.h"
#include "base/stopwatch.h"
#include "bench_shaders.gen.h"
#include "runtime/recorder.h"
#include "runtime/subgroup_size.h"
#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>

namespace tq::bench {
namespace {

constexpr uint32_t workgroup = 128, block_vectors = workgroup * 32,
                   vector_bytes = 16; // as in tools/tq-run/bench/shaders/block.glsl
constexpr uint32_t chains = 12, iterations = 1000;
constexpr double limit_seconds = 0.015; // of one timing: launching is little of it
constexpr int timings = 3;              // the best counts

constexpr uint32_t hash_factor = 2654435761u;

class LimitBench {
  public:
    explicit LimitBench(Device& device);
    Limits measure();

  private:
    void fill();
    void check_read(const Buffer& from, const char* what);
    double read_gb_per_s();
    double copy_gb_per_s();
    double matrices();
    template <const auto& shader>
    double arithmetic(const ParamsOf<shader>& params, uint32_t flops, const std::array<uint32_t, 4>& want);
    template <class Record> double best_seconds(Record record);
    void download(const Buffer& from);

    Device& device_;
    const uint32_t arithmetic_groups_;
    uint32_t vectors_; // in each of the two buffers that are copied; whole blocks
    Buffer x_, y_, out_, readback_;
};

uint32_t groups_for(DeviceType type) { return type == DeviceType::discrete ? 16384 : type == DeviceType::cpu ? 256 : 4096; }

// Well beyond any cache, and no more than a quarter of the free memory.
uint32_t vectors_for(const Device& device) {
    const uint64_t requested = device.capabilities().type == DeviceType::cpu ? 128u << 20 : 512u << 20;
    const uint64_t bytes = std::min({requested, device.available_bytes() / 4, device.capabilities().storage_range_bytes,
                                     uint64_t(device.capabilities().max_workgroup_count[0]) * workgroup * vector_bytes});
    return uint32_t(std::max<uint64_t>(bytes / vector_bytes / block_vectors, 1)) * block_vectors;
}

LimitBench::LimitBench(Device& device)
    : device_(device), arithmetic_groups_(groups_for(device.capabilities().type)), vectors_(vectors_for(device)),
      x_(device.allocate("limits, x", uint64_t(vectors_) * vector_bytes)), y_(device.allocate("limits, y", x_.bytes())),
      out_(device.allocate("limits, out", std::max(vectors_ / 32, arithmetic_groups_ * workgroup) * 4ull)),
      readback_(device.allocate("limits, read back", out_.bytes(), Memory::readback)) {}

// The best time of the commands of record(recorder), in seconds; repeated until they can be timed.
// Repetitions lie in one command buffer, so that the submission counts once. Their number grows by what the last time asks for,
// at least 2 and at most 64 times, until one run is long enough.
template <class Record> double LimitBench::best_seconds(Record record) {
    for (uint32_t repeats = 1;;) {
        Recorder recorder(device_);
        for (uint32_t i = 0; i < repeats; i++) record(recorder);
        Commands commands = recorder.finish();
        double best = 1e9;
        for (int i = 0; i < timings + 1; i++) { // the first warms up
            const Stopwatch stopwatch;
            commands.run();
            best = std::min(best, stopwatch.seconds());
            if (best > 20 * limit_seconds) break; // a slow device needs no more repetitions
        }
        if (best >= limit_seconds || repeats >= 4096) return best / repeats;
        repeats *= uint32_t(std::clamp(1.3 * limit_seconds / best, 2.0, 64.0));
    }
}

void LimitBench::download(const Buffer& from) {
    Recorder recorder(device_);
    recorder.copy(readback_, from);
    recorder.finish().run();
}

void LimitBench::fill() {
    Recorder recorder(device_);
    const uint32_t groups = vectors_ / workgroup;
    recorder.dispatch<bench_shader::limits_fill>({groups}, {}, {vectors_}, {x_.bytes(), 0}, x_);
    recorder.finish().run();
}

// The sum of all words w * hash_factor, modulo 2^32.
void LimitBench::check_read(const Buffer& from, const char* what) {
    Recorder recorder(device_);
    recorder.dispatch<bench_shader::limits_read>({vectors_ / block_vectors}, {}, {vectors_}, {from.bytes(), 0}, out_, from);
    recorder.finish().run();
    download(out_);
    const uint64_t words = uint64_t(vectors_) * 4;
    const auto want = uint32_t(words % 2 == 0 ? words / 2 * (words - 1) : words * ((words - 1) / 2)) * hash_factor;
    const std::span sums(reinterpret_cast<const uint32_t*>(readback_.host().data()), vectors_ / 32);
    uint32_t got = 0;
    for (const uint32_t sum : sums) got += sum;
    if (got != want)
        fail("{} {} {} bytes wrongly (their sum is {:08x}, not {:08x}): no measurement of it would mean anything; check the "
             "driver with tq-run conformance",
             device_.capabilities().name, what, from.bytes(), got, want);
}

double LimitBench::read_gb_per_s() {
    check_read(x_, "reads");
    const double seconds = best_seconds([&](Recorder& recorder) {
        recorder.dispatch<bench_shader::limits_read>({vectors_ / block_vectors}, {}, {vectors_}, {x_.bytes(), 0}, out_, x_);
    });
    return double(x_.bytes()) * 1e-9 / seconds;
}

// The copy is checked after it was timed, by reading the target as read_gb_per_s() reads the source.
double LimitBench::copy_gb_per_s() {
    const double seconds = best_seconds([&](Recorder& recorder) {
        recorder.dispatch<bench_shader::limits_copy>({vectors_ / block_vectors}, {}, {vectors_}, {2 * x_.bytes(), 0}, y_, x_);
    });
    check_read(y_, "copies");
    return double(x_.bytes()) * 2e-9 / seconds;
}

// Returns 1e9 operations per second; a step of a chain is `flops` operations. want[i]: the expected bits of invocations 4 n + i.
// Several independent chains in each invocation hide the latency of one instruction. The chains' results depend on the
// parameters, which the compiler does not know, so it cannot compute them beforehand; and they are compared, so it cannot leave
// them out.
template <const auto& shader>
double LimitBench::arithmetic(const ParamsOf<shader>& params, uint32_t flops, const std::array<uint32_t, 4>& want) {
    const uint64_t invocations = uint64_t(arithmetic_groups_) * workgroup, all = invocations * chains * iterations * flops;
    const double seconds = best_seconds([&](Recorder& recorder) {
        recorder.dispatch<shader>({arithmetic_groups_}, {}, params, {invocations * 4, all}, out_);
    });
    download(out_);
    const std::span got(reinterpret_cast<const uint32_t*>(readback_.host().data()), invocations);
    for (size_t i = 0; i < got.size(); i++)
        if (got[i] != want[i % 4])
            fail("{} computes {} wrongly (invocation {} has {:08x}, not {:08x}): no measurement of it would mean anything; check "
                 "the driver with tq-run conformance",
                 device_.capabilities().name, shader.name, i, got[i], want[i % 4]);
    return double(all) * 1e-9 / seconds;
}

// The sums of chains that count from 0 to 11, plus 0 to 3: exact in fp16 too.
std::array<uint32_t, 4> counted() {
    std::array<uint32_t, 4> want;
    for (uint32_t i = 0; i < 4; i++)
        want[i] = std::bit_cast<uint32_t>(float(chains * (iterations + i) + chains * (chains - 1) / 2));
    return want;
}

// a += the sum of a's four bytes, as signed numbers.
std::array<uint32_t, 4> dotted() {
    std::array<uint32_t, 4> want{};
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t chain = 0; chain < chains; chain++) {
            uint32_t a = chain * hash_factor + i;
            for (uint32_t n = 0; n < iterations; n++) {
                int32_t sum = 0;
                for (uint32_t byte = 0; byte < 4; byte++) sum += int8_t(a >> (8 * byte));
                a += uint32_t(sum);
            }
            want[i] ^= a;
        }
    return want;
}

#if TQ_COOPERATIVE_MATRIX
// 1e9 operations per second of subgroups that multiply matrices. Every product of a chain adds 1.
double LimitBench::matrices() {
    constexpr uint32_t matrix_chains = 4;
    const Capabilities& device = device_.capabilities();
    const MatrixShape& matrix = device.matrix;
    const uint32_t elements = matrix.m * matrix.n;
    const auto groups = uint32_t(std::min<uint64_t>(out_.bytes() / 4 / elements, device.max_workgroup_count[0]));
    const uint64_t all = uint64_t(groups) * matrix_chains * iterations * 2 * elements * matrix.k;
    const double seconds = best_seconds([&](Recorder& recorder) {
        recorder.dispatch<bench_shader::limits_coopmat>(
            {groups}, {.workgroup = matrix_subgroup_size(device), .m = matrix.m, .n = matrix.n, .k = matrix.k},
            {iterations, 1, 1 / float(matrix.k)}, {uint64_t(groups) * elements * 4, all}, out_);
    });
    download(out_);
    const std::span got(reinterpret_cast<const float*>(readback_.host().data()), size_t(groups) * elements);
    const auto want = float(matrix_chains * iterations + 6); // 0 + 1 + 2 + 3
    if (std::ranges::any_of(got, [&](float v) { return v != want; }))
        fail("{} multiplies matrices wrongly: no measurement of it would mean anything; check the driver with tq-run conformance",
             device.name);
    return double(all) * 1e-9 / seconds;
}
#endif

Limits LimitBench::measure() {
    Limits limits;
    fill();
    limits.read_gb_per_s = read_gb_per_s();
    limits.copy_gb_per_s = copy_gb_per_s();
    const limits_fma_params count{iterations, 1, 1};
    limits.fp32_gflops = arithmetic<bench_shader::limits_fma_fp32>(count, 2, counted());
    const Capabilities& device = device_.capabilities();
    if (device.float16) limits.fp16_gflops = arithmetic<bench_shader::limits_fma_fp16>(count, 2, counted());
    if (device.int8_dot_product)
        limits.int8_dot_gops = arithmetic<bench_shader::limits_dot_int8>({iterations, 0x01010101}, 8, dotted());
#if TQ_COOPERATIVE_MATRIX
    if (device.cooperative_matrix) limits.cooperative_matrix_gflops = matrices();
#endif
    return limits;
}

} // namespace

Limits measure_limits(Device& device) { return LimitBench(device).measure(); }

std::string limits_table(const nlohmann::ordered_json& limits) {
    std::string text;
    const auto add = [&](const char* what, const char* key, const char* unit) {
        const auto& value = limits.at(key);
        text += value.is_null() ? fmt::format("{:<28}not measured\n", what)
                                : fmt::format("{:<28}{:>12.1f} {}\n", what, value.get<double>(), unit);
    };
    add("reading of memory", "read_gb_per_s", "GB/s");
    add("copying (read and written)", "copy_gb_per_s", "GB/s");
    add("fp32 multiply-add", "fp32_gflops", "GFLOP/s");
    add("fp16 multiply-add", "fp16_gflops", "GFLOP/s");
    add("int8 dot product", "int8_dot_gops", "GOP/s");
    add("cooperative matrix", "cooperative_matrix_gflops", "GFLOP/s");
    return text;
}

} // namespace tq::bench
