// The data that all kernels of a pass share, in one buffer: shaders/context.glsl.
#pragma once
#include "model/config.h"
#include "model/pass_rows.h"
#include "runtime/device.h"
#include "shaders/context_words.h"
#include <span>
#include <vector>

namespace tq::gpu {

using tq::PassRows, tq::RowSpan;
using Row = PassRow;
static_assert(sizeof(Row) == ROW_WORDS * 4);

// The sizes of its parts, and their offsets in bytes.
struct ContextLayout {
    uint32_t max_rows, max_spans, slots, table_pages; // pages of a slot
    uint32_t positions, head_dim;                     // of the rotary table

    static constexpr uint64_t rows_at() { return CONTEXT_HEADER_WORDS * 4; }
    uint64_t spans_at() const { return rows_at() + uint64_t(max_rows) * sizeof(Row); }
    uint64_t tables_at() const { return spans_at() + uint64_t(max_spans) * sizeof(RowSpan); }
    uint64_t rope_at() const { return tables_at() + 4ull * slots * table_pages; }
    uint64_t page_turns_at() const { return rope_at() + 4ull * positions * head_dim; }
    uint64_t bytes() const { return page_turns_at() + 4ull * table_pages * head_dim; }

    // Write the header, rows and spans of a pass, and the pages of a slot, into bytes that start at the beginning of the context.
    void write_rows(std::span<std::byte> to, std::span<const Row> rows, std::span<const RowSpan> spans) const;
    // Writes the rows of the head: their numbers among the rows of h.
    void write_head(std::span<std::byte> to, std::span<const uint32_t> rows) const;
    void write_table(std::span<std::byte> to, uint32_t slot, std::span<const uint32_t> pages) const;
    // The rotary table, [positions][head_dim / 2][2], and its parts for the pages' first positions.
    void write_rope(std::span<std::byte> to, std::span<const float> table) const;

  private:
    void write_header(std::span<std::byte> to, size_t rows, size_t spans) const;
};

// Makes the buffer, with the rotary table. Throws Error if it exceeds the device's limit of a binding.
Buffer make_context(Device& device, const Config& config, const ContextLayout& layout);

} // namespace tq::gpu
