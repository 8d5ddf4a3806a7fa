// Compiles a Syntax to automata over bytes, one for each rule: nodes that read a byte (with an edge for each range of bytes),
// that split, that call a rule, or that end it. Characters are compiled to the byte sequences of their UTF-8 encoding, as a token
// may end in the middle of a character.
// Repetitions are copied: x{2,5} is five copies of x. That keeps the matcher free of counters, but multiplies nodes, so
// count_nodes() adds them up before anything is built, and refuses grammars of more than a million.
// Copies of a long repetition differ only in how many may still follow. For a token of at most short_bytes bytes that makes no
// difference unless the end is near. canonical_ says which copy stands for which, and the matcher computes one mask for all of
// them.
// Bytes that no edge tells apart are one class. The table of transitions is as wide as there are classes.
#include "model/text/grammar/grammar.h"
#include "base/error.h"
#include "model/text/grammar/check.h"
#include "model/text/grammar/interrupt.h"
#include "model/text/grammar/utf8_ranges.h"
#include <algorithm>
#include <map>

namespace tq::grammar {
namespace {

constexpr uint64_t max_nodes = 1u << 20;

// For each expression the number of nodes that it compiles to, in time linear in the grammar: repetitions multiply it.
std::vector<uint64_t> count_nodes(const Syntax& syntax) {
    std::vector<uint64_t> nodes(syntax.exprs.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
        const Expr& e = syntax.exprs[i];
        uint64_t sum = std::max<uint64_t>(1, e.text.size() + 4 * e.chars.size());
        for (const uint32_t part : e.of) sum += nodes[part];
        if (e.kind == Expr::Kind::repeat) {
            const uint64_t copies = e.max == unlimited ? uint64_t(e.min) + 1 : e.max;
            sum = sum * copies + copies + 1; // each copy may have a split before it
        }
        nodes[i] = std::min(sum, max_nodes + 1);
    }
    return nodes;
}

// Rules that match texts of any length: with an unlimited repetition, with a call of themselves, or with a call of an unbounded
// rule. The others are found first: those whose calls are all known to be bounded.
std::vector<bool> unbounded_rules(const Syntax& syntax) {
    std::vector<bool> unbounded(syntax.rules.size(), true);
    std::vector<size_t> pending(syntax.rules.size());
    std::vector<std::vector<uint32_t>> callers(syntax.rules.size());
    std::vector<uint32_t> found;
    for (uint32_t r = 0; r < syntax.rules.size(); ++r) {
        for (std::vector<uint32_t> todo{syntax.rules[r].body}; !todo.empty();) {
            const Expr& e = syntax.exprs[todo.back()];
            todo.pop_back();
            if (e.kind == Expr::Kind::rule) callers[e.rule].push_back(r);
            pending[r] += e.kind == Expr::Kind::rule || (e.kind == Expr::Kind::repeat && e.max == unlimited);
            todo.insert(todo.end(), e.of.begin(), e.of.end());
        }
        if (pending[r] == 0) found.push_back(r);
    }
    while (!found.empty()) {
        const uint32_t r = found.back();
        found.pop_back();
        unbounded[r] = false;
        for (const uint32_t caller : callers[r])
            if (--pending[caller] == 0) found.push_back(caller);
    }
    return unbounded;
}

} // namespace

// Builds the automata from their ends: every function returns the node from which an expression, then `next`, is read.
class Compiler {
  public:
    Compiler(Grammar& grammar, const Syntax& syntax) : g_(grammar), syntax_(syntax) {}

    void compile() {
        g_.nodes_.push_back({Node::Kind::end, 0, 0});
        g_.rules_.push_back(0);
        g_.canonical_.push_back(Grammar::end_node);
        for (rule_ = 0; rule_ < syntax_.rules.size(); ++rule_)
            g_.entries_.push_back(compile(syntax_.rules[rule_].body, Grammar::end_node));
    }

  private:
    uint32_t add(Node node) {
        look_at_interrupt();
        g_.nodes_.push_back(node);
        g_.rules_.push_back(rule_);
        g_.canonical_.push_back(uint32_t(g_.nodes_.size() - 1));
        return uint32_t(g_.nodes_.size() - 1);
    }

    uint32_t add_bytes(std::span<const Edge> edges) {
        const auto begin = uint32_t(g_.edges_.size());
        g_.edges_.insert(g_.edges_.end(), edges.begin(), edges.end());
        return add({Node::Kind::bytes, begin, uint32_t(g_.edges_.size())});
    }

    void set_targets(uint32_t split, std::span<const uint32_t> targets) {
        g_.nodes_[split].begin = uint32_t(g_.targets_.size());
        g_.targets_.insert(g_.targets_.end(), targets.begin(), targets.end());
        g_.nodes_[split].end = uint32_t(g_.targets_.size());
    }

