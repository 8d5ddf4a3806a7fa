// The codecs at the end of a chain: what they are given is coded as it is.
#pragma once
#include "model/kv/types.h"
#include "tools/page_lab/tile.h"

namespace tq::page_lab {

// A shipped type, token by token. `levels_only`: a TurboQuant type without its rotation.
TileCodecPtr token_codec(KvType type, bool levels_only);

// Lloyd-Max levels for a variance of 1, without any scale.
TileCodecPtr unit_levels(uint32_t bits);

// Levels that are fitted to the tile and stored in fp16.
TileCodecPtr fitted_levels(uint32_t bits);

// A trellis along the tokens of each channel, for a variance of 1, without any scale.
TileCodecPtr trellis_along_tokens(uint32_t bits, uint32_t memory, uint32_t entering);
// A trellis along the channels of each token, with one fp16 scale per token by the unbiased rule.
TileCodecPtr trellis_along_channels(uint32_t bits, uint32_t memory, uint32_t entering);

// Asymmetric round-to-nearest: an fp16 scale and zero per channel, or per token.
TileCodecPtr round_to_nearest(uint32_t bits, bool per_channel);

// Bits per channel, `mean_bits` in the mean, by the channels' variances in the tile: each in turn goes where it takes most of
// the squared error away. Four bits for the number of bits and an fp16 gain are stored per channel. memory: of a trellis along
// tokens; 0: Lloyd-Max levels. weighted: errors count as the channel's second moment of the tile's queries.
TileCodecPtr allocated_levels(double mean_bits, uint32_t memory, bool weighted);

enum class Metric { calibrated, page };

// The levels of unit_levels after the layer's rotation with one fp16 scale per token; the error of a channel is fed back into
// those after it, as the metric says they can make up for it (GPTQ). damping: that much of the mean of the diagonal is added to
// it.
TileCodecPtr feedback_codec(uint32_t bits, Metric metric, double damping);

// KVarN: rotation, 16 steps that balance the standard deviations of tokens and channels, asymmetric round-to-nearest with scale
// and zero per channel for keys, per token for values.
TileCodecPtr kvarn(uint32_t bits);

} // namespace tq::page_lab
