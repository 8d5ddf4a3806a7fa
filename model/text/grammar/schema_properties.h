// The members that a schema allows an object to have, for all forms in which objects are written.
#pragma once
#include "model/text/grammar/regex.h"
#include "model/text/grammar/schema_rules.h"
#include <optional>
#include <unordered_map>

namespace tq::grammar {

constexpr size_t max_optional = 4000; // any of them may come next: little less than the ways that are followed

struct Property {
    std::string name;
    const SchemaJson* schema;
    bool required;
};

// Members whose names are not listed.
struct OtherMembers {
    std::string names; // an expression for them
    const SchemaJson* values;
    std::string place; // of the schema of values
};

// How a name is written: as a text of JSON with its quotes, or as it is, without characters of markup.
enum class NameForm { quoted, bare };

// Returns the names that a schema of texts allows (that of `propertyNames`, or of a parameter) if it lists them.
std::optional<std::vector<std::string>> listed_names(SchemaRules& rules, const SchemaJson& schema, const std::string& place,
                                                     uint32_t depth = 0);

// The properties of a schema in the given order, by their names. If a keyword that may_add_members() was left out, and describes
// members that are not listed, others are allowed.
class Properties {
  public:
    Properties(SchemaRules& rules, const SchemaJson& schema, const std::string& place);

    std::vector<Property> all;
    bool are_listed = false; // by propertyNames: there are no others

    // Other members by the patterns of their names, then all that match no pattern. Of names that match several patterns a
    // grammar allows none. `name`: of rules.
    std::vector<OtherMembers> others(NameForm form, const std::string& name);

  private:
    const SchemaJson* member(const char* keyword) const;
    Property& find_or_add(const std::string& name, const SchemaJson* schema);
    void add_required(const SchemaJson& names);
    void keep_to(const SchemaJson& schema);
    void read_patterns();
    bool is_open() const;
    void leave_out_beside();
    std::string any_name(NameForm form, const std::string& name);
    std::optional<std::string> names_of(std::vector<RegexPart> parts, size_t pattern, NameForm form);

    struct Pattern {
        std::vector<RegexPart> parts;
        const SchemaJson* values;
        std::string place;
    };

    SchemaRules& rules_;
    const SchemaJson& schema_;
    const std::string& place_;
    const SchemaJson* others_; // of others; null if the schema says nothing of them
    std::vector<Pattern> patterns_;
    bool lost_pattern_ = false; // no grammar follows it
    std::unordered_map<std::string, size_t> places_;
};

} // namespace tq::grammar
