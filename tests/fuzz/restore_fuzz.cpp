// The types of a KV cache in a byte, followed by a file of one, loaded into a cache on the first Vulkan device (tests/fuzz/run
// selects lavapipe) and read back from it.
#include "model/files/prompt_cache.h"
#include "model/gpu/cache.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/prompt_cache_owner.h"
#include <numeric>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    static tq::Device device;
    const tq::PromptCacheOwner owner = tq::fuzz::prompt_cache_owner(data[0]);
    tq::fuzz::write("cache.kv", tq::fuzz::text(data + 1, size - 1));
    return tq::fuzz::run([&] {
        const tq::PromptCacheFile file(tq::fuzz::directory() / "cache.kv", owner);
        const uint32_t tokens = uint32_t(file.ids().size());
        if (tokens > 4096) return;
        std::vector<uint32_t> table(tq::pages_of(std::max(tokens, 1u)));
        std::iota(table.rbegin(), table.rend(), 0u);
        const tq::gpu::KvCache cache(device, owner.config, owner.kv, uint32_t(table.size()));
        cache.restore(device, table, tokens, [&](uint32_t layer, tq::KvSide side) { return file.read(layer, side, tokens); });
        for (const tq::KvSide side : {tq::KvSide::key, tq::KvSide::value}) {
            const tq::StoredSide there = cache.stored(device, table, 0, side, tokens), meant = file.read(0, side, tokens);
            if (there.codes != meant.codes || there.scales != meant.scales) std::abort();
        }
    });
}
