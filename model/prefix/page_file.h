// The file of one page of the prefix cache, and that of a state (state_record.h), which follows its page. Untrusted until
// checked.
//
//   0    "tq-run page v2\n" or "tq-run state 1\n", and a zero
//   16   checksum of all bytes from 24 to the end of the ids (base/checksum.h)
//   24   checksum of the content
//   32   names of the owner, of the parent and of the page: two 64-bit numbers each, the higher first
//   80   tokens (1 to 256) and how many of them are cold (model/prefix/cold.h), 32 bits each
//   88   ids [tokens], 32 bits each, and zeros up to a multiple of 8
//   then the content: the page's bytes (model/kv/page_layout.h), or the state, up to the end of the file
// A state's parent is its page, whose ids and cold tokens it has. All numbers are little-endian.
#pragma once
#include "model/prefix/page_name.h"
#include <cstddef>
#include <vector>

namespace tq {

enum class RecordKind { page, state };

struct PageHead {
    PageName owner, parent, name;
    std::vector<uint32_t> ids;
    uint32_t cold = 0;
    uint64_t content_check = 0; // only of a page that was read
    RecordKind kind = RecordKind::page;

    uint32_t tokens() const { return uint32_t(ids.size()); }
};

inline constexpr size_t max_page_head_bytes = 88 + 256 * 4;
// More than a page of any model has: a limit for readers that do not know the layout.
inline constexpr size_t max_page_bytes = size_t(1) << 30;

// Returns the head of a page of these ids.
PageHead make_page_head(PageName owner, PageName parent, std::span<const uint32_t> ids, uint32_t cold);

// Returns the head of the state that follows a page.
PageHead make_state_head(const PageHead& page);

// Returns the bytes before the content.
std::vector<std::byte> page_head_bytes(const PageHead& head, std::span<const std::byte> content);

// Reads the head of a file; `file` is its beginning, or all of it. Throws an Error with the reason if it is not a page, or its
// name does not match its content.
PageHead read_page_head(std::span<const std::byte> file);

// Returns the size of a page's head in the file, with its ids.
size_t page_head_size(uint32_t tokens);

// Returns the content of a whole file with this head, which has `content_bytes`. Throws an Error if it is damaged.
std::span<const std::byte> page_content(std::span<const std::byte> file, const PageHead& head, uint64_t content_bytes);

} // namespace tq
