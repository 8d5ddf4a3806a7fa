// What the kernels of the delta rule share: where a head's rows and its state are, in floats, and which rows a workgroup has. `rows` is a
// buffer of vec4, the push constants are `p`; include recurrent.glsl first.
const uint head_dim = 128;

struct Head {
    uint value, key; // the value head, and the key head that has its queries and keys
};
Head head_of(uint value) { return Head(value, p.tiled != 0 ? value % p.key_heads : value / (p.value_heads / p.key_heads)); }

uint query_at(uint t, Head head) { return p.inputs + t * p.channels + head.key * head_dim; }
uint key_at(uint t, Head head) { return query_at(t, head) + p.key_heads * head_dim; }
uint value_at(uint t, Head head) { return p.inputs + t * p.channels + (2 * p.key_heads + head.value) * head_dim; }
uint matrix_at(uint t, Head head) { return row_slot(t) * p.state_floats + head.value * head_dim * head_dim; }

// beta and alpha
vec2 gates_of(uint t, Head head) {
    const uint pair = t * p.value_heads + head.value;
    const vec4 two = rows[(p.gates + 2 * pair) / 4];
    return pair % 2 == 0 ? two.xy : two.zw;
}

// Returns whether workgroup `which` has rows in this dispatch: those of a span, or the separate ones of a slot.
bool rows_of(uint which, out uint first, out uint end) {
    first = which;
    end = 0;
    if (which >= (p.separate != 0 ? tokens : spans)) return false;
    if (p.separate == 0) {
        const uvec2 span = span_rows(which);
        first = max(span.x, p.first_row);
        end = min(span.y, p.first_row + p.max_rows);
    } else if (rows_before(which, 1) == 0) {
        end = rows_end(which);
    }
    return first < end;
}
