// The rows of a product: those of the matrix that a workgroup multiplies, those of x that it multiplies them by, and those of y
// that it writes. An ordinary product (`experts` is 0) has those of a slice, and the rows of a pass in their order. A product of
// experts takes the matrix as a stack of theirs, p.expert_rows each: a workgroup has one expert's, as far as they are in the
// slice, and pairs of routes.h that chose it; y has a row for each pair, x one for every p.pairs_per_x of them.
#include "routes.h"

layout(binding = 3) readonly buffer Routes { uint routes[]; }; // of an ordinary product the context: word 0 is `tokens`

uint matrix_row = 0;               // the slice's first row that is multiplied
uint row_count = p.rows;           // their number
uint first_column = p.first_row;   // the first one's place in a row of y
uint first_token, end_token;       // of a tile: rows of the pass, or words of `routes` that have pairs

// Finds the rows of an expert; returns false if the slice has none of them.
bool find_expert(uint expert) {
    const uint first = expert * p.expert_rows, begin = max(first, p.first_row), end = min(first + p.expert_rows, p.first_row + p.rows);
    if (begin >= end) return false;
    matrix_row = begin - p.first_row;
    row_count = end - begin;
    first_column = begin - first;
    return true;
}

#ifdef ROWS_TILE
// Finds the tile of at most ROWS_TILE tokens of this workgroup; returns false if it has nothing to do.
bool find_tile() {
    if (experts == 0) {
        first_token = gl_WorkGroupID.y * ROWS_TILE;
        end_token = routes[0];
        return first_token < end_token;
    }
    if (gl_WorkGroupID.y >= routes[ROUTES_TILES]) return false;
    const uint at = p.tiles_at + gl_WorkGroupID.y * ROUTES_TILE_WORDS;
    first_token = routes[at + 1];
    end_token = routes[at + 2];
    return find_expert(routes[at]);
}

// Returns the row of x of a token; past the end: that of the last token.
uint x_row(uint token) {
    const uint t = min(token, end_token - 1);
    return experts == 0 ? t : routes[t] / p.pairs_per_x;
}
// Returns the offset of a token's results in y.
uint y_start(uint token) { return (experts == 0 ? token : routes[token]) * p.y_cols + first_column; }
#endif
