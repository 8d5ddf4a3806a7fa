// The common parts of attention.comp and attention_per_lane.comp: one workgroup per split (x), `heads` of the `group` query
// heads of a kv head of the slice (y), and tile of tokens (z). Its `rows` query rows are those heads for each of `tile` tokens:
// every key and value is decoded once for all of them.
// Where there is a full-precision window, one dispatch excludes its tokens and another attends to them alone, into a partial of
// its own.
// A partial: acc[head_dim] = sum of exp(score - m) s_v L_v; for values with QJL's bit the same sum of residual lengths and
// signs; then m, then l = sum of exp(score - m).
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
#include "parts.glsl"
READ_VECTORS(1, q)
CONTEXT_AT(3);

const uint rows = heads * tile;
const uint k_parts = 1 + KV_QJL(k_type), v_parts = 1 + KV_QJL(v_type); // 2: levels, and QJL's signs
const float nothing = -1e30; // masked score: a finite stand-in for minus infinity
const uint per_kv_head = group / heads; // workgroups per kv head
const uint part_size = v_parts * head_dim + 2;

uint row_token(uint r) { return gl_WorkGroupID.z * tile + r / heads; }
uint row_head(uint r) {
    return (p.first_head + gl_WorkGroupID.y / per_kv_head) * group + gl_WorkGroupID.y % per_kv_head * heads + r % heads;
}

// Returns channels [4 i, 4 i + 4) of a row's query, or of its projection.
vec4 query_of(uint part, uint r, uint i) {
    const uint at = (row_token(r) * p.heads + row_head(r)) * (head_dim / 4) + i;
    return row_token(r) < tokens ? uintBitsToFloat(q(part * p.projected / 4 + at)) : vec4(0.0);
}

// Returns the offset of a row's partial in `partials`.
uint part_of(uint r) {
    return ((row_token(r) * p.heads + row_head(r)) * (window == WINDOW_ONLY ? 1 : p.splits) + gl_WorkGroupID.x) * part_size;
}

// Returns the range [x, y) of this workgroup's keys. It is empty where y <= x, and the partial then has no weight; from x =
// position + tokens on the combine kernel reads no partial.
uvec2 key_range() {
    const uint length = position + min(tokens, (gl_WorkGroupID.z + 1) * tile); // keys visible to the tile's last token
    if (window == WINDOW_ONLY) {
        const uint first = position + gl_WorkGroupID.z * tile + 1;
        return uvec2(max(first - min(first, p.window_tokens), window_begin), length);
    }
    const uint part = part_length(p.splits, position + tokens, p.part_step), begin = gl_WorkGroupID.x * part;
    return uvec2(begin, min(length, begin + part));
}

bool sees(uint r, uint key, uint end) {
    const uint own = position + row_token(r);
    if (key >= end) return false;
    if (window == WINDOW_NONE) return key <= own; // causal
    return key <= own && (key >= window_begin && key + p.window_tokens > own) == (window == WINDOW_ONLY);
}

// Returns the number of a key's vector. A ring holds the window before the pass's own tokens; the token of a pass of one, too.
uint vector_of(uint key) {
    const uint head = gl_WorkGroupID.y / per_kv_head;
    if (window != WINDOW_ONLY) return head * p.capacity + key;
    return p.capacity != 0 && key >= position ? head * p.capacity + key - position : p.ring + head * p.ring_tokens + key % p.ring_tokens;
}

// Returns the factors of a vector's loaded values and of QJL's signs.
vec2 scales_of(uint type, uint scales, uint at) {
    return window == WINDOW_ONLY ? vec2(WINDOW_INVERSE_UNIT, 0.0) : vector_scales(type, scales, at);
}

float sum_of(vec4 v) { return (v.x + v.y) + (v.z + v.w); }
