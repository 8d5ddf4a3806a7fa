// The common parts of attention.comp and attention_per_lane.comp: one workgroup per split (x), `heads` of the `group` query
// heads of a kv head of the slice (y), and tile of tokens (z), whose rows belong to one span. Its `rows` query rows are those
// heads for each of `tile` tokens: every key and value is decoded once for all of them.
// If there is a full-precision window, one dispatch excludes its tokens and another attends to them alone, into a partial of
// its own.
// A partial: acc[head_dim] = sum of exp(score - m) s_v L_v; then m, then l = sum of exp(score - m).
#include "params.h"
#include "context.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint lanes = 1;
layout(constant_id = 1) const uint head_dim = 128;
layout(constant_id = 2) const uint k_type = 2;
layout(constant_id = 3) const uint v_type = 2;
layout(constant_id = 4) const uint group = 2; // query heads per kv head
layout(constant_id = 5) const uint heads = 2; // those in this workgroup; divides group
layout(constant_id = 6) const uint tile = 1;  // tokens
layout(constant_id = 7) const uint window = 0; // WINDOW_NONE, WINDOW_EXCLUDED or WINDOW_ONLY
layout(push_constant) uniform Push { attention_params p; };
layout(binding = 0) writeonly buffer Partials { float partials[]; };
#define CACHE_BINDING 2
#include "kv_load.glsl"
#include "splits.glsl"
READ_VECTORS(1, q)
#ifdef TEXEL
uint q_word(uint i) { return q(i >> 2)[i & 3]; }
#else
layout(binding = 1) readonly buffer QueryWords { uint query_words[]; };
uint q_word(uint i) { return query_words[i]; }
#endif
CONTEXT_AT(3)

const uint rows = heads * tile;
const float masked = -1e30; // the score of a key that is not seen: a finite stand-in for minus infinity
const uint per_kv_head = group / heads; // workgroups per kv head
const uint partial_size = head_dim + 2;

uint first_token, end_token; // rows of the pass
uint first_position, slot;   // of first_token
// Finds the tile; returns false if there is none.
bool find_tile() {
    uint rest = gl_WorkGroupID.z;
    if (tile == 1) {
        first_token = rest;
        end_token = rest + 1;
        if (rest >= tokens) return false;
    } else {
        uint s = 0;
        uvec2 span = uvec2(0);
        for (; s < spans; s++) {
            span = span_rows(s);
            const uint tiles = (span.y - span.x + tile - 1) / tile;
            if (rest < tiles) break;
            rest -= tiles;
        }
        if (s == spans) return false;
        first_token = span.x + rest * tile;
        end_token = min(first_token + tile, span.y);
    }
    first_position = row_position(first_token);
    slot = row_slot(first_token);
    return true;
}

uint row_token(uint r) { return first_token + r / heads; }
uint row_head(uint r) {
    return (p.first_head + gl_WorkGroupID.y / per_kv_head) * group + gl_WorkGroupID.y % per_kv_head * heads + r % heads;
}

// Returns channels [4 i, 4 i + 4) of a row's query. Whatever is loaded is loaded without a branch, here and below:
// compilers wait for a load at the end of its branch, and loads that follow one another take as long as all of them.
vec4 query_of(uint r, uint i) {
    const uint at = (min(row_token(r), end_token - 1) * p.heads + row_head(r)) * (head_dim / 4) + i;
    return mix(vec4(0.0), uintBitsToFloat(q(at)), bvec4(row_token(r) < end_token));
}

// Returns the term that is added to a row's scores of the keys of a page, because these lack a mean (q_norm_rope.comp); 0 for
// plain keys.
float page_score(uint r, uint key) {
    if (!KV_IS_CODED(k_type) && window != WINDOW_ONLY) return 0.0;
    const uint query = min(row_token(r), end_token - 1) * p.heads + row_head(r),
               at = p.page_scores + query * p.pages + min(key / PAGE, max(p.pages, 1u) - 1u);
    return mix(0.0, uintBitsToFloat(q_word(at)), p.pages != 0);
}

// Returns a row's page scores for the first and the last of `length` keys from `first` on, a batch. A batch lies in one page,
// since PAGE is a multiple of its length, but that of a window begins anywhere.
vec2 page_scores_of(uint r, uint first, uint length, uint end) {
    return vec2(page_score(r, min(first, end - 1)), window == WINDOW_ONLY ? page_score(r, min(first + length, end) - 1) : 0.0);
}
// Returns which of these is that of a key of the batch.
float page_score_in(vec2 scores, uint first, uint key) {
    return mix(scores.x, scores.y, window == WINDOW_ONLY && key / PAGE != first / PAGE);
}

// Returns the offset of a row's partial in `partials`.
uint partial_of(uint r) {
    return ((row_token(r) * p.heads + row_head(r)) * (window == WINDOW_ONLY ? 1 : p.splits) + gl_WorkGroupID.x) * partial_size;
}

// Returns the range [x, y) of this workgroup's keys. It is empty if y <= x, and the partial then has no weight. If x is at least
// row_length(), the combine kernel does not read the partial.
uvec2 key_range() {
    const uint end = first_position + end_token - first_token; // keys visible to the tile's last token
    if (window == WINDOW_ONLY) {
        const uint first = first_position + 1;
        return uvec2(max(first - min(first, p.window_tokens), row_window_begin(first_token)), end);
    }
    const uint split = split_length(p.splits, row_length(first_token), p.split_step), begin = gl_WorkGroupID.x * split;
    return uvec2(begin, min(end, begin + split));
}
bool is_read(uint begin) { return begin < row_length(first_token); }

// Returns the keys below `end` that a row sees, which are a run: the first of them, and their number. For a window they are the
// last ones, else the keys before it.
uvec2 seen_keys(uint r, uint end) {
    const uint after = first_position + r / heads + 1; // the first that is in the row's future
    const uint near = max(row_window_begin(first_token), after - min(after, p.window_tokens));
    const uint begin = window == WINDOW_ONLY ? max(near, p.sinks) : p.sinks;
    const uint stop = min(window == WINDOW_EXCLUDED ? min(near, after) : after, end);
    return uvec2(begin, stop - min(begin, stop));
}
bool is_seen(uvec2 seen, uint key) { return key - seen.x < seen.y; }

// Returns the number of a key's vector. `near` is a key in the same page that is the same for all invocations of a subgroup, if
// the kernel knows one; else it is the key itself. A ring holds the window before the pass's own tokens; if the pass has no
// block, also its own tokens.
uint vector_near(uint key, uint near) {
    const uint head = gl_WorkGroupID.y / per_kv_head;
    if (window != WINDOW_ONLY) return (page_of(slot, near) * p.slice_heads + head) * PAGE + key % PAGE;
    return p.block_tokens != 0 && key >= row_start(first_token)
               ? head * p.block_tokens + first_token + key - first_position
               : p.ring + (slot * p.slice_heads + head) * p.ring_tokens + key % p.ring_tokens;
}

// Returns what vector_scales() does, for a window its unit.
vec4 scales_of(uint type, uint scales, uint at) {
    return window == WINDOW_ONLY ? vec4(WINDOW_INVERSE_UNIT) : vector_scales(type, scales, at);
}

float sum_of(vec4 v) { return (v.x + v.y) + (v.z + v.w); }

// Returns the sum of four products with a key's levels, times its scales. Product i is of the channels c with c % 4 == i.
float score_of(vec4 products, vec4 by) {
    if (KV_UNEQUAL(k_type) != 0) return sum_of(products * by);
    return sum_of(products) * by.x;
}
