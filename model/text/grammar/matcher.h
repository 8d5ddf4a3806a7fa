// Finds the tokens that may follow the tokens so far, by a grammar. A repeated question is cheap: tokens that a rule allows are
// kept, and shared by all places that call it.
#pragma once
#include "model/text/grammar/state_table.h"
#include "model/text/grammar/token_trie.h"
#include <memory>
#include <unordered_map>

namespace tq::grammar {

class Matcher {
  public:
    // Throws an Error when the grammar names a special token that the vocabulary does not have.
    Matcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> tokens);

    // Bit id % 64 of word id / 64 is set if the token may follow; tokens that end the generation are set if the grammar may end.
    // Valid until the next call. Throws an Error if the grammar is too ambiguous.
    std::span<const uint64_t> mask();
    // Returns false if the token may not follow; nothing is changed then. An end is accepted if the grammar may end.
    bool accept(uint32_t id);
    bool accept_text(std::string_view bytes); // the same; one rewind() undoes it as it does a token
    bool can_end() const { return table_.has_ended(state()); }
    // True when nothing but an end can follow.
    bool is_complete() const { return table_.is_complete(state()); }

    size_t accepted() const { return forgotten_ + history_.size() - 1; } // tokens
    // Goes back to the state after n accepted tokens, for example if drafts were not right: at most max_rewind tokens back.
    void rewind(size_t n);
    void restart();
    static constexpr size_t max_rewind = 256;

  private:
    struct Part {                      // known results of a StateTable::Part's state
        std::vector<uint64_t> mask;    // tokens that its rules read without returning, or to their end
        std::vector<uint32_t> returns; // nodes of the trie after which its rules may have returned, and tokens go on
    };

    StateTable::State state() const { return history_.back(); }
    StateTable::State read(StateTable::State state, std::string_view bytes);
    enum class Tokens : uint8_t { all, are_short, are_long };
    void walk(std::vector<uint64_t>& mask, uint32_t root, StateTable::State state, std::vector<uint32_t>* returns,
              Tokens which = Tokens::all);
    const Part& part(StateTable::State state, Tokens which);
    void add_part(std::vector<uint64_t>& mask, const Part& part, uint32_t rest);
    std::vector<uint64_t> compute_mask(StateTable::State state);
    void trim();

    std::shared_ptr<const Grammar> grammar_;
    std::shared_ptr<const TokenTrie> tokens_;
    StateTable table_;
    std::vector<uint32_t> ends_; // ids of the tokens that end the generation
    std::unordered_map<StateTable::State, Part> parts_, short_parts_;
    std::unordered_map<StateTable::State, std::vector<uint64_t>> masks_;
    std::vector<StateTable::State> history_; // before the first token that is not forgotten, and after each
    size_t forgotten_ = 0;                   // tokens
    std::vector<StateTable::State> path_;    // of walk(): by depth
};

} // namespace tq::grammar
