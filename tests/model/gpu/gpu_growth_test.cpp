// The cache on a device grows with the conversation: same logits, memory that is freed again, and failures that lose nothing.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/gpu/cache.h"
#include "model/gpu/forward.h"
#include "model/gpu/tuning_file.h"
#include "runtime/device_impl.h"
#include "runtime/recorder.h"
#include "tests/support/growth.h"
#include <algorithm>
#include <cstring>
#include <limits>

using namespace tq;

namespace {

// A binding that holds 40 tokens of all four kv heads of an fp32 cache: GrowthModel's cache is then in four slices.
constexpr uint64_t short_binding = 160 << 10;

// The size of its blocks does not depend on the times of earlier blocks: how a short block is split changes the rounding.
std::unique_ptr<Forward> make_forward(Device& device, const GrowthModel& model, const ForwardOptions& options) {
    const gpu::Tuning tuning = gpu::tuning_for(device.capabilities());
    ThreadPool pool(1);
    const auto weights = std::make_shared<const gpu::DeviceWeights>(
        gpu::upload_weights(device, pool, model.weights, tuning.weight_interleave, {}));
    return make_gpu_forward(device, model.config, weights, options, tuning, std::numeric_limits<double>::infinity());
}

// A word of the cache that encodes its own position.
uint32_t mark(size_t layer, KvSide side, uint32_t head, uint32_t position, uint32_t at) {
    return uint32_t(layer) << 28 | uint32_t(side == KvSide::value) << 27 | head << 22 | position << 10 | at;
}

// Calls word(index, mark) for every stored word of codes, and half(index, the mark modulo 65521) for every scale.
// Positions are expected to repeat after `period` of them.
template <class Word, class Half> void visit_layer(const gpu::KvCache& cache, size_t layer, const gpu::CacheSlice& slice,
                                                   uint32_t length, uint32_t period, Word word, Half half) {
    for (const KvSide side : {KvSide::key, KvSide::value}) {
        const gpu::CacheCodec& codec = cache.layers[layer].side(side);
        for (uint32_t head = 0; head < slice.heads; head++)
            for (uint32_t position = 0; position < length; position++) {
                const size_t vector = size_t(head) * cache.layers[layer].capacity + position;
                for (uint32_t i = 0; i < codec.words(); i++)
                    word(slice.layout.codes(side) + vector * codec.words() + i,
                         mark(layer, side, slice.first_head + head, position % period, i));
                for (uint32_t i = 0; i < codec.scales(); i++)
                    half(slice.layout.scales(side) * 2 + vector * codec.scales() + i,
                         uint16_t(mark(layer, side, slice.first_head + head, position % period, i) % 65521));
            }
    }
}

void fill(Device& device, const gpu::KvCache& cache, uint32_t length) {
    for (size_t layer = 0; layer < cache.layers.size(); layer++)
        for (const gpu::CacheSlice& slice : cache.layers[layer].slices) {
            const Buffer content = device.allocate("content", slice.buffer.bytes(), Memory::upload);
            const std::span<uint32_t> words(reinterpret_cast<uint32_t*>(content.host().data()), slice.layout.words);
            uint16_t* halves = reinterpret_cast<uint16_t*>(words.data());
            visit_layer(
                cache, layer, slice, length, ~0u, [&](size_t at, uint32_t value) { words[at] = value; },
                [&](size_t at, uint16_t value) { halves[at] = value; });
            Recorder recorder(device);
            recorder.copy(slice.buffer, content);
            recorder.finish().run();
        }
}

size_t differences(Device& device, const gpu::KvCache& cache, uint32_t length, uint32_t period = ~0u) {
    size_t count = 0;
    for (size_t layer = 0; layer < cache.layers.size(); layer++)
        for (const gpu::CacheSlice& slice : cache.layers[layer].slices) {
            const Buffer content = device.allocate("content", slice.buffer.bytes(), Memory::readback);
            Recorder recorder(device);
            recorder.copy(content, slice.buffer);
            recorder.finish().run();
            const uint32_t* words = reinterpret_cast<const uint32_t*>(content.host().data());
            const uint16_t* halves = reinterpret_cast<const uint16_t*>(words);
            visit_layer(
                cache, layer, slice, length, period, [&](size_t at, uint32_t value) { count += words[at] != value; },
                [&](size_t at, uint16_t value) { count += halves[at] != value; });
        }
    return count;
}

} // namespace

TEST_CASE("a cache that grows gives the logits of one that was whole") {
    const GrowthModel model;
    Device device;
    check_growth(growth_types_and_window(), [&](const ForwardOptions& options) { return make_forward(device, model, options); });
}

TEST_CASE("and where bindings are so short that it comes apart into slices as it grows") {
    const GrowthModel model;
    Device device;
    device.impl().capabilities.storage_range_bytes = short_binding;
    device.impl().capabilities.shader_cores = 32;                          // so few splits that their partials are as short
    check_growth({{KvType::f32, KvType::f32}, {KvType::f16, KvType::f32}}, // those that are long enough
                 [&](const ForwardOptions& options) { return make_forward(device, model, options); });
}

