// Common parts of OpenAI's chat and text completions: their envelope, usage, timings and events.
#pragma once
#include "base/clock.h"
#include "tools/server/generation.h"

namespace tq::server {

// {id, object, created, model, system_fingerprint}
Json completion_head(const Service& service, const std::string& id, const char* object);
Json completion_usage(const Usage& usage);
Json timings_json(const serving::RequestTimings& timings); // llama.cpp's
const char* finish_name(FinishReason reason);

// The tokens of an event of the content with their logprobs, as chat completions and responses list them; of other events [].
Json content_logprobs(const Event& event);
void append(Json& list, Json more); // the entries of a list to another

std::string data_event(const Json& json);
std::string error_event(const ApiError& error);
// The end of a stream: a chunk with the usage, if `usage` is not null, and [DONE].
std::string end_of_events(const Json& head, const Usage* usage);
HttpReply json_reply(const Json& json);

// Returns the parts of a request that run_generation() needs, to be kept for a stream.
HttpRequest without_body(const HttpRequest& request);

// stream_options.include_usage
bool wants_usage(const Json& body);

// Reads response_format, or llama.cpp's grammar or json_schema: a request may have one of the three.
Format read_formats(const Json& body);

} // namespace tq::server
