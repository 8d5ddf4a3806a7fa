// The bytes of a vocabulary's tokens as a tree, in the order in which a walk from the root meets its nodes.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tq {
class Tokenizer;
}

namespace tq::grammar {

class TokenTrie {
  public:
    struct Node {
        uint32_t end;    // index of the node after this one's subtree
        uint32_t tokens; // index of the first token that ends here; the next node's first token is after the last
        uint16_t depth;  // of the root: 0
        uint8_t byte;    // that leads here; 0 for the root
        bool has_long;   // a token of more than Grammar::short_bytes bytes ends here or below
    };

    // Special tokens have the bytes of special_token_bytes(): no text leads to them. Left out are unused entries, and tokens
    // with bytes that UTF-8 never has. Throws an Error when a token is longer than 65,534 bytes.
    explicit TokenTrie(const Tokenizer& tokenizer);

    std::span<const Node> nodes() const { return std::span(nodes_).first(nodes_.size() - 1); } // [0]: the root
    std::span<const uint32_t> tokens(uint32_t node) const {
        return std::span(ids_).subspan(nodes_[node].tokens, nodes_[node + 1].tokens - nodes_[node].tokens);
    }
    uint32_t vocab_size() const { return vocab_size_; }
    // The bytes that a grammar sees of a token; empty for one that is never in a text. id < vocab_size().
    std::string_view bytes(uint32_t id) const {
        return std::string_view(bytes_).substr(begins_[id], begins_[id + 1] - begins_[id]);
    }
    bool is_end(uint32_t id) const { return is_end_[id]; } // end of generation; id < vocab_size()
    bool has_special(std::string_view literal) const;

  private:
    void build();

    std::vector<Node> nodes_; // and one behind the last
    std::vector<uint32_t> ids_;
    std::string bytes_;
    std::vector<size_t> begins_;
    std::vector<bool> is_end_;
    uint32_t vocab_size_;
};

} // namespace tq::grammar
