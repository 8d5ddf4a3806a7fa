// Server-sent events: the text of a stream, and the reply that carries it.
#pragma once
#include "tools/server/http.h"
#include <nlohmann/json_fwd.hpp>

namespace tq::server::sse {

// "event: NAME" and "data: JSON" on lines of their own; an empty name has no line. Bytes that are not UTF-8 become U+FFFD.
std::string event(std::string_view name, const nlohmann::ordered_json& data);

// A reply whose body is what `stream` sends; no proxy holds it back.
HttpReply reply(std::function<void(const Send& send)> stream);

} // namespace tq::server::sse
