// The division of `length` keys, row_length() of a row, into `splits` parts: attention.comp computes one partial for each,
// and attention_combine.comp adds them up. Parts are multiples of `step` tokens long, and the last ones may be empty. One
// split: the whole sequence.
uint part_length(uint splits, uint length, uint step) { return ((length + splits - 1) / splits + step - 1) / step * step; }
uint part_count(uint splits, uint length, uint part) { return splits == 1 ? 1 : (length + part - 1) / part; }
