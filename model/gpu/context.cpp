#include "model/gpu/context.h"
#include "base/error.h"
#include "model/gpu/plan.h"
#include "model/rope.h"
#include "runtime/uploader.h"
#include <algorithm>
#include <cstring>

namespace tq::gpu {

Buffer make_context(Device& device, const Config& config, uint32_t positions) {
    const uint64_t bytes = context_bytes(config, positions);
    if (bytes > device.capabilities().storage_range_bytes)
        fail("a context of {} tokens is more than {} can address: choose at most {} with -c", positions,
             device.capabilities().name,
             (device.capabilities().storage_range_bytes - context_header_bytes) / (config.head_dim * 4));
    std::vector<std::byte> content(bytes);
    const std::vector<float> table = rope_table(config, positions);
    std::memcpy(content.data() + context_header_bytes, table.data(), table.size() * 4);

    Buffer context = device.allocate("context", bytes);
    Uploader uploader(device);
    for (uint64_t at = 0; at < bytes; at += Uploader::max_piece_bytes()) {
        const uint64_t piece = std::min<uint64_t>(Uploader::max_piece_bytes(), bytes - at);
        std::memcpy(uploader.begin(View(context, at, piece)).data(), content.data() + at, piece);
        uploader.end();
    }
    uploader.finish();
    return context;
}

} // namespace tq::gpu
