// The types of a KV cache in a byte, followed by a file of one, loaded into a cache on the first Vulkan device (tests/fuzz/run
// selects lavapipe) and read back from it.
#include "model/files/prompt_cache.h"
#include "model/gpu/cache.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/prompt_cache_owner.h"
#include <algorithm>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    static tq::Device device;
    const tq::CacheOwner owner = tq::fuzz::prompt_cache_owner(data[0]);
    tq::fuzz::write("cache.kv", tq::fuzz::text(data + 1, size - 1));
    return tq::fuzz::run([&] {
        const tq::PromptCacheFile file(tq::fuzz::directory() / "cache.kv", owner);
        const uint32_t tokens = uint32_t(file.ids().size());
        if (tokens > 4096) return;
        const tq::gpu::DeviceStorage cache(device, owner.config, owner.kv, tq::pages_of(tokens) + 1);
        for (uint32_t at = 0; at < tokens; at += tq::page_tokens) {
            const uint32_t count = std::min(tq::page_tokens, tokens - at), page = tq::pages_of(tokens) - at / tq::page_tokens;
            std::vector<std::byte> meant(cache.page_layout().bytes(count)), there(meant.size());
            file.read(at, meant);
            cache.write_page(device, page, count, meant);
            cache.read_page(device, page, count, there);
            if (there != meant) std::abort();
        }
    });
}
