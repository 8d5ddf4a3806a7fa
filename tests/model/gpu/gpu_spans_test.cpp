// Several sequences on a device, each with the logits, bit for bit, that it has alone; and where their vectors are stored.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/gpu/cache.h"
#include "model/gpu/forward.h"
#include "model/gpu/tuning_file.h"
#include "runtime/device_impl.h"
#include "runtime/recorder.h"
#include "tests/support/spans.h"
#include <algorithm>
#include <cstring>
#include <limits>

using namespace tq;
using gpu::Table;

namespace {

// A binding that holds `pages` pages of one kv head of an fp32 cache, of four.
uint64_t short_binding(uint32_t pages) { return uint64_t(pages) * page_tokens * 128 * 8; }

// The size of its blocks does not depend on the times of earlier blocks: how a short block is split changes the rounding.
std::unique_ptr<Forward> make_forward(Device& device, const SmallModel& model, const ForwardOptions& options) {
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
template <class Word, class Half> void visit_layer(const gpu::DeviceStorage& cache, size_t layer, const gpu::CacheSlice& slice,
                                                   Table table, uint32_t length, uint32_t period, Word word, Half half) {
    for (const KvSide side : {KvSide::key, KvSide::value}) {
        const gpu::CacheCodec& codec = cache.layers[layer].side(side);
        for (uint32_t head = 0; head < slice.heads; head++)
            for (uint32_t position = 0; position < length; position++) {
                const size_t vector =
                    (size_t(table[position / page_tokens]) * slice.heads + head) * page_tokens + position % page_tokens;
                for (uint32_t i = 0; i < codec.words(); i++)
                    word(slice.layout.codes(side) + vector * codec.words() + i,
                         mark(layer, side, slice.first_head + head, position % period, i));
                for (uint32_t i = 0; i < codec.scales(); i++)
                    half(slice.layout.scales(side) * 2 + vector * codec.scales() + i,
                         uint16_t(mark(layer, side, slice.first_head + head, position % period, i) % 65521));
            }
    }
}

void fill(Device& device, const gpu::DeviceStorage& cache, Table table, uint32_t length) {
    for (size_t layer = 0; layer < cache.layers.size(); layer++)
        for (const gpu::CacheSlice& slice : cache.layers[layer].slices) {
            const Buffer content = device.allocate("content", slice.buffer.bytes(), Memory::upload);
            const std::span<uint32_t> words(reinterpret_cast<uint32_t*>(content.host().data()), slice.layout.words);
            uint16_t* halves = reinterpret_cast<uint16_t*>(words.data());
            visit_layer(
                cache, layer, slice, table, length, ~0u, [&](size_t at, uint32_t value) { words[at] = value; },
                [&](size_t at, uint16_t value) { halves[at] = value; });
            Recorder recorder(device);
            recorder.copy(slice.buffer, content);
            recorder.finish().run();
        }
}

size_t differences(Device& device, const gpu::DeviceStorage& cache, Table table, uint32_t length, uint32_t period = ~0u) {
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
                cache, layer, slice, table, length, period, [&](size_t at, uint32_t value) { count += words[at] != value; },
                [&](size_t at, uint16_t value) { count += halves[at] != value; });
        }
    return count;
}

// Makes passes on a device whose bindings are that short; 0: of any length.
MakeForward maker(Device& device, const SmallModel& model, uint64_t binding = 0) {
    if (binding != 0) device.impl().capabilities.storage_range_bytes = binding;
    device.impl().capabilities.shader_cores = 32; // few splits: their partials are as short
    return [&](const ForwardOptions& options) { return make_forward(device, model, options); };
}

const std::vector<KvOptions> some_types{{KvType::tq4, KvType::tq4}, with_window(KvType::q8_0, KvType::tq3t, 40)};

} // namespace

TEST_CASE("in company as alone, in forks, and however the ids are divided") {
    const SmallModel model;
    Device device;
    check_company(maker(device, model), some_types);
    check_fork(maker(device, model), some_types);
    check_deterministic(maker(device, model), some_types);
}

TEST_CASE("a hybrid in company as alone, with a window, and what its logits are computed from") {
    const SmallModel model(test::small_config(*find_model_type("qwen3_next")));
    Device device;
    check_company(maker(device, model), {some_types[1]});
    check_hidden(maker(device, model), 4);
}

TEST_CASE("with the kernels of a GPU, and a norm in the products of one token") {
    const SmallModel model;
    Device device;
    Capabilities gpu = device.capabilities();
    gpu.type = DeviceType::discrete;
    gpu::Tuning tuning = gpu::choose_tuning(gpu);
    tuning.matmul_coopmat = false;
    tuning.attention_coopmat_rows = 0;
    tuning.short_block = 16;
    ThreadPool pool(1);
    const auto weights = std::make_shared<const gpu::DeviceWeights>(
        gpu::upload_weights(device, pool, model.weights, tuning.weight_interleave, {}));
    const MakeForward make = [&](const ForwardOptions& options) {
        return make_gpu_forward(device, model.config, weights, options, tuning, std::numeric_limits<double>::infinity());
    };
    check_company(make, {some_types[1]});
    check_deterministic(make, {some_types[0]});
    check_hidden(make, 1);
}

