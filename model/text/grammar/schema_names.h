// References of JSON schemas by name, as TypeBox and others write them.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace tq::grammar {

// A $ref to a schema of the same document by its $id or $anchor ("Node", "#node", "https://a.b/c.json#/$defs/d") becomes one by
// its place ("#/$defs/Node"). Others stay as they are; so do those whose name or place is longer than 1000 bytes.
void place_references(nlohmann::ordered_json& document);

} // namespace tq::grammar
