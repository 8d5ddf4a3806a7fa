// A file of a KV cache: what it says it holds is read.
#include "model/prompt_cache.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/prompt_cache_owner.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    tq::fuzz::write("cache.kv", tq::fuzz::text(data, size));
    return tq::fuzz::run([] {
        const tq::PromptCacheFile file(tq::fuzz::directory() / "cache.kv", tq::fuzz::prompt_cache_owner());
        for (const tq::KvSide side : {tq::KvSide::key, tq::KvSide::value}) file.read(0, side, uint32_t(file.ids().size()));
    });
}
