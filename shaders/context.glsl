// The state of a pass: its `tokens` rows, each a token of some slot, and the page tables of all slots (model/cache.h). Rows of
// one slot that follow one another are a span. In the head, which has a row for each token whose logits are wanted, a row has one
// word: its number among the rows of h. `sampled_tokens` tokens have been sampled since the host last wrote this
// (shaders/sample.comp).
//
// words: rows [max_rows][ROW_WORDS]: the row's position and slot, the numbers of rows of its span before and after it that keys
// are divided by (0 if rows are separate), the first position that may be in the slot's full-precision window
// (model/kv/window.h), and the numbers of tokens that its slot's states contain before and after the pass (StateRange of
// model/pass_rows.h); then spans [][2]: their first row and the one after their last; then tables [slots][table_pages]: the page
// of each PAGE positions; then the rotary table: cos and sin of position p and pair i of the rotary channels, [positions][rotary
// / 2][2]; then those of the pages' first positions once more, [rotary / 2][table_pages][2], so that invocations with a page each
// read in a run.
#include "context_words.h"
#define CONTEXT_OF(n, qualifier)                                                                                                 \
    layout(binding = n) qualifier buffer Context {                                                                               \
        uint tokens;                                                                                                             \
        uint spans;                                                                                                              \
        uint sampled_tokens;                                                                                                     \
        uint spans_at;                                                                                                           \
        uint tables_at;                                                                                                          \
        uint table_pages;                                                                                                        \
        uint rope_at;                                                                                                            \
        uint page_turns_at;                                                                                                      \
        uint words[];                                                                                                            \
    };                                                                                                                           \
    uint row_position(uint t) { return words[t * ROW_WORDS]; }                                                                   \
    uint row_slot(uint t) { return words[t * ROW_WORDS + 1]; }                                                                   \
    uint row_start(uint t) { return words[t * ROW_WORDS] - words[t * ROW_WORDS + 2]; }                                           \
    uint row_length(uint t) { return words[t * ROW_WORDS] + words[t * ROW_WORDS + 3] + 1; }                                      \
    uint row_window_begin(uint t) { return words[t * ROW_WORDS + 4]; }                                                           \
    uint row_state_begin(uint t) { return words[t * ROW_WORDS + 5]; }                                                            \
    uint row_state_end(uint t) { return words[t * ROW_WORDS + 6]; }                                                              \
    uint head_row(uint t) { return words[t * ROW_WORDS]; }                                                                       \
    uvec2 span_rows(uint s) { return uvec2(words[spans_at + 2 * s], words[spans_at + 2 * s + 1]); }                              \
    uint page_of(uint slot, uint position) { return words[tables_at + slot * table_pages + position / PAGE]; }                   \
    vec2 turn_at(uint at) { return uintBitsToFloat(uvec2(words[at], words[at + 1])); }                                           \
    vec2 rope_turn(uint i) { return turn_at(rope_at + 2 * i); }                                                                  \
    vec2 page_turn(uint pair, uint page) { return turn_at(page_turns_at + 2 * (pair * table_pages + page)); }
#define CONTEXT_AT(n) CONTEXT_OF(n, readonly)
