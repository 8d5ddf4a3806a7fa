// Requests of rank 0 to another rank: a request, then its reply, one at a time.
#pragma once
#include "model/forward.h"
#include "model/memory_plan.h"
#include "model/pass_rows.h"
#include "model/stages/ranks/message.h"

namespace tq {

// A request is its number and what follows; all but `plan`, `measure` and `end` name a stage by a number that rank 0 chose.
enum class RankRequest : uint32_t {
    plan,           // options -> MemoryPlan
    make,           // stage, options -> PassLimits, computation
    drop,           // stage
    run_block,      // stage, sequences, halves, rows, whole, h -> h
    run_separate,   // stage, sequences, halves, rows, h -> h
    read_page,      // stage, page, tokens -> the bytes of the layers that it holds, one after the other
    write_page,     // stage, page, tokens, bytes as of read_page
    stored,         // stage, sequences, slot, layer, side -> heads, tokens, codes, scales
    read_window,    // stage, slot, first, tokens -> the bytes of the layers that it holds, one after the other
    write_window,   // stage, slot, first, tokens, bytes as of read_window
    copy_page,      // stage, from, to, tokens
    copy_window,    // stage, sequences, from, to
    repeat,         // stage, sequences, slot, length, to
    read_state,     // stage, slot -> the bytes of the recurrent layers that it holds, one after the other
    write_state,    // stage, slot, bytes as of read_state
    copy_state,     // stage, from, to
    clear_state,    // stage, slot
    settle_state,   // stage, slot, settled, tokens
    find_nonfinite, // stage, sequences, slot -> whether there is one, and its name
    record_again,   // stage
    end,            // no reply: the job is over
};

// A reply begins with how it went, and, after `failed`, goes on with the error's text; else with the result.
enum class RankReply : uint32_t { done, failed };

// All but threads, tap, streamed and memory_bytes, which are each rank's own.
void write_options(MessageWriter& to, const ForwardOptions& options, uint32_t layers);
// Throws Error if they do not fit the model: a calibration of another shape, sizes that no cache has.
ForwardOptions read_options(MessageReader& from, const Config& config);

void write_rows(MessageWriter& to, const PassRows& rows);
PassRows read_rows(MessageReader& from);

// The tables and positions of a cache's slots; if the other side has these tables, only the positions.
void write_sequences(MessageWriter& to, const Cache& cache, bool with_tables);

// Makes `cache` the bookkeeping of another process's slots, as it was when they were written. Throws Error if they are those
// of another shape.
void read_sequences(MessageReader& from, Cache& cache);

// Copies the parts of a page's bytes that belong to layers whose attention is held, one after the other, and back.
std::vector<std::byte> held_bytes(const PageLayout& layout, const HeldHalves& held, std::span<const std::byte> page,
                                  uint32_t tokens);
void put_held_bytes(const PageLayout& layout, const HeldHalves& held, std::span<std::byte> page, uint32_t tokens,
                    std::span<const std::byte> bytes);

// The same for a slot's recurrent states (Config::state_bytes()).
std::vector<std::byte> held_states(const Config& config, const HeldHalves& held, std::span<const std::byte> states);
void put_held_states(const Config& config, const HeldHalves& held, std::span<std::byte> states, std::span<const std::byte> bytes);

} // namespace tq
