// A shader's interface, read from any words: the reader that runs while the program is built.
#include "runtime/reflect.h"
#include "tests/fuzz/fuzz_target.h"
#include <cstring>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::vector<uint32_t> code(size / 4);
    if (!code.empty()) std::memcpy(code.data(), data, code.size() * 4);
    const tq::Interface io = tq::reflect(code);
    if (io.bindings > 32 || io.constants > 31) std::abort();
    if (io.bindings < 32 && (io.reads | io.writes | io.texels) >> io.bindings != 0) std::abort();
    return 0;
}
