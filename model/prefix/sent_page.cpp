#include "model/prefix/sent_page.h"
#include "base/error.h"
#include "model/cache.h"
#include "model/prefix/page_signature.h"

namespace tq {

size_t sent_page_bytes(const PageLayout& layout, bool is_signed) {
    return page_head_size(page_tokens) + layout.bytes(page_tokens) + (is_signed ? page_signature_bytes : 0);
}

std::vector<std::byte> sent_page(const PageHead& head, std::span<const std::byte> content, const PageSigner& sign) {
    std::vector<std::byte> page = page_head_bytes(head, content);
    page.reserve(page.size() + content.size() + page_signature_bytes);
    page.insert(page.end(), content.begin(), content.end());
    if (sign) append_signature(page, sign);
    return page;
}

std::vector<std::byte> received_content(std::vector<std::byte> page, const PageHead& head, const PageLayout& layout,
                                        const PageSigner& sign) {
    const auto bytes = sign ? signed_bytes(page, sign) : std::span<const std::byte>(page);
    const PageHead there = read_page_head(bytes);
    if (there.kind != head.kind || there.owner != head.owner || there.parent != head.parent || there.ids != head.ids ||
        there.cold != head.cold)
        fail("it is another page");
    const bool is_state = there.kind == RecordKind::state; // whose reader knows its size
    const auto content =
        page_content(bytes, there, is_state ? bytes.size() - page_head_size(there.tokens()) : layout.bytes(there.tokens()));
    const auto begin = page.begin() + (content.data() - page.data()), end = begin + ptrdiff_t(content.size());
    page.erase(end, page.end());
    page.erase(page.begin(), begin);
    return page;
}

} // namespace tq
