// tq-run codec bench: checks the bytes of CPU and device against each other, then times both. Codes, scales and decoded values
// must be equal bit for bit; else nothing is timed. A device's time is that of its kernels (run_encoder, run_decoder), without
// transfers; the CPU's is the wall clock over all threads. The first of all runs is not counted.
#include "base/error.h"
#include "base/statistics.h"
#include "base/stopwatch.h"
#include "tools/tq-run/codec/codec.h"
#include "tools/tq-run/codec/vector_machine.h"
#include <algorithm>
#include <bit>
#include <chrono>
#include <random>

namespace tq {
namespace {

constexpr KvType types[] = {KvType::f16, KvType::tq8, KvType::tq4, KvType::tq3, KvType::tq2, KvType::q8_0, KvType::q4_0};

struct Batch {
    std::vector<uint32_t> codes;
    std::vector<uint16_t> scales;
    std::vector<float> x;

    Batch(const KvCodec& codec, size_t count)
        : codes(count * codec.words()), scales(count * codec.scales()), x(count * codec.head_dim()) {}
};

std::vector<float> random_vectors(size_t size) { // 16 uniform bits each: sufficient for timing, and quick to make
    std::mt19937 random(1);
    std::vector<float> x(size);
    for (float& v : x) v = (float(random() & 0xffff) - 32767.5f) * 0x1p-15f;
    return x;
}

// Throws Error at the first vector whose bytes or decoded values differ.
void compare(const KvCodec& codec, const Batch& right, const Batch& other, size_t count, const std::string& machine) {
    const auto same = [](auto a, auto b, size_t n, size_t length) {
        return std::equal(a.begin() + ptrdiff_t(n * length), a.begin() + ptrdiff_t((n + 1) * length),
                          b.begin() + ptrdiff_t(n * length), [](auto p, auto q) {
                              return std::bit_cast<std::array<uint8_t, sizeof p>>(p) ==
                                     std::bit_cast<std::array<uint8_t, sizeof q>>(q);
                          });
    };
    for (size_t n = 0; n < count; n++)
        if (!same(std::span(right.codes), std::span(other.codes), n, codec.words()) ||
            !same(std::span(right.scales), std::span(other.scales), n, codec.scales()) ||
            !same(std::span(right.x), std::span(other.x), n, codec.head_dim()))
            fail("{} encodes or decodes vector {} of {} differently from the CPU, so nothing is timed", machine, n,
                 name(codec.type));
}

// The first run is not timed: it compiles, allocates and warms caches.
double median_seconds(uint32_t rounds, const std::function<void()>& work) {
    std::vector<double> seconds;
    work();
    for (uint32_t i = 0; i < rounds; i++) {
        const Stopwatch stopwatch;
        work();
        seconds.push_back(stopwatch.seconds());
    }
    return median(std::move(seconds));
}

void print_row(const KvCodec& codec, size_t count, uint32_t rounds, VectorMachine& machine) {
    const double encode = median_seconds(rounds, [&] { machine.encode_again(); }),
                 decode = median_seconds(rounds, [&] { machine.decode_again(); });
    const auto vectors = double(count), gigabytes = vectors * codec.head_dim() * 4 / 1e9;
    write_output(fmt::format("{:<7} {:>14.0f} {:>8.2f} {:>14.0f} {:>8.2f}  {}\n", name(codec.type), vectors / encode,
                             gigabytes / encode, vectors / decode, gigabytes / decode, machine.name()));
}

// Encodes and decodes once; the spans must stay valid.
void run_once(VectorMachine& machine, Batch& batch, std::span<const float> x) {
    machine.encode(batch.codes, batch.scales, x);
    machine.decode(batch.x, batch.codes, batch.scales);
}

void bench_type(const CodecBenchArguments& a, const KvCodec& codec) {
    const auto cpu = make_vector_machine(codec, "cpu", a.vectors);
    const auto device = a.device == "cpu" ? nullptr : make_vector_machine(codec, a.device, a.vectors);
    const size_t count = device ? device->batch() : cpu->batch();
    const std::vector<float> x = random_vectors(count * codec.head_dim());
    Batch right(codec, count), other(codec, count);
    run_once(*cpu, right, x);
    if (device) {
        run_once(*device, other, x);
        compare(codec, right, other, count, device->name());
    }
    print_row(codec, count, a.rounds, *cpu);
    if (device) print_row(codec, count, a.rounds, *device);
}

} // namespace

int codec_bench(const CodecBenchArguments& a) {
    write_output("type        encode, /s     GB/s     decode, /s     GB/s\n");
    for (const KvType type : types)
        if (a.type.empty()) bench_type(a, a.codec(type));
    if (!a.type.empty()) bench_type(a, a.codec());
    write_output(fmt::format(
        "Vectors of {} channels, {} at a time; GB/s of their fp32 side; medians of {}. A device's times are its kernels', "
        "without transfers.\n",
        a.head_dim, a.vectors, a.rounds));
    return 0;
}

} // namespace tq
