// Parameters come in the order in which the schema lists its properties, then the others.
#include "model/text/grammar/schema_parameters.h"
#include "base/error.h"
#include "model/text/grammar/schema_properties.h"
#include "model/text/grammar/schema_values.h"
#include "model/text/tool_types.h"

namespace tq::grammar {
namespace {

// Texts that are listed are followed; the pattern and the length of others are not.
std::string value_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place, const std::string& name) {
    const ToolTypes::Type type = parameter_type(schema, rules.places());
    if (type == ToolTypes::Type::json) return rules.rule(schema, place, name, true);
    const auto texts = type == ToolTypes::Type::text ? listed_names(rules, schema, place) : std::nullopt;
    return texts && !texts->empty() ? "(" + any_text_gbnf(*texts) + ")" : "text-0";
}

std::string parameter_gbnf(const std::string& name, const std::string& value) {
    return fmt::format("\"<parameter=\" {} \">\\n\" {} \"\\n</parameter>\\n\"", name, value);
}

} // namespace

std::string parameters_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place, const std::string& name) {
    Properties properties(rules, schema, place);
    std::string out;
    for (const Property& property : properties.all) {
        const std::string value =
            value_gbnf(rules, *property.schema, place_below(place_below(place, "properties"), property.name),
                       name_below(name, property.name));
        out += "(" + parameter_gbnf(gbnf_text(property.name), value) + (property.required ? ") " : ")? ");
    }
    std::string other;
    for (const OtherMembers& some : properties.others(NameForm::bare, name))
        (other += other.empty() ? "" : " | ") +=
            parameter_gbnf(some.names, value_gbnf(rules, *some.values, some.place, name_below(name, "value")));
    if (other.empty()) return out.empty() ? "\"\"" : out;
    const bool counts = properties.all.empty();
    const uint32_t min = counts ? schema_min(rules, schema, "minProperties", place) : 0,
                   max = counts ? schema_max(schema, "maxProperties", place) : unlimited;
    if (max < min) refuse_schema(place, "'maxProperties' is less than 'minProperties'");
    return out + "(" + other + ")" + times_gbnf(min, max);
}

} // namespace tq::grammar
