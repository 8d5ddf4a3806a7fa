// Files of a KV cache, which --prompt-cache writes and reads, so that a prompt is run once. Hostile until checked.
//
// A file is safetensors: eight bytes, a header of JSON, and tensors in this order, N being 0, 1, ...:
//   ids                 I32 [tokens]                     what was run, from position 0 on
//   layers.N.k.codes    I32 [kv_heads][tokens][words]    the 32-bit words of each key (kv/turboquant.md)
//   layers.N.k.scales   F16 [kv_heads][tokens][scales]   its scales, and zeros, where the type has any
//   layers.N.v.codes, layers.N.v.scales                  of the values
//   check               I32 [number of those][2]         checksum() of the bytes of each (base/checksum.h), the lower half first
// They are the cache's own bytes, which are the same on every device: no vector is decoded on the way. The texts under
// __metadata__ say whose they are, and a reader must compare them:
//   format, version     tq-run-prompt-cache, 2
//   fingerprint         of the model (fingerprint.h)
//   rope                how positions are stretched: "none x1 of 40960, attn 1, beta 32 1, theta 1000000"
//   types               of each layer, keys/values: "tq4/tq4 tq4/tq4 q8_0/f16"
//   rotation, scale_rule   by their names, for the types that have them
//   conditioning        none, norms, by layer where they differ ("norms none norms"), or "measured" and the checksum of a
//                       calibration's scales and means, one behind the other
//   model               its name, for people
#pragma once
#include "base/checksum.h"
#include "model/config.h"
#include "model/formats/safetensors.h"
#include "model/kv/options.h"
#include "model/kv/stored.h"
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tq {

// Whose cache it is.
struct PromptCacheOwner {
    Config config;
    KvOptions kv;            // with the content of its calibration
    std::string fingerprint; // model_fingerprint()
    std::string model;       // its name, for people
};

uint64_t prompt_cache_bytes(const PromptCacheOwner& owner, uint32_t tokens); // of the whole file

// Calls write(bytes) with one piece of the file after the other; `stored` is asked for each layer's keys and then its values, in
// order, of ids.size() > 0 tokens. Throws what they throw.
void write_prompt_cache(const PromptCacheOwner& owner, std::span<const uint32_t> ids, const StoredSource& stored,
                        const std::function<void(std::span<const std::byte>)>& write);

class PromptCacheFile {
  public:
    // Throws an Error that names the file and says what to do, when it is not whole, or was saved with another model or cache.
    PromptCacheFile(const std::filesystem::path& path, const PromptCacheOwner& owner);

    const std::vector<uint32_t>& ids() const { return ids_; } // at least one, all of the vocabulary

    // One side of a layer at the first `tokens` of ids(). Throws an Error where the bytes are not those that were written.
    StoredSide read(uint32_t layer, KvSide side, uint32_t tokens) const;

  private:
    std::span<const std::byte> checked(const std::string& name) const;

    std::string shown_; // the path
    ModelFile file_;
    std::vector<TensorShape> shapes_; // of the tensors, in their order
    KvOptions kv_;
    Config config_;
    std::vector<uint32_t> ids_;
};

} // namespace tq
