// A shader's interface, its shared memory and the names of its constants, read from any words: the readers that run while the
// program is built, and on modules of recorded rows.
#include "base/error.h"
#include "runtime/reflect.h"
#include "runtime/specialise.h"
#include "tests/fuzz/fuzz_target.h"
#include <cstring>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::vector<uint32_t> code(size / 4);
    if (!code.empty()) std::memcpy(code.data(), data, code.size() * 4);
    const tq::Interface io = tq::reflect(code);
    if (io.bindings > 32 || io.constants > 31) std::abort();
    if (io.bindings < 32 && (io.reads | io.writes | io.texels) >> io.bindings != 0) std::abort();
    const std::span<const uint32_t> words = code;
    const tq::AnyShader shader{"fuzzed", &words, io};
    const std::vector<uint32_t> constants(io.constants, 3);
    if (tq::specialised(shader, constants).size() != code.size()) std::abort();
    if (tq::constant_names(shader).size() != io.constants) std::abort();
    try {
        if (tq::shared_memory_bytes(shader, constants) > uint64_t(1) << 31) std::abort();
    } catch (const tq::Error&) {
    }
    return 0;
}
