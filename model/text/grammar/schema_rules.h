// State that the parts of a JSON schema share while they become rules.
#pragma once
#include "model/text/grammar/gbnf_writer.h"
#include "model/text/grammar/schema_keywords.h"
#include "model/text/schema_places.h"

namespace tq::grammar {

class SchemaRules {
  public:
    virtual ~SchemaRules() = default;
    virtual GbnfWriter& writer() = 0;
    // Returns the name of a rule for the schema. `place`: its JSON pointer. `reads`: something is read before it.
    virtual std::string rule(const SchemaJson& schema, const std::string& place, const std::string& name, bool reads) = 0;
    // A grammar cannot say this: throws an Error if the schema is strict; else it goes unsaid.
    virtual void leave_out(const std::string& place, std::string_view what) = 0;
    // Returns the schema without `$ref` and `allOf`, whose schemas are merged with it.
    virtual SchemaJson resolved(const SchemaJson& schema, const std::string& place) = 0;
    // Finds the targets of references.
    virtual SchemaPlaces& places() = 0;
    // Is called for all that is copied: schemas that are referred to are copied again and again. Throws an Error when that was
    // too much.
    virtual void pay(const SchemaJson& value) = 0;
};

} // namespace tq::grammar
