// The two checks of a grammar before it is compiled. Both are needed for the matcher to end, and to be of use:
// - Every rule can end: some text matches it. A rule that calls itself in all its alternatives has no such text, and an answer
//   would run into its limit of tokens.
// - No rule is left-recursive: it cannot come to itself again before a byte is read. StateTable::closure() follows calls until a
//   byte is read, and would run into its limit.
// Grammars come from requests, with up to 65536 rules. So both checks take time linear in the grammar, and neither recurses: a
// worklist and an explicit path take the place of the stack.
#include "model/text/grammar/check.h"
#include "base/error.h"
#include "base/printable.h"

namespace tq::grammar {
namespace {

using Kind = Expr::Kind;

// Which expressions have a property that spreads from the leaves: a sequence has it when all its parts do, a choice when one
// does, a call when the rule's body does. Each expression is visited once for each of its parts.
class SpreadProperty {
  public:
    explicit SpreadProperty(const Syntax& syntax)
        : syntax_(syntax), has_(syntax.exprs.size()), pending_(syntax.exprs.size()), parent_(syntax.exprs.size(), unlimited),
          rule_of_(syntax.exprs.size(), unlimited), callers_(syntax.rules.size()) {
        for (uint32_t i = 0; i < syntax.exprs.size(); ++i) {
            const Expr& e = syntax.exprs[i];
            pending_[i] = e.kind == Kind::sequence ? e.of.size() : 1;
            for (const uint32_t part : e.of) parent_[part] = i;
            if (e.kind == Kind::rule) callers_[e.rule].push_back(i);
        }
        for (uint32_t r = 0; r < syntax.rules.size(); ++r) rule_of_[syntax.rules[r].body] = r;
    }

    template <class IsTrue> std::vector<bool> spread(IsTrue is_true) {
        std::vector<uint32_t> found;
        const auto set = [&](uint32_t e) {
            if (!has_[e]) found.push_back(e);
            has_[e] = true;
        };
        for (uint32_t i = 0; i < syntax_.exprs.size(); ++i)
            if (is_true(syntax_.exprs[i])) set(i);
        while (!found.empty()) {
            const uint32_t e = found.back();
            found.pop_back();
            if (const uint32_t parent = parent_[e]; parent != unlimited && --pending_[parent] == 0) set(parent);
            if (rule_of_[e] == unlimited) continue;
            for (const uint32_t caller : callers_[rule_of_[e]]) set(caller);
        }
        return has_;
    }

  private:
    const Syntax& syntax_;
    std::vector<bool> has_;
    std::vector<size_t> pending_; // of a sequence: parts without it; it is enough for any other expression to have one
    std::vector<uint32_t> parent_, rule_of_;
    std::vector<std::vector<uint32_t>> callers_;
};

// Searches for a way from an expression to itself through first parts, which read nothing.
class LeftRecursion {
  public:
    LeftRecursion(const Syntax& syntax, const std::vector<bool>& can_be_empty)
        : syntax_(syntax), can_be_empty_(can_be_empty), colour_(syntax.exprs.size()) {}

    // Returns a rule that can come to itself again before it reads a byte, or `unlimited`.
    uint32_t find() {
        for (const Rule& rule : syntax_.rules)
            if (const uint32_t found = search(rule.body); found != unlimited) return found;
        return unlimited;
    }

  private:
    enum class Colour : uint8_t { unseen, open, done };
    struct Step {
        uint32_t expr;
        size_t next = 0; // of its first parts
    };

    // The n-th expression that may come first in `e`; `unlimited` behind the last.
    uint32_t first_part(const Expr& e, size_t n) const {
        if (e.kind == Kind::rule) return n == 0 ? syntax_.rules[e.rule].body : unlimited;
        if (n >= e.of.size()) return unlimited;
        if (e.kind == Kind::sequence && n > 0 && !can_be_empty_[e.of[n - 1]]) return unlimited;
        return e.of[n];
    }

    uint32_t search(uint32_t from) {
        if (colour_[from] != Colour::unseen) return unlimited;
        std::vector<Step> path{{from}};
        colour_[from] = Colour::open;
        while (!path.empty()) {
            Step& step = path.back();
            const Expr& e = syntax_.exprs[step.expr];
            const uint32_t part = first_part(e, step.next++);
            if (part == unlimited) {
                colour_[step.expr] = Colour::done;
                path.pop_back();
            } else if (colour_[part] == Colour::open) {
                return e.rule; // only a call leads back
            } else if (colour_[part] == Colour::unseen) {
                colour_[part] = Colour::open;
                path.push_back({part});
            }
        }
        return unlimited;
    }

    const Syntax& syntax_;
    const std::vector<bool>& can_be_empty_;
    std::vector<Colour> colour_;
};

[[noreturn]] void refuse(const Rule& rule, std::string_view text, std::string_view what) {
    fail("the grammar, {}: the rule '{}' {}", text_position(text, rule.position), printable(rule.name), what);
}

} // namespace

static bool is_optional(const Expr& e) { return e.kind == Expr::Kind::repeat && e.min == 0; }

std::vector<bool> empty_expressions(const Syntax& syntax) {
    return SpreadProperty(syntax).spread(
        [](const Expr& e) { return is_optional(e) || (e.kind == Expr::Kind::text && e.text.empty()); });
}

void check_syntax(const Syntax& syntax, std::string_view text) {
    const auto can_be_empty = empty_expressions(syntax);
    const auto can_end = SpreadProperty(syntax).spread(
        [&](const Expr& e) { return is_optional(e) || e.kind == Kind::text || e.kind == Kind::chars; });
    for (const Rule& rule : syntax.rules)
        if (!can_end[rule.body]) refuse(rule, text, "never ends: add an alternative that does not call it again");
    const uint32_t found = LeftRecursion(syntax, can_be_empty).find();
    if (found != unlimited)
        refuse(syntax.rules[found], text,
               "is left-recursive, it can call itself before it has read anything: write a repetition instead, as in "
               "list ::= item (\",\" item)*");
}

} // namespace tq::grammar
