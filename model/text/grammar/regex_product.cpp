// The intersection of regular expressions. Each becomes an automaton that follows all its ways at once (Ways, Thompson's
// construction); a state of the product has the places in each of them. Where all expressions are at their end, and none that is
// negated is, a text may end. States from which no end is reached are left out, as a rule must be able to end. Each other state
// becomes a rule: its characters, each with the rule of the state after it.
// Characters that no expression tells apart are one letter of the alphabet; characters that JSON cannot write without \u are
// none. Everything has a limit, since a product may be as large as the product of its parts' sizes.
#include "model/text/grammar/regex_product.h"
#include "model/text/grammar/char_ranges.h"
#include "model/text/grammar/interrupt.h"
#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace tq::grammar {
namespace {

constexpr size_t max_places = 2048, max_states = 2048, max_steps = 1u << 22;

using Ranges = std::vector<CharRange>;

struct TooLarge {};

class Steps {
  public:
    void add(size_t steps) {
        look_at_interrupt(steps);
        if ((steps_ += steps) > max_steps) throw TooLarge();
    }

  private:
    size_t steps_ = 0;
};

// Letters: sets of characters.
class Alphabet {
  public:
    uint32_t add(const Ranges& ranges) {
        const auto found = std::ranges::find(sets_, ranges);
        if (found != sets_.end()) return uint32_t(found - sets_.begin());
        sets_.push_back(ranges);
        return uint32_t(sets_.size() - 1);
    }

    // Afterwards no more sets are added.
    void divide() {
        std::vector<char32_t> begins{0};
        for (const Ranges& set : sets_)
            for (const CharRange& range : set) begins.push_back(range.first), begins.push_back(range.last + 1);
        std::ranges::sort(begins);
        begins.erase(std::ranges::unique(begins).begin(), begins.end());
        std::map<std::vector<bool>, Ranges> letters;
        for (size_t i = 0; i + 1 < begins.size(); ++i) {
            look_at_interrupt(sets_.size());
            std::vector<bool> in;
            for (const Ranges& set : sets_)
                in.push_back(std::ranges::any_of(
                    set, [&](const CharRange& range) { return range.first <= begins[i] && begins[i] <= range.last; }));
            if (in[writable_]) letters[in].push_back({begins[i], begins[i + 1] - 1});
        }
        for (auto& [in, ranges] : letters) in_.push_back(in), letters_.push_back(std::move(ranges));
    }

    size_t size() const { return letters_.size(); }
    const Ranges& letter(size_t i) const { return letters_[i]; }
    bool has(uint32_t set, size_t letter) const { return in_[letter][set]; }

  private:
    std::vector<Ranges> sets_{{{'\b', '\n'}, {'\f', '\r'}, {0x20, 0xD7FF}, {0xE000, 0x10FFFF}}};
    static constexpr size_t writable_ = 0; // the first set
    std::vector<Ranges> letters_;
    std::vector<std::vector<bool>> in_; // of each letter, whether each set has it
};

// The ways through one expression.
class Ways {
  public:
    Ways(const Regex& regex, Alphabet& alphabet, Steps& steps) : alphabet_(alphabet), steps_(steps) {
        begin_ = build(regex, add({}));
    }

    using Places = std::vector<uint32_t>; // in order

    Places begin() const { return closure({begin_}); }
    Places after(const Places& places, size_t letter) const {
        Places next;
        for (const uint32_t place : places)
            if (places_[place].reads && alphabet_.has(places_[place].set, letter)) next.push_back(places_[place].next[0]);
        return closure(std::move(next));
    }
    static bool may_end(const Places& places) { return !places.empty() && places[0] == end_; }

  private:
    struct Place {
        bool reads = false;
        uint32_t set = 0;           // that it reads
        std::vector<uint32_t> next; // after it; of a place that does not read: all of these
    };
    static constexpr uint32_t end_ = 0; // the first place

    uint32_t add(Place place) {
        look_at_interrupt();
        if (places_.size() == max_places) throw TooLarge();
        places_.push_back(std::move(place));
        return uint32_t(places_.size() - 1);
    }

    // Returns the place from which the expression, then `next`, is read.
    uint32_t build(const Regex& regex, uint32_t next) {
        switch (regex.kind) {
        case Regex::Kind::chars: return add({true, alphabet_.add(*regex.ranges), {next}});
        case Regex::Kind::sequence:
            for (size_t i = regex.of.size(); i-- > 0;) next = build(regex.of[i], next);
            return next;
        case Regex::Kind::choice: {
            std::vector<uint32_t> begins;
            for (const Regex& part : regex.of) begins.push_back(build(part, next));
            return add({false, 0, std::move(begins)});
        }
        case Regex::Kind::repeat: break;
        }
        uint32_t begin = next;
        if (regex.max == unlimited) {
            begin = add({false, 0, {next}});
            const uint32_t once = build(regex.of[0], begin); // may move places_
            places_[begin].next.push_back(once);
        } else {
            for (uint32_t i = regex.min; i < regex.max; ++i) begin = add({false, 0, {next, build(regex.of[0], begin)}});
        }
        for (uint32_t i = 0; i < regex.min; ++i) begin = build(regex.of[0], begin);
        return begin;
    }

