// ids[0] = sampled[sampled_tokens] = id; ids[0] is 0 if id is NO_TOKEN. Counts the id's use if settings.penalises, and steps on.
// Include it after the buffers Ids, Sampling and Context. use_words: offset of the uses in id_words. For one invocation.
void take_token(uint id, uint use_words) {
    ids[0] = id == NO_TOKEN ? 0u : id;
    sampled[sampled_tokens] = id;
    if (settings.penalises != 0u && id != NO_TOKEN) {
        const uint at = use_words + 2 * id;
        id_words[at]++;
        id_words[at + 1] = ++settings.next;
    }
    words[0]++; // the position of the only row
    sampled_tokens++;
}
