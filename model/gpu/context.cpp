#include "model/gpu/context.h"
#include "base/ensure.h"
#include "base/error.h"
#include "model/rope.h"
#include "runtime/uploader.h"
#include <algorithm>

namespace tq::gpu {

// Copies values, which may be none, to an offset of `to`.
template <typename T> static void put(std::span<std::byte> to, uint64_t at, std::span<const T> values) {
    std::ranges::copy(std::as_bytes(values), to.begin() + ptrdiff_t(at));
}

void ContextLayout::write_header(std::span<std::byte> to, size_t rows, size_t spans) const {
    ENSURE(rows <= max_rows && spans <= max_spans, "{} rows in {} spans", rows, spans);
    const auto word = [](uint64_t at) { return uint32_t((at - rows_at()) / 4); };
    const uint32_t header[CONTEXT_HEADER_WORDS] = {uint32_t(rows),   uint32_t(spans),      0,
                                                   word(spans_at()), word(tables_at()),    table_pages,
                                                   word(rope_at()),  word(page_turns_at())};
    put(to, 0, std::span<const uint32_t>(header));
}

void ContextLayout::write_rows(std::span<std::byte> to, std::span<const Row> rows, std::span<const RowSpan> spans) const {
    write_header(to, rows.size(), spans.size());
    put(to, rows_at(), rows);
    put(to, spans_at(), spans);
}

void ContextLayout::write_head(std::span<std::byte> to, std::span<const uint32_t> rows) const {
    write_header(to, rows.size(), 0);
    for (size_t i = 0; i < rows.size(); i++) put(to, rows_at() + i * sizeof(Row), rows.subspan(i, 1));
}

void ContextLayout::write_table(std::span<std::byte> to, uint32_t slot, std::span<const uint32_t> pages) const {
    ENSURE(slot < slots && pages.size() <= table_pages, "{} pages of slot {}", pages.size(), slot);
    put(to, tables_at() + 4ull * slot * table_pages, pages);
}

void ContextLayout::write_rope(std::span<std::byte> to, std::span<const float> table) const {
    ENSURE(table.size() == size_t(positions) * head_dim, "{} numbers of {} positions", table.size(), positions);
    put(to, rope_at(), table);
    for (uint32_t page = 0; page < table_pages && page * PAGE < positions; page++)
        for (uint32_t pair = 0; pair < head_dim / 2; pair++)
            put(to, page_turns_at() + 8ull * (uint64_t(pair) * table_pages + page),
                table.subspan(size_t(page) * PAGE * head_dim + 2 * pair, 2));
}

Buffer make_context(Device& device, const Config& config, const ContextLayout& layout) {
    if (layout.bytes() > device.capabilities().storage_range_bytes)
        fail("a context of {} tokens is more than {} can address: choose at most {} with -c", layout.positions,
             device.capabilities().name,
             (device.capabilities().storage_range_bytes - layout.rope_at()) / (uint64_t(layout.head_dim) * 4) * PAGE /
                 (PAGE + 1));
    std::vector<std::byte> content(layout.bytes());
    layout.write_rope(content, rope_table(config, layout.positions));
    return upload(device, "context", content);
}

} // namespace tq::gpu
