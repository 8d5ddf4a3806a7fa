// Rows of a pass for the kernels of recurrent layers: rows of one slot are consecutive, and each depends on the one before it,
// also if the rows are separate. Include context.glsl first.

// Returns how many rows directly before row t are of its slot, at most `max_rows`.
uint rows_before(uint t, uint max_rows) {
    uint before = 0;
    while (before < max_rows && before < t && row_slot(t - before - 1) == row_slot(t)) before++;
    return before;
}

// Returns the row after the last one of the slot of row t.
uint rows_end(uint t) {
    uint end = t + row_length(t) - row_position(t); // of a block's span, which the host has counted
    while (end < tokens && row_slot(end) == row_slot(t)) end++;
    return end;
}
