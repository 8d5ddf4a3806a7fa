// Fields of other servers that change answers there, and have no effect here.
#pragma once
#include "tools/server/json_fields.h"
#include <set>
#include <string>

namespace tq::server {

// Adds the ignored fields of a request to what the log says, for all APIs. A value that asks for nothing does not count: false,
// 0, an empty list, or the field's own default.
void ignore_fields(std::set<std::string>& ignored, const Json& body);

} // namespace tq::server
