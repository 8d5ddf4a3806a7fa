// The rules of a grammar while they are written, and the parts of JSON that several of them need.
#pragma once
#include "model/text/grammar/syntax.h"
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tq::grammar {

// A text or characters as GBNF, with its escapes.
std::string gbnf_text(std::string_view text);
std::string gbnf_class(const std::vector<CharRange>& ranges, bool negated = false);
// Returns an expression for one of these texts, valid UTF-8. Common beginnings of several texts are read once, so that few ways
// are followed at a time.
std::string any_text_gbnf(std::vector<std::string> texts);

class GbnfWriter {
  public:
    // Returns a name for a rule like `wanted`, of letters, digits and '-', that no other rule has.
    std::string new_name(std::string_view requested);
    // Throws an Error when the grammar is longer than 1 MiB.
    void define(std::string_view name, std::string_view body);
    // Returns the name of a rule of JSON, defined when it is first asked for: space, string, char, integer, number, boolean,
    // null, value, object, array.
    std::string json(std::string_view name);

    // Returns a rule of this body, the same for the same body.
    std::string shared(std::string_view requested, const std::string& body);

    const std::string& text() const { return text_; }

  private:
    std::string text_;
    std::set<std::string, std::less<>> names_;
    std::map<std::string, std::string> shared_; // names by bodies
    std::map<std::string, uint32_t> numbers_;   // the last number that was put after a name
};

} // namespace tq::grammar
