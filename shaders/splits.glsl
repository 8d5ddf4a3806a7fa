// The division of `length` keys, row_length() of a row, into splits: attention.comp computes one partial for each,
// and attention_combine.comp adds them up. Splits are multiples of `step` tokens long, and the last ones may be empty. One
// split: the whole sequence.
uint split_length(uint splits, uint length, uint step) { return ((length + splits - 1) / splits + step - 1) / step * step; }
uint split_count(uint splits, uint length, uint split) { return splits == 1 ? 1 : (length + split - 1) / split; }
