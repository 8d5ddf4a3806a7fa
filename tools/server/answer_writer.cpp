#include "tools/server/answer_writer.h"
#include "tools/server/chat_parts.h"
#include "tools/server/openai/reply.h"
#include "tools/server/sse.h"
#include <random>

namespace tq::server {
namespace {

Outcome outcome(const Generation& generation) {
    return {generation.finish(0), generation.stop_string(0), generation.usage(), generation.timings()};
}

// Returns false if the client is gone.
bool send_answer(Service& service, const HttpRequest& request, Generation& generation, AnswerWriter& writer, const Send& send) {
    const auto send_some = [&](const std::string& text) { return text.empty() || send(text); };
    if (!send_some(writer.begin(generation.usage()))) return false;
    const auto on_events = [&](const std::vector<Event>& events) { return send_some(writer.write(events)); };
    if (!run_generation(service, generation, request, on_events, [&] { return send(writer.ping()); })) return false;
    return send.last(writer.end(outcome(generation)));
}

void stream_answer(Service& service, const HttpRequest& request, Generation& generation, AnswerWriter& writer, const Send& send) {
    try {
        if (send_answer(service, request, generation, writer, send)) generation.run_ahead();
    } catch (const ApiError& error) { // the status is sent: the error is an event
        send.last(writer.fail(error));
    } catch (const std::exception& error) {
        send.last(writer.fail(ApiError(500, "server_error", error.what())));
    }
}

} // namespace

std::string random_id(std::string_view prefix) {
    std::random_device random;
    return fmt::format("{}{:08x}{:08x}{:08x}{:08x}", prefix, random(), random(), random(), random());
}

// Once a stream has begun its status is sent, so an error in it can only be an event (stream_answer). Without a stream nothing is
// sent before the end, and an error keeps its status: it is thrown on to Server::call().
HttpReply answer(Service& service, const HttpRequest& request, Asked asked) {
    const auto& [generation, writer, stream] = asked;
    if (stream) {
        return sse::reply([&service, client = without_body(request), asked](const Send& send) {
            stream_answer(service, client, *asked.generation, *asked.writer, send);
        });
    }
    writer->begin(generation->usage());
    const auto on_events = [&](const std::vector<Event>& events) {
        writer->write(events);
        return true;
    };
    if (!run_generation(service, *generation, request, on_events, [] { return true; })) return {.status = 499}; // nobody reads it
    writer->end(outcome(*generation));
    generation->run_ahead();
    return {.body = dump_text(writer->whole())};
}

} // namespace tq::server
