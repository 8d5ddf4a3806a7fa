// Returns the key of a logit after penalties; NO_LOGIT past the vocabulary and for an excluded id. After the buffers Sampling and
// Logits.
uint key_at(uint id, uint vocab_size) {
    if (id >= vocab_size) return NO_LOGIT;
    const uint key = key_of(logits[id]);
    if (key == NONFINITE_LOGIT) return key;
    if ((id_words[id >> 5] >> (id & 31) & 1u) != 0u) return NO_LOGIT;
    if (settings.penalises == 0u) return key;
    const uint at = (vocab_size + 31) / 32 + 2 * id;
    const token_use use = token_use(id_words[at], id_words[at + 1]);
    return use.end == 0u ? key : penalised_key(key, settings, use);
}
