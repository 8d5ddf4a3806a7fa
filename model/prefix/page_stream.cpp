#include "model/prefix/page_stream.h"
#include "base/error.h"
#include <algorithm>

namespace tq {

std::array<std::byte, 8> page_length_bytes(uint64_t bytes) {
    std::array<std::byte, 8> out;
    for (size_t i = 0; i < out.size(); i++) out[i] = std::byte(bytes >> (8 * i));
    return out;
}

bool PageStreamReader::push(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const size_t whole = in_page_ ? page_bytes_ : sizeof(uint64_t), n = std::min(whole - part_.size(), bytes.size());
        if (in_page_ && part_.empty()) part_.reserve(page_bytes_);
        part_.insert(part_.end(), bytes.begin(), bytes.begin() + ptrdiff_t(n));
        bytes = bytes.subspan(n);
        if (part_.size() < whole) break;
        std::vector<std::byte> done = std::exchange(part_, {});
        if (in_page_) {
            in_page_ = false;
            if (!take_(std::move(done))) return false;
            continue;
        }
        uint64_t length = 0;
        for (size_t i = done.size(); i-- > 0;) length = length << 8 | uint64_t(done[i]);
        if (length != 0 && length != page_bytes_) fail("it sent a page of {} bytes instead of {}", length, page_bytes_);
        in_page_ = length != 0;
    }
    return true;
}

} // namespace tq
