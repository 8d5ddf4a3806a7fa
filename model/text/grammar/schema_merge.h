// allOf: several schemas as one.
#pragma once
#include "model/text/grammar/schema_rules.h"
#include <unordered_map>
#include <unordered_set>

namespace tq::grammar {

// Merges schemas in time linear in their lengths.
class SchemaMerge {
  public:
    SchemaMerge(std::string place, SchemaRules& rules) : place_(std::move(place)), rules_(rules) {}

    // Allows only what `part` allows, too. Its keywords `$ref`, `allOf` and `without` are left to the caller. If a keyword cannot
    // be merged, it is left out: SchemaRules::leave_out().
    void add(const SchemaJson& part, std::string_view without = "");
    SchemaJson take() { return std::move(all_); }

  private:
    void add_keyword(const std::string& keyword, const SchemaJson& value);
    bool merge_lists(const std::string& keyword, SchemaJson& all, const SchemaJson& value);
    using Names = std::unordered_map<std::string, size_t>; // places in a list of properties; empty until there are two lists
    static void merge_properties(Names& known, SchemaJson& all, const SchemaJson& value);
    void merge_required(SchemaJson& all, const SchemaJson& value);

    std::string place_;
    SchemaRules& rules_;
    SchemaJson all_ = SchemaJson::object();
    Names properties_, patterns_;
    std::unordered_set<std::string> required_; // empty until there are two lists
};

} // namespace tq::grammar
