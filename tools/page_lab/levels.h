// Scalar quantisers and trellises for normal numbers of variance 1.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tq::page_lab {

// Ascending levels; `distortion` is the mean squared error on normal numbers.
struct Levels {
    std::vector<float> values;
    double distortion;

    float nearest(float x) const;
};
// Lloyd-Max levels of 0 to 8 bits.
const Levels& normal_levels(uint32_t bits);

// Fits levels to x by Lloyd's iteration, from `values` on.
void fit_levels(std::vector<float>& values, std::span<const float> x);

// A code of `bits` bits chooses among the levels of a state; the highest `entering` bits of the codes before are the state, of
// `memory` bits, the first of all being 0. The levels are trained on normal numbers.
class Trellis {
  public:
    Trellis(uint32_t bits, uint32_t memory, uint32_t entering);

    // y = the nearest sequence of levels (Viterbi). Returns its squared error.
    double code(std::span<float> y, std::span<const float> x) const;

  private:
    struct Step {
        uint16_t state, code;
    };
    uint32_t next(uint32_t state, uint32_t code) const {
        return (state << entering_ | code >> (bits_ - entering_)) & ((1u << memory_) - 1);
    }
    double search(std::vector<Step>& path, std::span<const float> x) const;
    void train();

    const uint32_t bits_, memory_, entering_;
    std::vector<float> levels_; // [states][codes]
};
// Trained once, and kept.
const Trellis& trellis(uint32_t bits, uint32_t memory, uint32_t entering);

} // namespace tq::page_lab
