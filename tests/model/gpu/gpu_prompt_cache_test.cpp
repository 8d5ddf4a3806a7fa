// Files of a KV cache on the device: written and read back bit for bit, and exchanged with the CPU.
#include "model/cpu/forward.h"
#include "model/gpu/cache.h"
#include "model/gpu/forward.h"
#include "runtime/device_impl.h"
#include "tests/support/device_kernels.h"
#include "tests/support/golden.h"
#include "tests/support/prompt_cache_files.h"
#include <algorithm>
#include <numeric>

using namespace tq;

namespace {

// Writes random bytes of several lengths into one page, the longest last, and reads them back, among others that stay.
void check_bytes(Device& device, const Config& config, const KvOptions& kv) {
    const std::string types = describe(kv);
    CAPTURE(types);
    const gpu::DeviceStorage cache(device, config, kv, 3);
    std::mt19937 random(17);
    const auto random_bytes = [&](uint32_t tokens) {
        std::vector<std::byte> bytes(cache.page_layout().bytes(tokens));
        for (std::byte& byte : bytes) byte = std::byte(random());
        return bytes;
    };
    const auto read = [&](uint32_t page, uint32_t tokens) {
        std::vector<std::byte> bytes(cache.page_layout().bytes(tokens));
        cache.read_page(device, page, tokens, bytes);
        return bytes;
    };
    const auto before = random_bytes(page_tokens), after = random_bytes(page_tokens);
    cache.write_page(device, 0, page_tokens, before);
    cache.write_page(device, 2, page_tokens, after);
    const uint32_t table[] = {1};
    for (const uint32_t tokens : {1u, 7u, page_tokens - 1, page_tokens}) {
        CAPTURE(tokens);
        const auto written = random_bytes(tokens);
        cache.write_page(device, 1, tokens, written);
        CHECK(read(1, tokens) == written);
        for (uint32_t layer = 0; layer < config.num_hidden_layers; layer++)
            for (const KvSide side : {KvSide::key, KvSide::value}) {
                StoredSide there = cache.stored(device, table, layer, side, tokens);
                for (uint32_t head = 0; head < cache.kv_heads; head++) {
                    const auto codes = cache.page_layout().codes(std::span(written), tokens, layer, side, head),
                               scales = cache.page_layout().scales(std::span(written), tokens, layer, side, head);
                    CHECK(std::ranges::equal(std::as_bytes(there.codes_of(head)), codes));
                    CHECK(std::ranges::equal(std::as_bytes(there.scales_of(head)), scales));
                }
            }
    }
    CHECK(read(0, page_tokens) == before);
    CHECK(read(2, page_tokens) == after);
}

} // namespace

TEST_CASE("every byte of a page is written to its place and read from there, across slices too") {
    const SmallModel model;
    Device device;
    for (const KvOptions& kv : storage_types()) check_bytes(device, model.config, kv);
    device.impl().capabilities.storage_range_bytes = 1 << 20; // four heads of an fp32 cache are in as many slices
    check_bytes(device, model.config, {KvType::f32, KvType::f32});
}

TEST_CASE("a session saved and loaded goes on bit for bit") {
    const SmallModel model;
    Device device;
    std::vector<KvOptions> all = saved_types(model.config); // the last are the hardest, and a driver compiles kernels for each
    all.erase(all.begin(), all.end() - 4);
    check_round_trips(model, all, [&](const ForwardOptions& options) {
        return make_gpu_forward(device, model.config, model.weights, options);
    });
}

TEST_CASE("the CPU's file is the device's, and the other way round") {
    const SmallModel model;
    Device device;
    KvOptions conditioned{KvType::tq4, KvType::q8_0};
    conditioned.conditioning = random_calibration(model.config, 5);
    for (const KvOptions& kv : {KvOptions{KvType::f32, KvType::f32}, conditioned}) {
        const std::string types = describe(kv);
        CAPTURE(types);
        const CacheOwner owner = owner_of(model, kv);
        const auto on_cpu = make_cpu_forward(model.config, model.weights, small_options(kv)),
                   on_device = make_gpu_forward(device, model.config, model.weights, small_options(kv));
        std::mt19937 random(21);
        const auto prompt = random_ids(random, 37), next = random_ids(random, 1), more = random_ids(random, 19);
        for (const auto& [from, to] : {std::pair(on_cpu.get(), on_device.get()), {on_device.get(), on_cpu.get()}}) {
            from->truncate(0);
            Session saved(*from), loaded(*to);
            saved.prefill(prompt);
            const std::string bytes = file_bytes(owner, saved);
            load(bytes, owner, loaded);
            CHECK(file_bytes(owner, loaded) == bytes);
            const double limit = kv.k == KvType::f32
                                     ? own_kernels(device).limit()
                                     : 0.05; // a code of the new tokens that falls on the other side of a threshold
            for (const auto& ids : {next, more}) CHECK(relative_error(to->run(ids), from->run(ids)) <= limit);
        }
    }
}
