// The transforms of a chain, each of which hands what it leaves to another codec.
#pragma once
#include "tools/page_lab/tile.h"

namespace tq::page_lab {

// Subtracts each channel's mean over the tile, stored in fp16.
TileCodecPtr without_mean(TileCodecPtr inner);

// The layer's Hadamard rotation, with a gain of 1.
TileCodecPtr rotated(TileCodecPtr inner);

// The same of each 32 consecutive channels, with signs of its own.
TileCodecPtr rotated_in_groups(TileCodecPtr inner);

struct Gains {
    bool channels, tokens;      // divides by the root mean square of each
    int steps = 1;              // that alternate between both
    bool kept = true;           // false: the tokens' gains only balance those of the channels; what follows scales tokens
    bool logarithmic = false;   // the channels' gains are stored as 8-bit logarithms, in steps of 2^(1/8); otherwise in fp16
    bool by_queries = false;    // a channel's gain is the root of its root mean square over that of the tile's queries
    bool least_squares = false; // how a token's gain is chosen in the end, by the rules of model/kv/turboquant.md
};
TileCodecPtr with_gains(Gains gains, TileCodecPtr inner);

// The basis in which calibrated covariances are diagonal and all errors cost the same: U^T metric^(1/2), after that share of the
// mean of its diagonal has been added to the metric's.
TileCodecPtr in_calibrated_basis(double damping, TileCodecPtr inner);

// Adds noise of that share of the variance of each token's vector instead of coding it; counts no bits. A bound for comparison.
TileCodecPtr noise(double share);

} // namespace tq::page_lab
