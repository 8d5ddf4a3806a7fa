// The types of a KV cache in a byte, followed by a file of one: the contents that the file declares are read.
#include "model/files/prompt_cache.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/prompt_cache_owner.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    tq::fuzz::write("cache.kv", tq::fuzz::text(data + 1, size - 1));
    return tq::fuzz::run([&] {
        const tq::PromptCacheFile file(tq::fuzz::directory() / "cache.kv", tq::fuzz::prompt_cache_owner(data[0]));
        for (const tq::KvSide side : {tq::KvSide::key, tq::KvSide::value}) file.read(0, side, uint32_t(file.ids().size()));
    });
}
