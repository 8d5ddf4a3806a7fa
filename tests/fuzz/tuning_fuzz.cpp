// A device's stored tuning: an accepted one is the same after it is stored again.
#include "model/gpu/tuning_file.h"
#include "tests/fuzz/fuzz_device.h"
#include "tests/fuzz/fuzz_target.h"
#include <nlohmann/json.hpp>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const bool placed = ::setenv("TQ_CACHE_DIR", tq::fuzz::directory().c_str(), 1) == 0;
    static_cast<void>(placed);
    const tq::Capabilities device = tq::fuzz::device();
    tq::fuzz::write(tq::gpu::tuning_path(device).filename().c_str(), tq::fuzz::text(data, size));
    return tq::fuzz::run([&] {
        const tq::gpu::StoredTuning stored = tq::gpu::stored_tuning(device);
        if (stored.tuning.has_value() == !stored.problem.empty()) std::abort();
        if (stored.problem.find('\n') != std::string::npos) std::abort();
        if (!stored.tuning) return;
        tq::gpu::store_tuning(device, *stored.tuning, nullptr);
        if (tq::gpu::stored_tuning(device).tuning != stored.tuning) std::abort();
    });
}
