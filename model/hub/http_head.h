// The lines before a reply's body.
#pragma once
#include "model/hub/http.h"
#include <string_view>

namespace tq {

// Takes what `head` has a place for out of one line, which may hold any bytes; a status line begins anew.
void read_header(HttpHead& head, std::string_view line);

} // namespace tq
