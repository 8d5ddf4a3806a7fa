// A pass over a whole text in which each layer's attention reads coded pages and exact numbers, as a window says which.
#pragma once
#include "model/model.h"
#include "tools/page_lab/tile.h"
#include "tools/quality/divergence.h"
#include <functional>

namespace tq::page_lab {

// Which tokens are exact (fp16) for a query. Sliding: the last `tokens`, its own included; 0: none. Pages: the same, and those
// before in the page of the first of them, since a page is coded as a whole when all its tokens have left the window.
struct Window {
    bool pages = false;
    uint32_t tokens = 0;
    uint32_t page = 256; // the unit that codecs of pages see, too

    uint32_t first(uint32_t position) const {
        const uint32_t sliding = position + 1 - std::min(position + 1, tokens);
        return pages ? sliding / page * page : sliding;
    }
    // The most tokens of a layer that are in fp16 at once: with pages they have no codes, and are as many as a page more; those
    // of a sliding window are beside their codes. Both with the 16 tokens that can be taken back (model/kv/window.h).
    uint32_t exact_tokens() const;
    double bytes(double code_bytes, double exact_bytes, uint32_t context) const; // of all tokens of a context, of one vector
};

struct Scheme {
    std::string text;
    TileCodecPtr k, v; // null: exact
    Window window;
};

// Parses K/V or K for both, and then words: "window=N", "pages=N", "page=N". Throws Error.
Scheme parse_scheme(const std::string& text);

struct Result {
    std::vector<std::vector<float>> logits; // [tokens][vocab_size]
    double k_bits = 0, v_bits = 0;          // of one vector, in the mean
};

// Called with the exact vectors of a layer: q [tokens][heads][dim], k and v [tokens][kv heads][dim].
using OnVectors =
    std::function<void(uint32_t layer, std::span<const float> q, std::span<const float> k, std::span<const float> v)>;

class Lab {
  public:
    // Keys are conditioned by norms, or not. `model` must outlive it. Throws Error.
    Lab(const Model& model, bool norms, uint32_t context);
    ~Lab();

    // Measures the statistics that codecs may use, on a text of any length: the sums over parts of `context` tokens.
    void calibrate(std::span<const uint32_t> ids);

    // Runs a text of at most `context` tokens. rotations: 0 for the cache's own, other numbers for others. Threads may call it at
    // the same time.
    Result run(std::span<const uint32_t> ids, const Scheme& scheme, const OnVectors& on_vectors = {},
               uint32_t rotations = 0) const;

    const Config& config() const;

  private:
    struct State;
    const std::unique_ptr<State> state_;
};

} // namespace tq::page_lab
