// A device's compiled kernels on disk: a file of any bytes, or, if the first byte is even, one that was written whole. The
// driver must only get data with its own header.
#include "runtime/pipeline_cache.h"
#include "tests/fuzz/fuzz_device.h"
#include "tests/fuzz/fuzz_target.h"
#include <algorithm>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const tq::Capabilities device = tq::fuzz::device();
    const auto path = tq::fuzz::directory() / "fuzz.pipelines";
    const auto bytes = std::as_bytes(std::span(data, size).subspan(1));
    const bool whole = data[0] % 2 == 0;
    if (whole)
        tq::write_pipeline_cache(path, bytes);
    else
        tq::fuzz::write("fuzz.pipelines", tq::fuzz::text(data + 1, size - 1));
    const std::vector<std::byte> read = tq::read_pipeline_cache(path, device);
    if (read.empty()) return 0;
    if (whole && !std::ranges::equal(read, bytes)) std::abort();
    const uint32_t* header = reinterpret_cast<const uint32_t*>(read.data()); // VkPipelineCacheHeaderVersionOne
    if (read.size() < 32 || header[2] != device.vendor_id || header[3] != device.device_id) std::abort();
    return 0;
}
