// An answer in the form of one API: events in, the text of a stream out, and the whole answer at the end.
#pragma once
#include "tools/server/generation.h"
#include <functional>

namespace tq::server {

// A new id with that prefix, "msg_..." from "msg_".
std::string random_id(std::string_view prefix);
using MakeId = std::function<std::string(std::string_view prefix)>;

struct Outcome {
    FinishReason finish = FinishReason::stop;
    std::optional<std::string> stop_string;
    Usage usage;
    serving::RequestTimings timings = {};
};

// In a stream begin() comes first, then write() and ping() as often as there is something to say, and end() or fail() at the end,
// unless the client is gone. An answer without a stream has the same calls but ping() and fail(): their texts are dropped, and
// whole() is asked after end(). Errors are then thrown past the writer. One thread at a time calls it.
// Each function returns text to be sent.
class AnswerWriter {
  public:
    virtual ~AnswerWriter() = default;
    virtual std::string begin(const Usage& usage) = 0; // as far as it is known
    virtual std::string write(const std::vector<Event>& events) = 0;
    virtual std::string ping() = 0; // an event that clients count as life
    virtual std::string end(const Outcome& outcome) = 0;
    virtual std::string fail(const ApiError& error) = 0;
    virtual Json whole() const = 0; // after end(): the answer without a stream
};

// An answer that a request asks for.
struct Asked {
    std::shared_ptr<Generation> generation;
    std::shared_ptr<AnswerWriter> writer;
    bool stream;
};

// The reply to a request: a stream, or all at the end.
HttpReply answer(Service& service, const HttpRequest& request, Asked asked);

} // namespace tq::server