    uint32_t add_split(std::span<const uint32_t> targets) {
        const uint32_t split = add({Node::Kind::split, 0, 0});
        set_targets(split, targets);
        return split;
    }

    uint32_t compile(uint32_t expr, uint32_t next) {
        const Expr& e = syntax_.exprs[expr];
        switch (e.kind) {
        case Expr::Kind::text: return compile_text(e.text, next);
        case Expr::Kind::chars: return compile_chars(e.chars, next);
        case Expr::Kind::rule: return add({Node::Kind::call, e.rule, next});
        case Expr::Kind::repeat: return compile_repeat(e, next);
        case Expr::Kind::sequence:
            for (size_t i = e.of.size(); i-- > 0;) next = compile(e.of[i], next);
            return next;
        case Expr::Kind::choice: break;
        }
        std::vector<uint32_t> targets;
        for (const uint32_t part : e.of) targets.push_back(compile(part, next));
        return add_split(targets);
    }

    uint32_t compile_text(const std::string& text, uint32_t next) {
        for (size_t i = text.size(); i-- > 0;) {
            const Edge edge{uint8_t(text[i]), uint8_t(text[i]), next};
            next = add_bytes({&edge, 1});
        }
        return next;
    }

    // The trailing bytes that sequences have in common are common nodes.
    uint32_t compile_chars(const std::vector<CharRange>& ranges, uint32_t next) {
        std::vector<ByteSequence> sequences;
        for (const CharRange& range : ranges) append_utf8_ranges(sequences, range.first, range.last);
        std::map<std::pair<ByteRange, uint32_t>, uint32_t> tails;
        std::vector<Edge> first;
        for (const ByteSequence& sequence : sequences) {
            uint32_t to = next;
            for (uint32_t i = sequence.length; i-- > 1;) {
                const auto [tail, is_new] = tails.try_emplace({sequence.ranges[i], to}, 0);
                const Edge edge{sequence.ranges[i].first, sequence.ranges[i].last, to};
                if (is_new) tail->second = add_bytes({&edge, 1});
                to = tail->second;
            }
            first.push_back({sequence.ranges[0].first, sequence.ranges[0].last, to});
        }
        return add_bytes(first);
    }

    // The nodes from `begin` on are another copy of as many nodes from `original` on.
    void stand_for(uint32_t begin, uint32_t original) {
        for (uint32_t i = begin; i < g_.nodes_.size(); ++i) g_.canonical_[i] = g_.canonical_[original + (i - begin)];
    }

    // Copies from the last to the first. All but the last few are alike, for a short text does not reach the end of the
    // repetition.
    template <class Copy> uint32_t copies(const Expr& e, uint32_t count, uint32_t next, Copy copy) {
        const bool alike = !can_be_empty_[e.of[0]];
        uint32_t original = 0;
        for (uint32_t i = 0; i < count; ++i) {
            const auto begin = uint32_t(g_.nodes_.size());
            next = copy(next);
            if (i == Grammar::short_bytes + 1) original = begin;
            if (i > Grammar::short_bytes + 1 && alike) stand_for(begin, original);
        }
        return next;
    }

    uint32_t compile_repeat(const Expr& e, uint32_t next) {
        uint32_t node = next;
        if (e.max == unlimited) {
            node = add({Node::Kind::split, 0, 0});
            set_targets(node, std::array{compile(e.of[0], node), next});
        } else {
            node = copies(e, e.max - e.min, node, [&](uint32_t after) {
                return add_split(std::array{compile(e.of[0], after), next});
            });
        }
        return copies(e, e.min, node, [&](uint32_t after) { return compile(e.of[0], after); });
    }

    Grammar& g_;
    const Syntax& syntax_;
    const std::vector<bool> can_be_empty_ = empty_expressions(syntax_);
    uint32_t rule_ = 0;
};

Grammar::Grammar(const Syntax& syntax) : unbounded_(unbounded_rules(syntax)), root_(syntax.root), tokens_(syntax.tokens) {
    const auto counts = count_nodes(syntax);
    uint64_t sum = 0;
    for (const Rule& rule : syntax.rules) sum += counts[rule.body];
    if (sum > max_nodes)
        fail("the grammar is too large, it would have more than {} states: use smaller numbers in repetitions such as {{1,1000}}",
             max_nodes);
    Compiler(*this, syntax).compile();
    classify_bytes();
}

void Grammar::classify_bytes() {
    std::array<bool, 257> begins{};
    for (const Edge& edge : edges_) begins[edge.first] = begins[edge.last + 1] = true;
    uint32_t current = 0;
    for (uint32_t byte = 0; byte < 256; ++byte) {
        if (byte > 0 && begins[byte]) ++current;
        classes_[byte] = uint8_t(current);
    }
    class_count_ = current + 1;
}

} // namespace tq::grammar
