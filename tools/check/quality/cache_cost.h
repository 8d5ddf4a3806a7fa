// Measures the cost of other caches on a part of a text, against a reference cache of the same model.
#pragma once
#include "tools/check/quality/compare.h"
#include <memory>
#include <optional>

namespace tq::quality {

// Makes a Forward of the same model with a cache of these options, which has room for a chunk. Throws Error.
using MakeForward = std::function<std::unique_ptr<Forward>(const KvOptions& kv)>;

// Chunks of a text of equal length, each started with an empty cache. The second half of each counts; the first is its context.
struct Chunks {
    std::vector<uint32_t> ids; // whole chunks
    uint32_t tokens = 0;       // of one; at least 4

    size_t count() const { return ids.size() / tokens; }
    std::span<const uint32_t> at(size_t i) const { return std::span(ids).subspan(i * tokens, tokens); }
};

// `count` chunks of `tokens` tokens from chunk `first` on; fewer if there are no more.
Chunks cut(std::span<const uint32_t> ids, uint32_t tokens, size_t first, size_t count);

struct CacheCost {
    Summary summary;
    double seconds = 0, reference_seconds = 0; // of running all chunks
};

class CacheCosts {
  public:
    // chunks: at least one.
    CacheCosts(MakeForward make, const KvOptions& reference, Chunks chunks);

    // The cost of each of `caches`, from one pass over the reference; nothing if `keep_going`, which is called with the
    // tokens done of all chunks, stopped it. Throws what Forward::run_all does, including NonFinite.
    std::vector<CacheCost> measure(std::span<const KvOptions> caches, const KeepGoing& keep_going);

    // The cost of the reference cache filled in blocks of tokens, against the same filled token by token: only rounding, if
    // blocks are correct.
    std::optional<CacheCost> of_blocks(const KeepGoing& keep_going);

    const Chunks& chunks() const { return chunks_; }

  private:
    class Timed;
    std::vector<CacheCost> compare_all(std::span<Timed> measured, Timed& reference, const KeepGoing& keep_going) const;

    MakeForward make_;
    KvOptions reference_;
    Chunks chunks_;
    std::unique_ptr<Forward> reference_forward_; // made when it is first needed
};

} // namespace tq::quality
