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
    void merge_properties(SchemaJson& all, const SchemaJson& value);
    void merge_required(SchemaJson& all, const SchemaJson& value);

    std::string place_;
    SchemaRules& rules_;
    SchemaJson all_ = SchemaJson::object();
    std::unordered_map<std::string, size_t> properties_; // places in all_["properties"]; empty until there are two lists of them
    std::unordered_set<std::string> required_;           // likewise
};

} // namespace tq::grammar
