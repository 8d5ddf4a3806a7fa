// Code that the kernels of the delta rule share: offsets in floats of a head's rows and state, and the rows of a workgroup.
// `rows` is a buffer of vec4, the push constants are `p`; include recurrent.glsl first.
const uint head_dim = 128;

struct Head {
    uint value, key; // the value head, and the key head that has its queries and keys
};
Head head_of(uint value) { return Head(value, p.tiled != 0 ? value % p.key_heads : value / (p.value_heads / p.key_heads)); }

uint query_at(Head head) { return head.key * head_dim; } // in a token's row
uint key_at(Head head) { return (p.key_heads + head.key) * head_dim; }
uint value_at(Head head) { return (2 * p.key_heads + head.value) * head_dim; }
uint state_at(uint t) { return row_slot(t) * p.state_floats; }
uint matrix_at(uint t, Head head) { return state_at(t) + head.value * head_dim * head_dim; }

// The tokens of a workgroup by their positions: pending ones, then rows from `first` on, which is at `position`. After token
// `settled` - 1 the state is stored, if any of them comes before that.
struct Tokens {
    uint begin, settled, end, first, position;
};
Tokens tokens_of(uint first, uint end) {
    const uint position = row_position(first), last = position + end - first;
    const bool begins = first == 0 || row_slot(first - 1) != row_slot(first);
    return Tokens(begins ? min(row_state_begin(first), position) : position, min(row_state_end(first), last), last, first, position);
}

// Offsets of a token: its row after the norms, and its gates of all heads; in `state` if it is pending, else in `rows`.
struct Place {
    bool pending;
    uint row, gates;
};
Place place_of(Tokens of, uint at) {
    const uint t = of.first + at - of.position, slot = at % p.ring, state = state_at(of.first);
    return at < of.position ? Place(true, state + p.pending_outputs + slot * p.channels, state + p.pending_gates + slot * 2 * p.value_heads)
                            : Place(false, p.inputs + t * p.channels, p.gates + t * 2 * p.value_heads);
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
        end = p.settle != 0 ? first : rows_end(which);
    }
    return first < end || p.settle != 0;
}
