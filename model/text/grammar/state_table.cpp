// A grammar is a pushdown automaton that may be in several stacks at a time. The table makes it deterministic, but lazily: a
// state is a set of stacks, and is computed when a text first leads there, as in the subset construction for finite automata.
// - A stack is a number. push() gives equal (node, parent) pairs the same number, so stacks share their lower parts, and two
//   are equal if their numbers are. A call at the end of its rule pushes nothing, so right recursion needs no depth.
// - A state has only stacks that are about to read a byte, or have ended. closure() follows calls and choices to these. It
//   ends, because check.cpp refuses left recursion. It marks visited stacks with its own number, so that nothing is cleared.
// - What ambiguity or nesting could blow up has limits: the stacks of a closure, the entries of the table.
// - The table only grows. forget() starts again with copies of the states that are still needed, which changes their numbers;
//   all that was computed for other states (masks) must be forgotten with it.
#include "model/text/grammar/state_table.h"
#include "base/error.h"
#include <algorithm>

namespace tq::grammar {
namespace {

constexpr size_t max_stacks = 4096, max_closure = 65536;
constexpr uint32_t max_part_frames = 8;

[[noreturn]] void fail_ambiguous() {
    fail("the grammar has too many ways to read the same text (over {}): make its rules less ambiguous", max_stacks);
}

uint64_t hash_of(std::span<const uint32_t> values) {
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (const uint32_t value : values) hash = (hash ^ value) * 0xFF51AFD7ED558CCDu, hash ^= hash >> 32;
    return hash;
}

} // namespace

StateTable::StateTable(const Grammar& grammar) : grammar_(grammar) { reset(); }

void StateTable::reset() {
    stacks_.assign(2, {Grammar::end_node, 0}); // `ended`, `unknown`
    stack_ids_.clear();
    pool_.clear();
    flags_.clear();
    begins_.assign(1, 0);
    state_ids_.clear();
    transitions_.clear();
    seen_.assign(2, 0);
    closures_ = 0;
    intern({}); // `dead`
    std::ranges::fill(transitions_, dead);
    start_ = state_of(push(grammar_.root(), ended));
}

uint32_t StateTable::push(uint32_t node, uint32_t parent) {
    if (node == Grammar::end_node) return parent;
    const auto [entry, is_new] = stack_ids_.try_emplace(uint64_t(node) << 32 | parent, uint32_t(stacks_.size()));
    if (is_new) {
        stacks_.push_back({node, parent});
        seen_.push_back(0);
    }
    return entry->second;
}

// Follows calls, splits and ends up to the stacks that read a byte. A call at the end of its rule leaves nothing to return to, so
// that a rule that calls itself there needs no deeper stack.
std::vector<uint32_t> StateTable::closure(std::span<const uint32_t> stacks) {
    ++closures_;
    std::vector<uint32_t> found, todo(stacks.begin(), stacks.end());
    for (size_t visited = 0; !todo.empty(); ++visited) {
        const uint32_t stack = todo.back();
        todo.pop_back();
        if (seen_[stack] == closures_) continue;
        seen_[stack] = closures_;
        if (visited > max_closure || found.size() > max_stacks) fail_ambiguous();
        const auto [number, parent] = stacks_[stack];
        const Node& node = grammar_.node(number);
        if (stack <= unknown || node.kind == Node::Kind::bytes)
            found.push_back(stack);
        else if (node.kind == Node::Kind::call)
            todo.push_back(push(grammar_.entry(node.begin), push(node.end, parent)));
        else
            for (const uint32_t target : grammar_.targets(node)) todo.push_back(push(target, parent));
    }
    return found;
}

StateTable::State StateTable::intern(std::vector<uint32_t> stacks) {
    std::ranges::sort(stacks);
    const uint64_t hash = hash_of(stacks);
    for (auto [entry, last] = state_ids_.equal_range(hash); entry != last; ++entry)
        if (std::ranges::equal(stacks_of(entry->second), stacks)) return entry->second;
    check_size();
    const auto state = State(begins_.size() - 1);
    const auto has = [&](uint32_t stack) { return std::ranges::binary_search(stacks, stack); };
    flags_.push_back(uint8_t((has(ended) ? 1 : 0) | (has(unknown) ? 2 : 0)));
    pool_.insert(pool_.end(), stacks.begin(), stacks.end());
    begins_.push_back(pool_.size());
    transitions_.resize(begins_.size() * grammar_.byte_classes() - grammar_.byte_classes(), not_known);
    state_ids_.emplace(hash, state);
    return state;
}

StateTable::State StateTable::compute(State state, uint8_t byte) {
    std::vector<uint32_t> after;
    for (const uint32_t stack : stacks_of(state)) {
        if (stack <= unknown) continue;
        const auto [node, parent] = stacks_[stack];
        for (const Edge& edge : grammar_.edges(grammar_.node(node)))
            if (edge.first <= byte && byte <= edge.last) after.push_back(push(edge.next, parent));
    }
    const State result = after.empty() ? dead : intern(closure(after));
    return transitions_[size_t(state) * grammar_.byte_classes() + grammar_.byte_class(byte)] = result;
}

// A stack is cut below the first rule that can match a text of any length: such a rule reads most of the tokens that it allows
// without returning, and which they are is known for all its callers once it is known for one.
std::vector<StateTable::Part> StateTable::parts(State state) {
    std::vector<std::pair<uint32_t, std::vector<uint32_t>>> groups; // by what follows
    const auto all = std::vector(stacks_of(state).begin(), stacks_of(state).end());
    for (const uint32_t stack : all) {
        if (stack <= unknown) continue;
        uint32_t nodes[max_part_frames], depth = 0, rest = stack;
        do {
            nodes[depth++] = stacks_[rest].node;
            rest = stacks_[rest].parent;
        } while (rest > unknown && depth < max_part_frames && !grammar_.is_unbounded(nodes[depth - 1]));
        uint32_t part = unknown;
        while (depth > 0) part = push(nodes[--depth], part);
        const auto group = std::ranges::find(groups, rest, [](const auto& g) { return g.first; });
        if (group == groups.end())
            groups.push_back({rest, {part}});
        else
            group->second.push_back(part);
    }
    std::vector<Part> parts;
    for (auto& [rest, stacks] : groups) parts.push_back({intern(std::move(stacks)), rest});
    return parts;
}

StateTable::State StateTable::canonical(State part) {
    std::vector<uint32_t> stacks(stacks_of(part).begin(), stacks_of(part).end());
    bool differs = false;
    for (uint32_t& stack : stacks) {
        uint32_t nodes[max_part_frames], depth = 0;
        for (uint32_t at = stack; at != unknown; at = stacks_[at].parent) nodes[depth++] = stacks_[at].node;
        uint32_t copy = unknown;
        while (depth > 0) copy = push(grammar_.canonical(nodes[--depth]), copy);
        differs |= copy != stack;
        stack = copy;
    }
    if (!differs) return part;
    std::ranges::sort(stacks);
    stacks.erase(std::ranges::unique(stacks).begin(), stacks.end());
    return intern(std::move(stacks));
}

void StateTable::check_size() const {
    if (size() > 4 * large)
        fail("the grammar needs too many states (over {} million entries): make its rules less ambiguous, or its repetitions "
             "smaller",
             4 * large >> 20);
}

// Copies a stack from its bottom upwards.
void StateTable::copy_stack(const std::vector<Stack>& from, uint32_t stack, std::vector<uint32_t>& copies) {
    std::vector<uint32_t> path;
    for (; copies[stack] == UINT32_MAX; stack = from[stack].parent) path.push_back(stack);
    for (; !path.empty(); path.pop_back()) copies[path.back()] = push(from[path.back()].node, copies[from[path.back()].parent]);
}

void StateTable::forget(std::span<State> kept) {
    std::vector<std::vector<uint32_t>> states;
    for (const State state : kept) states.emplace_back(stacks_of(state).begin(), stacks_of(state).end());
    const std::vector<Stack> before = std::move(stacks_);
    std::vector<uint32_t> copies(before.size(), UINT32_MAX);
    copies[ended] = ended;
    copies[unknown] = unknown;
    reset();
    for (size_t i = 0; i < kept.size(); ++i) {
        for (uint32_t& stack : states[i]) {
            copy_stack(before, stack, copies);
            stack = copies[stack];
        }
        kept[i] = intern(std::move(states[i]));
    }
    forget_at_ = std::max(large, 2 * size());
}

} // namespace tq::grammar
