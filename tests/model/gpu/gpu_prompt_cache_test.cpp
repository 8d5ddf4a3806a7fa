// Files of a KV cache on the device: written and read back bit for bit, and exchanged with the CPU.
#include "model/cpu/forward.h"
#include "model/gpu/cache.h"
#include "model/gpu/forward.h"
#include "runtime/device_impl.h"
#include "tests/support/golden.h"
#include "tests/support/prompt_cache_files.h"
#include <algorithm>
#include <numeric>

using namespace tq;

namespace {

StoredSide random_side(std::mt19937& random, const KvCodec& codec, uint32_t heads, uint32_t tokens) {
    StoredSide out(codec, heads, tokens);
    for (uint32_t& word : out.codes) word = uint32_t(random());
    for (uint16_t& half : out.scales) half = uint16_t(random());
    return out;
}

bool same(const StoredSide& a, const StoredSide& b) { return a.codes == b.codes && a.scales == b.scales; }

// Restores random bytes of several lengths into one cache, the longest last, and reads them back.
void check_bytes(Device& device, const Config& config, const KvOptions& kv, uint32_t capacity) {
    const std::string types = describe(kv);
    CAPTURE(types);
    std::vector<uint32_t> table(pages_of(capacity));
    std::iota(table.rbegin(), table.rend(), 1u); // page 0 is another's
    const gpu::KvCache cache(device, config, kv, uint32_t(table.size()) + 1);
    std::mt19937 random(17);
    for (const uint32_t length : {0u, 1u, 7u, capacity - 1, capacity}) {
        CAPTURE(length);
        std::vector<StoredSide> written;
        cache.restore(device, table, length, [&](uint32_t layer, KvSide side) {
            return written.emplace_back(random_side(random, cache.layers[layer].side(side), cache.kv_heads, length));
        });
        for (uint32_t layer = 0; layer < config.num_hidden_layers; layer++)
            for (const KvSide side : {KvSide::key, KvSide::value})
                CHECK(same(cache.stored(device, table, layer, side, length), written[2 * layer + uint32_t(side)]));
    }
}

} // namespace

TEST_CASE("every word is written to its place and read from there, at any length, across slices too") {
    const SmallModel model;
    Device device;
    for (const KvOptions& kv : storage_types()) check_bytes(device, model.config, kv, 300);
    device.impl().capabilities.storage_range_bytes = 1 << 20; // four heads of an fp32 cache are in as many slices
    check_bytes(device, model.config, {KvType::f32, KvType::f32}, 600);
}

TEST_CASE("pieces longer than an upload takes at once") {
    Config config = test::small_config();
    config.num_hidden_layers = config.num_key_value_heads = 1;
    Device device;
    check_bytes(device, config, {KvType::tq4, KvType::f32}, 40000); // 20 MB of values
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
        const PromptCacheOwner owner = owner_of(model, kv);
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
            const double limit =
                kv.k == KvType::f32 ? 1e-4 : 0.05; // a code of the new tokens that falls on the other side of a threshold
            for (const auto& ids : {next, more}) CHECK(relative_error(to->run(ids), from->run(ids)) <= limit);
        }
    }
}
