// The number of prompt tokens per block, so that no dispatch takes long: drivers reset a device that is busy for too long with
// one (Windows after 2 s, Linux' for Intel after 2.5 s, phones' after 2 to 3 s), and the display is not drawn meanwhile.
#pragma once
#include "model/config.h"
#include "model/gpu/tuning.h"
#include <cstdint>

namespace tq::gpu {

// Returns the maximum of seconds for a layer of a block, and so for each of its dispatches: 0.03 if the GPU also draws the screen
// or is a phone's, 0.25 on discrete GPUs; infinite on CPUs, which are never reset.
double max_layer_seconds(DeviceType type);

class BlockPace {
  public:
    // `layer_seconds` > 0: max_layer_seconds(), or a test's value.
    BlockPace(DeviceType type, const Config& config, const Tuning& tuning, double layer_seconds);

    // Returns the tokens of the next block, at `position`: at least 1 and at most `max` > 0; at least 2 if there are 2,
    // even if they take too long. Before the first block, the speed of a slow device of this type is assumed.
    uint32_t next(uint32_t position, uint32_t max) const;

    // Reports that a block took `seconds` over all layers. The rate falls at once, but rises at most fourfold per block.
    void ran(uint32_t position, uint32_t tokens, double seconds);

  private:
    double products(uint32_t tokens) const;                     // operations per layer
    double attention(uint32_t position, uint32_t tokens) const; // per layer, in units of products' operations

    const double layer_seconds_, layers_, token_products_, pair_attention_;
    const uint32_t tile_; // the products of this number of tokens take as long as those of one
    double rate_;         // operations per second
};

} // namespace tq::gpu
