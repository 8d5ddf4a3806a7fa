// Added tokens of a vocabulary, found in text by their literals.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tq {

class SpecialTokens {
  public:
    // Bytes of a literal, and of all literals: a vocabulary with more is refused.
    static constexpr size_t max_length = 4096, max_total = 4 << 20;

    struct Match {
        size_t begin, length; // bytes
        uint32_t id;
    };

    // Literals are distinct, not empty, and within the limits above.
    explicit SpecialTokens(std::vector<std::pair<std::string, uint32_t>> literals);

    // Returns the matches from left to right, which do not overlap: each is the leftmost after the one before, and the longest of
    // those that begin there. The time is linear in the text, whatever the literals are.
    std::vector<Match> find(std::string_view text) const;
    std::optional<uint32_t> id(std::string_view literal) const;

  private:
    static constexpr uint32_t none = UINT32_MAX;

    struct Node {
        uint32_t first_child; // the children of node i are those up to nodes_[i + 1].first_child, by their bytes
        uint32_t fail;        // the node of the longest proper suffix that is a node, too
        uint32_t longest;     // index of the longest literal that the node's text ends with, reversed; or none
        uint8_t byte;
    };

    void build();
    uint32_t step(uint32_t node, uint8_t byte) const;

    std::vector<std::pair<std::string, uint32_t>> literals_; // sorted
    std::vector<Node> nodes_;                                // level by level, the root first, and an end
    std::array<uint32_t, 256> roots_children_ = {};          // by byte; 0 if there is none
};

} // namespace tq
