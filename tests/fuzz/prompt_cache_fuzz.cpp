// The types of a KV cache in a byte, followed by a file of one: the contents that the file declares are read.
#include "model/files/prompt_cache.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/prompt_cache_owner.h"
#include <algorithm>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    tq::fuzz::write("cache.kv", tq::fuzz::text(data + 1, size - 1));
    return tq::fuzz::run([&] {
        const tq::PromptCacheFile file(tq::fuzz::directory() / "cache.kv", tq::fuzz::prompt_cache_owner(data[0]));
        const tq::CacheOwner owner = tq::fuzz::prompt_cache_owner(data[0]);
        const uint32_t tokens = uint32_t(file.ids().size());
        for (uint32_t at = 0; at < tokens; at += tq::page_tokens) {
            std::vector<std::byte> page(page_layout(owner.config, owner.kv).bytes(std::min(tq::page_tokens, tokens - at)));
            file.read(at, page);
        }
        for (const uint32_t window : {1u, tq::max_window_tokens}) file.beside(window);
    });
}
