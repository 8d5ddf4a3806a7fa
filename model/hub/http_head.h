// The header lines of a reply.
#pragma once
#include "model/hub/http.h"
#include <string_view>

namespace tq {

// Copies the fields of `head` from one line, which may contain any bytes; a status line resets it.
void read_header(HttpHead& head, std::string_view line);

} // namespace tq
