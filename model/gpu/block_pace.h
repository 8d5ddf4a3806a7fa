// How many tokens of a prompt run at a time, so that no dispatch takes long: drivers reset a device that is busy for too long
// with one (Windows after 2 s, Linux' for Intel after 2.5 s, phones' after 2 to 3 s), and a display cannot be drawn meanwhile.
#pragma once
#include "model/config.h"
#include "model/gpu/tuning.h"
#include <cstdint>

namespace tq::gpu {

// Most seconds that a layer of a block may take, and so each of its dispatches: 0.03 where the GPU also draws the screen or is a
// phone's, 0.25 on discrete ones; infinite on processors, which nobody resets.
double max_layer_seconds(DeviceType type);

class BlockPace {
  public:
    // `layer_seconds` > 0: max_layer_seconds(), or what a test wants.
    BlockPace(DeviceType type, const Config& config, const Tuning& tuning, double layer_seconds);

    // Tokens of the next block, at `position`: at least 1 and at most `most` > 0; 2 where there are as many even if they take too
    // long. Before anything has run, by the speed of a slow device of this type.
    uint32_t next(uint32_t position, uint32_t most) const;

    // A block ran in so many seconds, of all layers. Slowness is believed at once, speed up to four times as much a block.
    void ran(uint32_t position, uint32_t tokens, double seconds);

  private:
    double products(uint32_t tokens) const;                     // operations of a layer
    double attention(uint32_t position, uint32_t tokens) const; // likewise, as if they were products'

    const double layer_seconds_, layers_, token_products_, pair_attention_;
    const uint32_t tile_; // so many tokens' products take as long as one's
    double rate_;         // operations a second
};

} // namespace tq::gpu
