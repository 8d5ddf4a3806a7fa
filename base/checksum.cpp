#include "base/checksum.h"
#include <cstring>

namespace tq {

uint64_t checksum(std::span<const std::byte> bytes) {
    uint64_t h = 0x9e3779b97f4a7c15;
    const auto add = [&](uint64_t word) {
        h = (h ^ word) * 0xff51afd7ed558ccd;
        h ^= h >> 32;
    };
    size_t at = 0;
    for (uint64_t word; bytes.size() - at >= sizeof word; at += sizeof word) {
        std::memcpy(&word, bytes.data() + at, sizeof word);
        add(word);
    }
    if (at == bytes.size()) return h;
    uint64_t rest = 0;
    std::memcpy(&rest, bytes.data() + at, bytes.size() - at);
    add(rest);
    return h;
}

} // namespace tq
