// A whole page as it goes from one machine to another: the bytes of its file (page_file.h), and its signature if there is a
// key (page_signature.h). A received page is not trusted, but checked.
#pragma once
#include "model/kv/page_layout.h"
#include "model/prefix/page_file.h"
#include "model/prefix/page_signature.h"
#include "model/prefix/shared_store.h"

namespace tq {

// Returns the number of bytes of a page of page_tokens tokens.
size_t sent_page_bytes(const PageLayout& layout, bool is_signed);

// sign: empty for pages without a signature.
std::vector<std::byte> sent_page(const PageHead& head, std::span<const std::byte> content, const PageSigner& sign);

// Returns the content of a received page, which must be the page of this head. Throws Error with the reason if it is another one,
// is damaged, or does not have the signature of `sign`.
std::vector<std::byte> received_content(std::vector<std::byte> page, const PageHead& head, const PageLayout& layout,
                                        const PageSigner& sign);

} // namespace tq
