// The states of a grammar as it reads bytes. A stack is a node and the nodes to return to, which stacks share; a state is the set
// of all stacks that the bytes so far allow. Both are numbered, and each transition is computed once.
#pragma once
#include "model/text/grammar/grammar.h"
#include <span>
#include <unordered_map>
#include <vector>

namespace tq::grammar {

class StateTable {
  public:
    using State = uint32_t;
    static constexpr State dead = 0; // no stack: the bytes do not follow the grammar

    // Stacks that are no node: the grammar has ended, and the callers of what is read are not known.
    static constexpr uint32_t ended = 0, unknown = 1;

    explicit StateTable(const Grammar& grammar);

    State start() const { return start_; }
    // Throws an Error when there are too many ways to read the text, or too many states for the table's memory.
    State next(State state, uint8_t byte) {
        const State known = transitions_[size_t(state) * grammar_.byte_classes() + grammar_.byte_class(byte)];
        return known != not_known ? known : compute(state, byte);
    }
    bool has_ended(State state) const { return flags_[state] & 1; }  // one of its stacks is `ended`
    bool may_return(State state) const { return flags_[state] & 2; } // one of its stacks is `unknown`
    bool is_complete(State state) const { return has_ended(state) && stacks_of(state).size() == 1; }

    // A part of a state that can be looked at apart from what its stacks return to, which is the same for all of them.
    struct Part {
        State state;   // its stacks end in `unknown`
        uint32_t rest; // the stack that follows; `ended` or `unknown` if there is none
    };
    std::vector<Part> parts(State state);
    // A part's state that reads short texts alike, Grammar::canonical(): mostly the same.
    State canonical(State part);
    State state_of(uint32_t stack) { return intern(closure({&stack, 1})); }

    // Returns true if the table should be forgotten when that is possible. The table fails at several times this size.
    bool is_large() const { return size() > forget_at_; }
    // Forgets all but `kept`, which get other numbers, and the start.
    void forget(std::span<State> kept);

  private:
    struct Stack {
        uint32_t node, parent;
    };
    static constexpr State not_known = UINT32_MAX;
    static constexpr size_t large = 6u << 20; // entries of four or eight bytes

    std::span<const uint32_t> stacks_of(State state) const {
        return std::span(pool_).subspan(begins_[state], begins_[state + 1] - begins_[state]);
    }
    size_t size() const { return stacks_.size() + pool_.size() + transitions_.size(); }
    void reset();
    uint32_t push(uint32_t node, uint32_t parent);
    std::vector<uint32_t> closure(std::span<const uint32_t> stacks);
    State intern(std::vector<uint32_t> stacks);
    State compute(State state, uint8_t byte);
    void copy_stack(const std::vector<Stack>& from, uint32_t stack, std::vector<uint32_t>& copies);
    void check_size() const;

    const Grammar& grammar_;
    std::vector<Stack> stacks_;
    std::unordered_map<uint64_t, uint32_t> stack_ids_;
    std::vector<uint32_t> pool_; // the stacks of each state, in ascending order
    std::vector<uint8_t> flags_; // of each state: 1: it has `ended`; 2: it has `unknown`
    std::vector<size_t> begins_; // of each state in the pool, and the end
    std::unordered_multimap<uint64_t, State> state_ids_;
    std::vector<State> transitions_; // [state][byte class]
    std::vector<uint32_t> seen_;     // by stack: the closure that it was last seen in
    uint32_t closures_ = 0;
    State start_ = dead;
    size_t forget_at_ = large;
};

} // namespace tq::grammar
