// Added tokens of a vocabulary, found in text by their literals.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tq {

class SpecialTokens {
  public:
    static constexpr size_t max_length = 4096; // bytes of a literal: a vocabulary with longer ones is refused

    struct Match {
        size_t begin, length; // bytes
        uint32_t id;
    };

    // Literals are distinct, not empty and at most max_length bytes.
    explicit SpecialTokens(std::vector<std::pair<std::string, uint32_t>> literals);

    // Returns the leftmost match at or after `from`, the longest if several begin there.
    std::optional<Match> find(std::string_view text, size_t from) const;
    std::optional<uint32_t> id(std::string_view literal) const;

  private:
    std::optional<Match> match_at(std::string_view text, size_t begin) const;

    std::vector<std::pair<std::string, uint32_t>> literals_; // sorted
    std::string first_bytes_;
};

} // namespace tq
