// Weights in device memory: fp16 scales are raised so that none is denormal.
#include "base/half.h"
#include "model/files/formats/blocks.h"
#include "model/gpu/device_layout.h"
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <vector>

using namespace tq;

namespace {

constexpr uint32_t cols = 256;

// A row whose blocks all have these bits as scale, and as minimum.
std::vector<std::byte> row_of(GgmlType type, uint16_t bits) {
    std::vector<std::byte> row(row_bytes(type, cols), std::byte(0x35));
    const BlockFormat& format = *block_format(type);
    for (size_t at = 0; at < row.size(); at += format.bytes) set_block_scales(format, &row[at], bits, bits);
    return row;
}

struct Repacked {
    bool done;
    std::vector<uint16_t> halves;
};
Repacked repacked(GgmlType type, std::span<const std::byte> row, bool raised) {
    Repacked out{false, std::vector<uint16_t>(gpu::device_row_bytes(type, cols) / 2)};
    out.done = gpu::repack_rows({type, cols, 1, raised}, std::as_writable_bytes(std::span(out.halves)), row, 0);
    return out;
}

} // namespace

TEST_CASE("a raised scale is 2^10 times the file's and not denormal; one of 64 or more cannot be raised") {
    for (const GgmlType type : weight_formats) {
        CAPTURE(type_name(type));
        const BlockScales& scales = block_format(type)->scales;
        if (scales.scale < 0) {
            const std::vector<std::byte> row(row_bytes(type, cols), std::byte(1));
            CHECK(repacked(type, row, true).halves == repacked(type, row, false).halves);
            continue;
        }
        const size_t count = cols / block_format(type)->elements * (scales.minimum >= 0 ? 2 : 1);
        constexpr uint16_t edges[] = {0x0001, 0x03ff, 0x0400, 0x53ff, 0x5400, 0x8001, 0xd3ff, 0xd400};
        for (uint32_t n = 0; n < 5000; n++) {
            const uint16_t half = n < std::size(edges) ? edges[n] : uint16_t(n * 13);
            const float value = half_to_float(half);
            if (!std::isfinite(value)) continue;
            const std::vector<std::byte> row = row_of(type, half);
            const Repacked as_is = repacked(type, row, false), raised = repacked(type, row, true);
            REQUIRE(as_is.done);
            REQUIRE(raised.done == (std::fabs(value) < 64));
            size_t changed = 0;
            for (size_t i = 0; i < as_is.halves.size() && raised.done; i++) {
                if (as_is.halves[i] == raised.halves[i]) continue;
                changed++;
                const float now = half_to_float(raised.halves[i]);
                REQUIRE(half_to_float(as_is.halves[i]) == value);
                REQUIRE(now == value * 1024);
                REQUIRE(std::fabs(now) >= 0x1p-14f);
            }
            if (raised.done) REQUIRE(changed == (value == 0 ? 0 : count));
        }
    }
}
