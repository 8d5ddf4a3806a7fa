// A million vectors and the golden ones: a device stores the CPU's bytes, and decodes them to the same floats.
#include "base/thread_pool.h"
#include "model/gpu/vector_codec.h"
#include "tests/support/codec_golden.h"
#include "tools/check/conformance/vectors/codec_vectors.h"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>

using namespace tq;
using namespace tq::test;
using namespace tq::conformance;

namespace {

constexpr uint32_t batch = 16384;

Device& shared_device() { // one for all tests, so that no kernel is compiled twice
    static Device device;
    return device;
}

// Gaussian; heavy tails; a few channels 20 times the rest; any scale.
std::vector<float> random_vectors(ThreadPool& pool, uint32_t count, uint32_t head_dim, uint64_t seed) {
    std::vector<float> out(size_t(count) * head_dim);
    pool.each(count, 64, [&](uint32_t begin, uint32_t end) {
        for (uint32_t n = begin; n < end; n++) {
            Random random{(seed << 32 | n) * 0x9e3779b97f4a7c15};
            const auto x = std::span(out).subspan(size_t(n) * head_dim, head_dim);
            const float scale =
                n % 4 == 3 ? std::ldexp(1.0f + float(random.below(1 << 20)) * 0x1p-20f, int(random.below(40)) - 26) : 1;
            for (size_t i = 0; i < head_dim; i++) {
                x[i] = random.normal() * scale;
                if (n % 4 == 1) x[i] *= random.normal() * random.normal() * random.normal();
                if (n % 4 == 2 && i % 29 == n % 29) x[i] *= 20;
            }
        }
    });
    return out;
}

// The number of vectors whose bytes differ between CPU and device.
size_t differing_vectors(ThreadPool& pool, gpu::VectorCodec& device, std::span<const float> x) {
    const KvCodec& codec = device.codec();
    const size_t d = codec.head_dim(), words = codec.words(), scales = codec.scales(), count = x.size() / d;
    std::vector<uint32_t> codes(count * words);
    std::vector<uint16_t> scale(count * scales);
    device.encode(codes, scale, x);
    std::atomic<size_t> differ = 0;
    pool.each(uint32_t(count), 64, [&](uint32_t begin, uint32_t end) {
        const Stored right = encoded(codec, x.subspan(begin * d, (end - begin) * d));
        for (size_t n = begin; n < end; n++)
            if (std::memcmp(&right.codes[(n - begin) * words], &codes[n * words], words * 4) != 0 ||
                std::memcmp(right.scales.data() + (n - begin) * scales, scale.data() + n * scales, scales * 2) != 0)
                differ++;
    });
    return differ;
}

// Compares `count` vectors, `seed` counting their batches; returns how many it has compared.
uint64_t check_vectors(const KvCodec& codec, uint32_t count, uint64_t& seed) {
    CAPTURE(describe(codec));
    ThreadPool pool;
    gpu::VectorCodec device(shared_device(), codec, std::min(batch, count));
    size_t differ = 0;
    for (uint32_t done = 0; done < count; done += device.batch())
        differ += differing_vectors(pool, device,
                                    random_vectors(pool, std::min(device.batch(), count - done), codec.head_dim(), ++seed));
    CHECK(differ == 0);
    return count;
}

bool same_floats(std::span<const float> a, std::span<const float> b) { // NaNs too
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

} // namespace

TEST_CASE("the golden vectors") {
    Device& device = shared_device();
    for (const GoldenVectors& golden : read_codec_golden(TQ_SOURCE_DIR "/tests/data/codec_golden.bin")) {
        CAPTURE(describe(golden.codec));
        gpu::VectorCodec codec(device, golden.codec, 32);
        Stored stored{std::vector<uint32_t>(golden.stored.codes.size()), std::vector<uint16_t>(golden.stored.scales.size())};
        codec.encode(stored.codes, stored.scales, golden.x);
        CHECK(stored == golden.stored);
    }
}

TEST_CASE("a million random vectors") {
    uint64_t seed = 0, total = 0;
    for (const KvType type : {KvType::tq4, KvType::tq3, KvType::tq2})
        total += check_vectors({type, ScaleRule::unbiased, make_rotation(RotationKind::wht, 5, KvSide::key, 128)}, 335872, seed);
    CHECK(total >= 1'000'000);
}

TEST_CASE("some vectors of every codec") {
    uint64_t seed = 1000;
    for (const KvCodec& codec : all_codecs(128, 6, KvSide::value)) check_vectors(codec, codec.rotation.matrix ? 128 : 512, seed);
}

TEST_CASE("decoding: the CPU's floats") {
    Device& device = shared_device();
    ThreadPool pool(1);
    const std::vector<float> x = random_vectors(pool, 300, 128, 77);
    for (const KvCodec& codec : all_codecs(128, 1, KvSide::key)) {
        if (codec.scale_rule != ScaleRule::unbiased) continue;
        CAPTURE(describe(codec));
        gpu::VectorCodec on_device(device, codec, 300);
        const Stored stored = encoded(codec, x);
        std::vector<float> out(x.size());
        on_device.decode(out, stored.codes, stored.scales);
        CHECK(same_floats(out, decoded(codec, stored)));
    }
}
