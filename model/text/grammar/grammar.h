// A compiled grammar: for each rule an automaton over the bytes of UTF-8, whose nodes call other rules. All nodes of all rules
// are numbered together, so that a node and the nodes to return to say all about one way to read a text.
#pragma once
#include "model/text/grammar/syntax.h"
#include <array>
#include <span>

namespace tq::grammar {

struct Edge {
    uint8_t first, last; // bytes
    uint32_t next;       // node
};

struct Node {
    enum class Kind : uint8_t {
        end,   // of its rule: on to the node after the call
        bytes, // edges [begin, end): one byte, then the next node; several edges may take it
        split, // targets [begin, end): all of these at once
        call,  // rule `begin`, then node `end`
    };
    Kind kind;
    uint32_t begin, end;
};

class Grammar {
  public:
    // Throws an Error when the grammar has more than a million nodes, as with large {m,n} in one another.
    explicit Grammar(const Syntax& syntax);

    const Node& node(uint32_t n) const { return nodes_[n]; }
    std::span<const Edge> edges(const Node& n) const { return std::span(edges_).subspan(n.begin, n.end - n.begin); }
    std::span<const uint32_t> targets(const Node& n) const { return std::span(targets_).subspan(n.begin, n.end - n.begin); }
    uint32_t entry(uint32_t rule) const { return entries_[rule]; }
    uint32_t root() const { return entries_[root_]; }
    // Returns true if the node's rule matches texts of any length: a matcher may keep its results for the rule apart from the
    // rule's callers.
    bool is_unbounded(uint32_t n) const { return unbounded_[rules_[n]]; }
    // A repetition is expanded to copies. Copies that are more than `short_bytes` copies away from its limits accept the same
    // texts of up to short_bytes bytes. Returns the node's representative: the same node in the copy that stands for these; else
    // the node itself.
    uint32_t canonical(uint32_t n) const { return canonical_[n]; }
    static constexpr uint32_t short_bytes = 16;
    // Bytes that no edge tells apart have the same class, below byte_classes().
    uint8_t byte_class(uint8_t byte) const { return classes_[byte]; }
    uint32_t byte_classes() const { return class_count_; }
    const std::vector<std::string>& tokens() const { return tokens_; }

    static constexpr uint32_t end_node = 0; // of every rule

  private:
    friend class Compiler;
    void classify_bytes();

    std::vector<Node> nodes_;
    std::vector<uint32_t> rules_;     // of each node; the end's is that of no rule
    std::vector<uint32_t> canonical_; // of each node
    std::vector<Edge> edges_;
    std::vector<uint32_t> targets_, entries_;
    std::vector<bool> unbounded_; // by rule
    uint32_t root_ = 0, class_count_ = 0;
    std::array<uint8_t, 256> classes_{};
    std::vector<std::string> tokens_;
};

} // namespace tq::grammar
