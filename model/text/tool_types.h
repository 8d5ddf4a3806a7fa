// The types of tools' parameters, by which values that are written without quotes become JSON.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace tq {

class SchemaPlaces;

class ToolTypes {
  public:
    enum class Type {
        text,  // a string: any text
        json,  // a number, true, a list, ...
        either // JSON if it is JSON, else a text
    };

    ToolTypes() = default;
    // `tools`: a list of {"type": "function", "function": {"name", "parameters"}} or of {"name", "parameters"}; others are
    // ignored.
    explicit ToolTypes(const nlohmann::ordered_json& tools);

    bool empty() const { return types_.empty(); }
    bool has(const std::string& function) const { return types_.contains(function); }
    bool has_beginning(std::string_view name) const;                            // a function's name begins so
    Type type(const std::string& function, const std::string& parameter) const; // text if nothing describes it

  private:
    struct Parameters {
        std::map<std::string, Type> types;
        std::optional<Type> others; // of those that are not listed
    };
    using Seen = std::set<const nlohmann::ordered_json*>;
    static void add(Parameters& all, const nlohmann::ordered_json& schema, SchemaPlaces& places, Seen& seen);

    std::map<std::string, Parameters> types_; // of every tool
};

// The type of values that a schema allows, as far as it can be known. `places`: those of its references.
ToolTypes::Type parameter_type(const nlohmann::ordered_json& schema, SchemaPlaces& places);

// Returns the JSON of a parameter's value. A value that is not JSON becomes a string.
std::string parameter_json(std::string_view value, ToolTypes::Type type);

// A part of a JSON string, without quotes.
std::string json_string_part(std::string_view text);

} // namespace tq
