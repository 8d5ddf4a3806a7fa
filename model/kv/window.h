// The full-precision window: the last tokens of a layer, kept in fp16 beside its codes (KvOptions::window). A query attends to
// these in fp16, and to the codes of the tokens before them. turboquant.md, section "The full-precision window".
//
// Fp16 vectors lie in a ring of kept_window_tokens() places, so a later token overwrites the vector of an earlier one. If a
// sequence is cut, a later token may have overwritten vectors of the shorter sequence's window, although their codes remain.
// WindowPositions says which vectors are there:
// - `begin`: vectors of positions from here on are kept. A cut sets it, because the ring has only the last tokens before the
//   cut. A query soon after it may have a short window.
// - `since`: the length of the sequence when `begin` was set. At a shorter length the sequence had another window, so bits of a
//   cut to below `since` could differ from those that an uncut run had there.
// - survives(): a cut is exact, as if the later tokens had never been run, if the query after it has all vectors that it reads,
//   or the window that it had at that length. Otherwise Cache::kept() goes back to a checkpoint.
#pragma once
#include "model/kv/codec.h"
#include "shaders/kv_types.h"
#include "shaders/sampling.h"
#include <algorithm>

namespace tq {

inline constexpr uint32_t max_window_tokens = 1024; // maximum of KvOptions::window

// More tokens are kept than are attended to, so that tokens which a device has sampled ahead can be taken back without an effect
// on the window.
constexpr uint32_t kept_window_tokens(uint32_t window) { return window + SAMPLING_STEPS; }

// The stored vector is the vector in the codes' own space (rotated, if they are) times this: a power of two, with which no
// rotation makes a vector longer.
inline constexpr float window_unit = 1 / WINDOW_INVERSE_UNIT;

// words[head_dim / 2] = fp16 numbers, for the x[head_dim] that encode() is given. The FIRST_TOKENS of each page are also
// kept in fp16, in every layer with codes (PageLayout): attention reads those of a sequence, which all later queries attend to,
// never as codes.
void encode_window(const KvCodec& codec, std::span<uint32_t> words, std::span<const float> x);
// y[head_dim] = the vector that words[head_dim / 2] hold, in the codes' own space.
void decode_window(std::span<float> y, std::span<const uint32_t> words);

// The positions whose fp16 vectors are kept.
struct WindowPositions {
    uint32_t tokens = 0; // tokens that a query attends to, its own included; 0: no window
    uint32_t begin = 0;  // none before this one
    uint32_t since = 0;  // the length that the sequence had when `begin` came to be: at a shorter one, others were kept

    // Notes that the sequence has `length` tokens, and vectors from position `from` on.
    void start(uint32_t from, uint32_t length) { begin = from, since = length; }
    // Returns the first position in the window of a query at `position`; for earlier ones codes are used.
    uint32_t first(uint32_t position) const { return std::max(begin, position + 1 - std::min(position + 1, tokens)); }
    // Whether a query at `position` has a full window, or all tokens that there are.
    bool is_whole(uint32_t position) const { return tokens == 0 || begin + tokens <= position + 1 || begin == 0; }
    // Forgets positions from `to` on, after positions up to `end` have been stored: the vectors that they replaced are lost.
    void forget(uint32_t end, uint32_t to) {
        const uint32_t left = std::min(to, std::max(begin, end - std::min(end, kept_window_tokens(tokens))));
        start(left, left == begin ? std::min(since, to) : to);
    }
    // Returns whether a sequence of positions up to `end` that is cut to length `to` has the window that it had at that length,
    // or all that a query reads. An equal `begin` is not enough: it may be that of a window that was put back at a greater
    // length.
    bool survives(uint32_t end, uint32_t to) const {
        WindowPositions left = *this;
        left.forget(end, to);
        return left.is_whole(to) || (left.begin == begin && to >= since);
    }
    // Tells that positions end .. to - 1 have become repetitions of those before, in the codes alone. If the `kept` vectors of
    // the window have all been written once, they represent the repeated ones; otherwise the window is empty.
    void repeated(uint32_t end, uint32_t to, uint32_t kept) {
        if (end < kept) start(to, to);
    }
};

} // namespace tq
