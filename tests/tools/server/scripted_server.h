// A service whose model says what a script wants, or the demo model's own words; and what a client reads of its replies.
#pragma once
#include "model/engine/sampling/sampler.h"
#include "tests/support/scripted_forward.h"
#include "tools/server/generation.h"
#include "tools/server/handlers.h"
#include <doctest/doctest.h>
#include <functional>
#include <string>

namespace tq::server {

// The text that the model says to a prompt.
using Say = std::function<std::string(const std::string& prompt)>;

class ScriptedServer {
  public:
    explicit ScriptedServer(Say say, ChatVariant variant = ChatVariant::instruct, ServiceOptions service_options = greedy(),
                            test::ScriptedOptions forward_options = {}, bool special_tokens = true)
        : model(test::make_scripted_model(variant)),
          scheduler(open(std::move(say), forward_options, special_tokens), {}, scheduling()),
          service(model, scheduler, std::move(service_options)) {}
    explicit ScriptedServer(const std::string& says, ChatVariant variant = ChatVariant::instruct,
                            ServiceOptions service_options = greedy())
        : ScriptedServer([says](const std::string&) { return says; }, variant, std::move(service_options)) {}

    static ServiceOptions greedy() {
        ServiceOptions options;
        options.sampling.temperature = 0;
        options.build = "a build";
        return options;
    }

    HttpReply post(HttpReply (*handle)(Service&, const HttpRequest&), const std::string& body) {
        HttpRequest request{.method = "POST", .path = "/", .body = body};
        request.disconnected = [this] { return disconnected; };
        return handle(service, request);
    }
    // The answer in a reply that is sent as one.
    Json answer(HttpReply (*handle)(Service&, const HttpRequest&), const Json& body) {
        const HttpReply reply = post(handle, body.dump());
        CHECK(reply.status == 200);
        CHECK(!reply.stream);
        return Json::parse(reply.body);
    }
    // All bytes of a stream.
    std::string stream(HttpReply (*handle)(Service&, const HttpRequest&), const Json& body) {
        const HttpReply reply = post(handle, body.dump());
        REQUIRE(reply.stream);
        CHECK(reply.type.starts_with("text/event-stream"));
        std::string bytes;
        reply.stream(Send([&](std::string_view part, bool) {
            CHECK(!part.empty()); // it would end the body
            bytes += part;
            last_part = part;
            return true;
        }));
        return bytes;
    }

    Model model;
    serving::Scheduler scheduler;
    Service service;
    bool disconnected = false;
    std::string last_part; // of a stream

  private:
    // `special_tokens`: else the model spells its markup with tokens of plain text.
    serving::Scheduler::Model open(Say say, const test::ScriptedOptions& options, bool special_tokens) {
        test::Script script = [this, say = std::move(say), special_tokens](std::span<const uint32_t> prompt) {
            return model.tokenizer.encode(say(model.tokenizer.decode(prompt, false)), special_tokens);
        };
        return {std::make_unique<test::ScriptedForward>(model, std::move(script), options), nullptr};
    }
    serving::Scheduler::Options scheduling() const {
        serving::Scheduler::Options options;
        options.is_end = [this](uint32_t id) { return model.tokenizer.is_end_of_generation(id); };
        options.excluded = options.excluded_ends = unsampled_ids(model.tokenizer, model.config.vocab_size);
        for (uint32_t id = 0; id < model.config.vocab_size; ++id)
            if (model.tokenizer.is_end_of_generation(id)) options.excluded_ends[id] = true;
        return options;
    }
};

// The JSON of a stream's events, which must end with [DONE]; comments are left out.
inline std::vector<Json> data_events(const std::string& bytes, bool done = true) {
    std::vector<Json> events;
    bool ended = false;
    for (size_t begin = 0; begin < bytes.size();) {
        const size_t end = bytes.find("\n\n", begin);
        REQUIRE(end != bytes.npos);
        const std::string event = bytes.substr(begin, end - begin);
        begin = end + 2;
        if (event.starts_with(":")) continue;
        CHECK(!ended);
        REQUIRE(event.starts_with("data: "));
        if (event == "data: [DONE]")
            ended = true;
        else
            events.push_back(Json::parse(event.substr(6)));
    }
    CHECK(ended == done);
    return events;
}

inline Json chat_body(const std::string& question, const Json& more = Json::object()) {
    Json body = {{"model", "any"}, {"messages", Json::array({{{"role", "user"}, {"content", question}}})}};
    body.update(more);
    return body;
}

// A tool that tells the weather of a city.
inline Json weather_tools() {
    return Json::array({Json::parse(R"({"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
        "properties": {"city": {"type": "string"}}, "required": ["city"]}}})")});
}

} // namespace tq::server
