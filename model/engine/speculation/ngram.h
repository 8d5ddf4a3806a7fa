// Prompt lookup: proposes what followed the same tokens earlier in the sequence (Saxena, prompt lookup decoding, 2023;
// llama.cpp's lookup). It needs no model, and is right if a text repeats: quotations, and edits of a file.
#pragma once
#include "model/engine/speculation/drafter.h"
#include <optional>
#include <unordered_map>

namespace tq {

// The lookup of one sequence.
class NgramLookup {
  public:
    // Begins with a prompt.
    void read(std::span<const uint32_t> prompt);

    // Returns at most `max` ids that may follow `ids`. It follows the earlier place with the longest run of the same last tokens,
    // at least two; a long copy that is under way is preferred. Shortly after a long copy, it is also followed after tokens that
    // differ.
    Draft draft(std::span<const uint32_t> ids, uint32_t max);

  private:
    // A place whose token is taken for that at the end of the sequence, since the `matched` tokens up to there are the same.
    struct Place {
        uint32_t at, matched;
    };
    void follow(std::span<const uint32_t> ids);
    void add(uint32_t id);
    void remove_last();
    uint32_t matched(uint32_t at) const;
    bool continues(uint32_t at, std::optional<uint32_t> expected) const;
    std::optional<Place> longest(std::optional<uint32_t> expected) const;
    std::optional<Place> resumed(uint32_t expected) const;

    std::vector<uint32_t> ids_;                   // of the sequence so far
    std::unordered_map<uint64_t, uint32_t> last_; // the place of the second token of each pair, its latest
    std::vector<uint32_t> previous_;              // for each place the one before it with the same pair; no_place: none
    std::optional<Place> source_;                 // of the last draft
    uint32_t copied_ = 0;                         // the most tokens that matched in the copy that it continues
    uint32_t end_ = 0;                            // of ids_ then
};

// A lookup for each slot.
class NgramDrafter final : public Drafter {
  public:
    std::vector<double> priors() const override;
    bool is_free() const override { return true; }
    bool read(uint32_t slot, std::span<const uint32_t> prompt, const Progress&) override;
    std::vector<Draft> draft(Forward& model, std::span<const DraftRequest> requests) override;

  private:
    NgramLookup& of(uint32_t slot);

    std::vector<NgramLookup> slots_;
};

} // namespace tq
