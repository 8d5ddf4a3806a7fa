// Objects and arrays of a JSON schema as GBNF.
#pragma once
#include "model/grammar/gbnf_writer.h"
#include "model/grammar/schema_merge.h"

namespace tq::grammar {

// How the parts of an object or array get rules of their own.
class SchemaRules {
  public:
    virtual ~SchemaRules() = default;
    virtual GbnfWriter& writer() = 0;
    // Returns the name of a rule for the schema. `place`: its JSON pointer. `reads`: something is read before it.
    virtual std::string rule(const SchemaJson& schema, const std::string& place, const std::string& name, bool reads) = 0;
};

std::string object_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place, const std::string& name);
std::string array_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place, const std::string& name);

} // namespace tq::grammar
