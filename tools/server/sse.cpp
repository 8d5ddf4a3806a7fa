#include "tools/server/sse.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tq::server::sse {

std::string event(std::string_view name, const nlohmann::ordered_json& data) {
    const std::string text = data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    return name.empty() ? fmt::format("data: {}\n\n", text) : fmt::format("event: {}\ndata: {}\n\n", name, text);
}

HttpReply reply(std::function<void(const Send& send)> stream) {
    HttpReply reply;
    reply.type = "text/event-stream; charset=utf-8";
    reply.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    reply.stream = std::move(stream);
    return reply;
}

} // namespace tq::server::sse
