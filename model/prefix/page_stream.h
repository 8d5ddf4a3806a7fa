// Pages on their way through a connection, one after the other: before each its length, 8 bytes, the lowest first. A length of 0
// says only that the sender is still there.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace tq {

std::array<std::byte, 8> page_length_bytes(uint64_t bytes);

class PageStreamReader {
  public:
    // page_bytes: of every page. take: gets each; false: no more are wanted.
    PageStreamReader(size_t page_bytes, std::function<bool(std::vector<std::byte>)> take)
        : page_bytes_(page_bytes), take_(std::move(take)) {}

    // Takes the bytes that have come. Returns false if no more are wanted. Throws Error if a page has another length; no memory
    // is taken for it.
    bool push(std::span<const std::byte> bytes);
    // Whether the stream may end here: not within a page.
    bool is_between_pages() const { return part_.empty() && !in_page_; }

  private:
    const size_t page_bytes_;
    const std::function<bool(std::vector<std::byte>)> take_;
    std::vector<std::byte> part_; // of a length, or of a page
    bool in_page_ = false;
};

} // namespace tq
