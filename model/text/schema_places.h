// Places of JSON schemas within a document.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tq {

// Finds schemas by JSON pointers. A document may have many definitions and as many references to them, and finds a member only by
// looking at one after the other: so large objects get a table.
class SchemaPlaces {
  public:
    explicit SchemaPlaces(const nlohmann::ordered_json& document) : document_(document) {}

    // `fragment` of a URI, as RFC 6901 writes a pointer there: "/$defs/a%20b". Returns null if it leads nowhere.
    const nlohmann::ordered_json* find(std::string_view fragment);

  private:
    using Members = std::unordered_map<std::string_view, const nlohmann::ordered_json*>;

    const nlohmann::ordered_json* member(const nlohmann::ordered_json& object, const std::string& name);

    const nlohmann::ordered_json& document_;
    std::unordered_map<const nlohmann::ordered_json*, Members> tables_; // of objects with many members
};

} // namespace tq