    Places closure(Places todo) const {
        Places found;
        std::vector<bool> seen(places_.size());
        steps_.add(1 + places_.size() / 64);
        while (!todo.empty()) {
            steps_.add(1);
            const uint32_t place = todo.back();
            todo.pop_back();
            if (seen[place]) continue;
            seen[place] = true;
            if (places_[place].reads || place == end_)
                found.push_back(place);
            else
                todo.insert(todo.end(), places_[place].next.begin(), places_[place].next.end());
        }
        std::ranges::sort(found);
        return found;
    }

    Alphabet& alphabet_;
    Steps& steps_;
    std::vector<Place> places_;
    uint32_t begin_ = 0;
};

class Product {
  public:
    Product(const std::vector<RegexPart>& parts, uint32_t min, uint32_t max) {
        for (const RegexPart& part : parts) add(part.regex, part.negated);
        if (min > 0 || max != unlimited) {
            Regex length{.kind = Regex::Kind::repeat, .min = min, .max = max};
            length.of.push_back({.kind = Regex::Kind::chars, .ranges = std::make_shared<const Ranges>(Ranges{{0, 0x10FFFF}})});
            add(length, false);
        }
        alphabet_.divide();
        State first;
        for (const Ways& one : ways_) first.push_back(one.begin());
        number(first);
        for (uint32_t state = 0; state < states_.size(); ++state) follow(state);
    }

    std::optional<std::string> gbnf(GbnfWriter& writer) const {
        const std::vector<bool> ends = reach_an_end();
        if (!ends[0]) return std::nullopt;
        std::vector<std::string> names(states_.size());
        for (size_t i = 0; i < names.size(); ++i)
            if (ends[i]) names[i] = writer.new_name("match");
        for (size_t i = 0; i < names.size(); ++i) {
            if (!ends[i]) continue;
            std::string body = may_end(*states_[i]) ? "\"\"" : "";
            for (const auto& [next, letters] : next_[i]) {
                if (!ends[next]) continue;
                Ranges ranges;
                for (const size_t letter : letters)
                    ranges.insert(ranges.end(), alphabet_.letter(letter).begin(), alphabet_.letter(letter).end());
                (body += body.empty() ? "" : " | ") += json_chars(merged(std::move(ranges))) + " " + names[next];
            }
            writer.define(names[i], body);
        }
        return names[0];
    }

  private:
    using State = std::vector<Ways::Places>; // of each part

    void add(const Regex& regex, bool negated) {
        ways_.emplace_back(regex, alphabet_, steps_);
        negated_.push_back(negated);
    }

    bool may_end(const State& state) const {
        for (size_t i = 0; i < state.size(); ++i)
            if (Ways::may_end(state[i]) == negated_[i]) return false;
        return true;
    }

    uint32_t number(const State& state) {
        const auto [entry, is_new] = numbers_.try_emplace(state, uint32_t(states_.size()));
        if (!is_new) return entry->second;
        if (states_.size() == max_states) throw TooLarge();
        states_.push_back(&entry->first);
        next_.emplace_back();
        return entry->second;
    }

    void follow(uint32_t from) {
        for (size_t letter = 0; letter < alphabet_.size(); ++letter) {
            const State& state = *states_[from];
            State next;
            for (size_t i = 0; i < state.size(); ++i) {
                steps_.add(1 + state[i].size());
                next.push_back(ways_[i].after(state[i], letter));
                if (next.back().empty() && !negated_[i]) break; // no text goes on from here
            }
            if (next.size() < state.size() || (next.back().empty() && !negated_.back())) continue;
            const uint32_t to = number(next); // may move next_
            next_[from][to].push_back(letter);
        }
    }

    std::vector<bool> reach_an_end() const {
        std::vector<std::vector<uint32_t>> before(states_.size());
        std::vector<uint32_t> todo;
        std::vector<bool> found(states_.size());
        for (uint32_t i = 0; i < states_.size(); ++i) {
            for (const auto& [next, letters] : next_[i]) before[next].push_back(i);
            if (may_end(*states_[i])) todo.push_back(i);
        }
        while (!todo.empty()) {
            const uint32_t state = todo.back();
            todo.pop_back();
            if (found[state]) continue;
            found[state] = true;
            todo.insert(todo.end(), before[state].begin(), before[state].end());
        }
        return found;
    }

    Alphabet alphabet_;
    std::vector<Ways> ways_;
    std::vector<bool> negated_;
    std::map<State, uint32_t> numbers_;
    std::vector<const State*> states_;
    std::vector<std::map<uint32_t, std::vector<size_t>>> next_; // of each state: letters by the state after them
    Steps steps_;
};

} // namespace

std::optional<std::string> regex_product_gbnf(GbnfWriter& writer, const std::vector<RegexPart>& parts, uint32_t min,
                                              uint32_t max) {
    try {
        return Product(parts, min, max).gbnf(writer);
    } catch (const TooLarge&) {
        return std::nullopt;
    }
}

} // namespace tq::grammar
