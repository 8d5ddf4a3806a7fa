// Files of a KV cache, which --prompt-cache writes and reads, so that a prompt is run only once. Untrusted until checked.
//
// A file is safetensors: eight bytes, a header of JSON, and tensors in this order, N being 0, 1, ...:
//   ids                 I32 [tokens]                     the ids that were run, from position 0 on
//   layers.N.k.codes    I32 [kv_heads][tokens][words]    the 32-bit words of each key (kv/turboquant.md)
//   layers.N.k.scales   F16 [kv_heads][tokens][scales]   its scales, and zeros, where the type has any
//   layers.N.v.codes, layers.N.v.scales                  the same of the values
//   check               I32 [number of those][2]         checksum() of the bytes of each (base/checksum.h), the lower half first
// The tensors are the cache's own bytes, which are equal on every device: no vector is decoded. The texts under
// __metadata__ identify the owner, and a reader must compare them:
//   format, version     tq-run-prompt-cache, 2
//   fingerprint         of the model (fingerprint.h)
//   rope                the scaling of positions: "none x1 of 40960, attn 1, beta 32 1, theta 1000000"
//   types               of each layer, keys/values: "tq4/tq4 tq4/tq4 q8_0/f16"
//   rotation, scale_rule   by their names, for the types that have them
//   conditioning        none, norms, by layer where they differ ("norms none norms"), or "measured" and the checksum of a
//                       calibration's scales and means, one after the other
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

// Identifies the owner of a cache.
struct PromptCacheOwner {
    Config config;
    KvOptions kv;            // includes the content of its calibration
    std::string fingerprint; // model_fingerprint()
    std::string model;       // its name, for people
};

uint64_t prompt_cache_bytes(const PromptCacheOwner& owner, uint32_t tokens); // of the whole file

// Calls write(bytes) for one piece of the file after another; `stored` is called for each layer's keys and then its values, in
// order, of ids.size() > 0 tokens. Throws what they throw.
void write_prompt_cache(const PromptCacheOwner& owner, std::span<const uint32_t> ids, const StoredSource& stored,
                        const std::function<void(std::span<const std::byte>)>& write);

class PromptCacheFile {
  public:
    // Throws an Error that names the file and says what to do, when it is incomplete, or was saved with another model or cache.
    PromptCacheFile(const std::filesystem::path& path, const PromptCacheOwner& owner);

    const std::vector<uint32_t>& ids() const { return ids_; } // at least one, all within the vocabulary

    // Returns one side of a layer at the first `tokens` of ids(). Throws an Error where the bytes do not match their checksum.
    StoredSide read(uint32_t layer, KvSide side, uint32_t tokens) const;

  private:
    std::span<const std::byte> checked(const std::string& name) const;

    std::string shown_; // the path
    ModelFile file_;
    std::vector<TensorShape> shapes_; // in the order of the tensors
    KvOptions kv_;
    Config config_;
    std::vector<uint32_t> ids_;
};

} // namespace tq