TEST_CASE("every stored word moves to its place, across slices too, at any length") {
    const GrowthModel model;
    Device device;
    device.impl().capabilities.storage_range_bytes = short_binding;
    for (const KvOptions& kv : growth_types()) {
        const std::string types = describe(kv);
        CAPTURE(types);
        gpu::KvCache cache(device, model.config, kv, 10);
        const uint64_t before = device.allocated_bytes();
        for (const auto& [length, capacity] : {std::pair(0u, 16u), {15u, 34u}, {33u, 50u}, {49u, 78u}, {1u, 80u}, {80u, 150u}}) {
            CAPTURE(capacity);
            fill(device, cache, length);
            cache.grow(device, length, capacity);
            CHECK(cache.capacity() == capacity);
            CHECK(differences(device, cache, length) == 0);
        }
        if (kv.k == KvType::f32) CHECK(cache.layers[0].slices.size() == 4);
        CHECK(device.allocated_bytes() - before <= gpu::cache_bytes(model.config, kv, 150) + (64 << 10)); // alignment
    }
    CHECK_THROWS_WITH_AS(gpu::KvCache(device, model.config, {KvType::f32, KvType::f32}, 162), doctest::Contains("-c"), Error);
}

TEST_CASE("what is stored is repeated word by word, and the logits are those of the CPU") {
    const GrowthModel model;
    Device device;
    for (const KvOptions& kv : growth_types()) {
        const std::string types = describe(kv);
        CAPTURE(types);
        gpu::KvCache cache(device, model.config, kv, 78);
        for (const auto& [length, to] : {std::pair(2u, 3u), {6u, 77u}, {10u, 40u}, {8u, 8u}}) {
            fill(device, cache, length);
            cache.repeat(device, length, to);
            CHECK(differences(device, cache, to, length) == 0);
        }
    }
    check_repeat([&](const ForwardOptions& options) { return make_forward(device, model, options); });
    const KvOptions f32{KvType::f32, KvType::f32};
    const auto here = make_forward(device, model, growth_options(f32, 2)),
               there = make_cpu_forward(model.config, model.weights, growth_options(f32, 2));
    std::mt19937 random(3);
    const auto ids = random_ids(random, 6);
    for (Forward* forward : {here.get(), there.get()}) {
        forward->run(ids);
        forward->repeat_to(50);
    }
    const auto logits = here->run(ids), expected = there->run(ids);
    for (size_t i = 0; i < expected.size(); i++) REQUIRE(logits[i] == doctest::Approx(expected[i]).epsilon(1e-3));
}

TEST_CASE("a cache that cannot grow says so with the numbers, loses nothing, and leaks nothing") {
    const GrowthModel model;
    Device device;
    const uint64_t empty = device.allocated_bytes();
    {
        const KvOptions kv{KvType::tq4, KvType::tq4};
        const auto whole = make_forward(device, model, growth_options(kv, 0)),
                   grown = make_forward(device, model, growth_options(kv, 2));
        std::mt19937 random(5);
        check_same(*grown, *whole, random_ids(random, 29));
        const uint32_t capacity = grown->capacity();
        device.memory_limit_bytes = device.allocated_bytes() + 1000;
        const uint64_t taken = device.allocated_bytes();
        for (int i = 0; i < 3; i++)
            CHECK_THROWS_WITH_AS(grown->run(random_ids(random, 60)), doctest::Contains("holds 29 tokens, and for 60 more"),
                                 OutOfMemory);
        CHECK(device.allocated_bytes() == taken);
        CHECK(grown->position() == 29);
        CHECK(grown->capacity() == capacity);
        if (capacity > 29) check_same(*grown, *whole, random_ids(random, capacity - 29)); // as many as there is room for
        grown->truncate(11);
        whole->truncate(11);
        check_same(*grown, *whole, random_ids(random, 1));
        check_same(*grown, *whole, random_ids(random, 14));
        device.memory_limit_bytes = 0;
        check_same(*grown, *whole, random_ids(random, 60));
    }
    CHECK(device.allocated_bytes() == empty);
}

TEST_CASE("where half as much again does not fit, what is needed does") {
    const GrowthModel model;
    Device device;
    const KvOptions kv{KvType::f32, KvType::f32};
    const auto whole = make_forward(device, model, growth_options(kv, 0)),
               grown = make_forward(device, model, growth_options(kv, 2));
    std::mt19937 random(5);
    check_same(*grown, *whole, random_ids(random, 60));
    REQUIRE(grown->capacity() == 60);
    const uint64_t layer = gpu::cache_bytes(model.config, kv, 64) / model.config.num_hidden_layers;
    device.memory_limit_bytes = device.allocated_bytes() + layer + layer / 2; // 90 tokens would take more than one layer of them
    check_same(*grown, *whole, random_ids(random, 3));
    CHECK(grown->capacity() == 64);
    check_same(*grown, *whole, random_ids(random, 1));
}

TEST_CASE("memory that runs out between two layers leaves both as they were or larger") {
    const GrowthModel model;
    Device device;
    const KvOptions kv{KvType::tq3q, KvType::a4_32};
    gpu::KvCache cache(device, model.config, kv, 20);
    fill(device, cache, 19);
    const uint64_t layer = gpu::cache_bytes(model.config, kv, 2000) / model.config.num_hidden_layers;
    device.memory_limit_bytes = device.allocated_bytes() + layer + layer / 2;
    CHECK_THROWS_AS(cache.grow(device, 19, 2000), OutOfMemory);
    CHECK(cache.layers[0].capacity == 2000);
    CHECK(cache.layers[1].capacity == 20);
    CHECK(cache.capacity() == 20);
    CHECK(differences(device, cache, 19) == 0);
    device.memory_limit_bytes = 0;
    cache.grow(device, 19, 2000);
    CHECK(cache.capacity() == 2000);
    CHECK(differences(device, cache, 19) == 0);
}