TEST_CASE("a state is what the logits are computed from, alone and in company") {
    const SmallModel model;
    Device device;
    check_hidden(maker(device, model), 1);
    check_hidden(maker(device, model), 10);
}

TEST_CASE("tokens that are taken back leave no trace, where a cache is in slices, too") {
    const SmallModel model;
    Device device;
    check_cuts(storage_types_and_window(), maker(device, model));
    check_cuts({{KvType::f32, KvType::f32}, {KvType::f16, KvType::f32}}, maker(device, model, short_binding(2)));
}

TEST_CASE("what is stored is restored, repeated and found; and the ends of a cache are noticed") {
    const SmallModel model;
    Device device;
    check_restored(maker(device, model));
    check_repeat(maker(device, model));
    check_nonfinite(maker(device, model));
    check_pages(maker(device, model));
}

TEST_CASE("every vector is in its page, across slices too, and repeated word by word") {
    const SmallModel model;
    Device device;
    device.impl().capabilities.storage_range_bytes = short_binding(4);
    const std::vector<uint32_t> table{2, 0, 3};
    for (const KvOptions& kv : storage_types()) {
        CAPTURE(describe(kv));
        const uint64_t before = device.allocated_bytes();
        gpu::DeviceStorage cache(device, model.config, kv, 4);
        CHECK(device.allocated_bytes() - before <= gpu::cache_bytes(model.config, kv, 4) + (64 << 10)); // alignment
        if (kv.k == KvType::f32) CHECK(cache.layers[0].slices.size() == 4);
        for (const auto& [length, to] : {std::pair(2u, 3u), {6u, 77u}, {300u, 768u}, {256u, 700u}, {8u, 8u}}) {
            fill(device, cache, table, length);
            StoredSide keys = cache.stored(device, table, 1, KvSide::key, length);
            CHECK(keys.codes_of(3, length - 1)[0] == mark(1, KvSide::key, 3, length - 1, 0));
            cache.repeat(device, table, length, to);
            CHECK(differences(device, cache, table, to, length) == 0);
        }
        cache.copy_page(device, 3, 1);
        CHECK(differences(device, cache, std::array{2u, 0u, 1u}, 8, 8) == 0);
        fill(device, cache, table, 768);
        cache.copy_page(device, 0, 1);
        CHECK(differences(device, cache, std::array{2u, 1u, 3u}, 768) == 0);
    }
    CHECK_THROWS_WITH_AS(gpu::DeviceStorage(device, model.config, {KvType::f32, KvType::f32}, 5), doctest::Contains("-c"), Error);
}

TEST_CASE("repeated vectors have the CPU's logits") {
    const SmallModel model;
    Device device;
    const KvOptions f32{KvType::f32, KvType::f32};
    const auto here = make_forward(device, model, small_options(f32)),
               there = make_cpu_forward(model.config, model.weights, small_options(f32));
    std::mt19937 random(3);
    const auto ids = random_ids(random, 6);
    for (Forward* forward : {here.get(), there.get()}) {
        forward->run(ids);
        forward->repeat_to(50);
    }
    const auto logits = here->run(ids), expected = there->run(ids);
    for (size_t i = 0; i < expected.size(); i++) REQUIRE(logits[i] == doctest::Approx(expected[i]).epsilon(1e-3));
}

TEST_CASE("a cache has the pages that the device has memory for, says when they are used up, loses nothing, and leaks nothing") {
    const SmallModel model;
    Device device;
    const uint64_t empty = device.allocated_bytes();
    {
        ForwardOptions options = small_options({KvType::f32, KvType::f32});
        options.context_size = 4000;
        const auto whole = make_forward(device, model, options);
        const uint64_t with_whole = device.allocated_bytes() - empty;
        const uint64_t page = gpu::cache_bytes(model.config, options.kv, 1);
        device.memory_limit_bytes = device.allocated_bytes() + with_whole - 5 * page;
        const auto fewer = make_gpu_forward(device, model.config, model.weights, options);
        const uint32_t pages = fewer->cache().shape().pages;
        CHECK(pages >= 4);
        CHECK(pages < options.pages());
        std::mt19937 random(5);
        const uint64_t taken = device.allocated_bytes();
        check_same(*fewer, *whole, random_ids(random, 29));
        for (int i = 0; i < 3; i++)
            CHECK_THROWS_WITH_AS(fewer->run(random_ids(random, 3900)),
                                 doctest::Contains("of which 256 are taken, and for 3900 more"), OutOfMemory);
        CHECK(fewer->position() == 29);
        check_same(*fewer, *whole, random_ids(random, 60));
        CHECK(device.allocated_bytes() <= taken + (1 << 20)); // recordings
    }
    CHECK(device.allocated_bytes() == empty);
}
