#include "tests/tools/server/answers.h"
#include "tools/server/anthropic/messages.h"

using namespace tq::server;
using messages_api::Writer;

namespace {

const Usage usage = {.prompt_tokens = 50, .cached_tokens = 30, .completion_tokens = 9, .reasoning_tokens = 2};

std::vector<Event> whole_answer() {
    std::vector<Event> events = {thinks("H"), thinks("m"), says("Let me "), says("see")};
    for (const Event& event : weather_call()) events.push_back(event);
    return events;
}

// A whole stream, each event in a write of its own.
std::vector<Json> stream(const std::vector<Event>& events, const Outcome& outcome) {
    Writer writer("qwen", true, counted_ids());
    std::string text = writer.begin({.prompt_tokens = 50});
    for (const Event& event : events) text += writer.write({event});
    return read_stream(text + writer.end(outcome));
}

Json whole(const std::vector<Event>& events, const Outcome& outcome) {
    Writer writer("qwen", false, counted_ids());
    writer.begin({});
    writer.write(events);
    writer.end(outcome);
    return writer.whole();
}

// The message that a client joins from a stream.
Json joined(const std::vector<Json>& events) {
    Json message;
    std::string input;
    for (const Json& event : events) {
        const std::string type = event.at("type");
        if (type == "message_start") message = event.at("message");
        if (type == "content_block_start") {
            CHECK(event.at("index") == message.at("content").size());
            message["content"].push_back(event.at("content_block"));
            input.clear();
        }
        if (type == "content_block_delta") {
            REQUIRE(event.at("index") == message.at("content").size() - 1);
            Json& block = message["content"].back();
            const Json& delta = event.at("delta");
            const std::string kind = delta.at("type");
            if (kind == "text_delta") block["text"].get_ref<std::string&>() += delta.at("text").get<std::string>();
            if (kind == "thinking_delta") block["thinking"].get_ref<std::string&>() += delta.at("thinking").get<std::string>();
            if (kind == "signature_delta") block["signature"] = delta.at("signature");
            if (kind == "input_json_delta") input += delta.at("partial_json").get<std::string>();
        }
        if (type == "content_block_stop" && message["content"].back().at("type") == "tool_use")
            message["content"].back()["input"] = Json::parse(input);
        if (type == "message_delta") {
            message.update(event.at("delta"));
            message["usage"] = event.at("usage");
        }
    }
    return message;
}

} // namespace

TEST_CASE("trip-wire 8: the events of a stream, in Anthropic's order") {
    const auto events = stream(whole_answer(), {FinishReason::tool_calls, {}, usage});
    const std::vector<std::string> expected = {"message_start",       "ping",
                                               "content_block_start", "content_block_delta",
                                               "content_block_delta", "content_block_delta",
                                               "content_block_stop",  "content_block_start",
                                               "content_block_delta", "content_block_delta",
                                               "content_block_stop",  "content_block_start",
                                               "content_block_delta", "content_block_delta",
                                               "content_block_stop",  "message_delta",
                                               "message_stop"};
    CHECK(types(events) == expected);
    CHECK(events[0].at("message").at("stop_reason").is_null());
    CHECK(events[0].at("message").at("usage").at("input_tokens") == 50);
    CHECK(events[5].at("delta") == Json{{"type", "signature_delta"}, {"signature", ""}});
    CHECK(events[11].at("content_block") ==
          Json{{"type", "tool_use"}, {"id", "toolu_1"}, {"name", "weather"}, {"input", Json::object()}});
    CHECK(events[12].at("delta") == Json{{"type", "input_json_delta"}, {"partial_json", "{\"city\":"}});
}

TEST_CASE("a stream joins to the answer that is sent without one") {
    const Outcome outcome = {FinishReason::tool_calls, {}, usage};
    const Json message = whole(whole_answer(), outcome);
    CHECK(message == joined(stream(whole_answer(), outcome)));
    CHECK(
        message ==
        Json{
            {"id", "msg_1"},
            {"type", "message"},
            {"role", "assistant"},
            {"model", "qwen"},
            {"content",
             {{{"type", "thinking"}, {"thinking", "Hm"}, {"signature", ""}},
              {{"type", "text"}, {"text", "Let me see"}},
              {{"type", "tool_use"}, {"id", "toolu_1"}, {"name", "weather"}, {"input", {{"city", "Oslo"}}}}}},
            {"stop_reason", "tool_use"},
            {"stop_sequence", nullptr},
            {"usage",
             {{"input_tokens", 20}, {"cache_creation_input_tokens", 0}, {"cache_read_input_tokens", 30}, {"output_tokens", 9}}}});
}

TEST_CASE("why an answer ended") {
    const auto reason = [](const Outcome& outcome) {
        const Json message = whole({says("Hi")}, outcome);
        return Json{message.at("stop_reason"), message.at("stop_sequence")};
    };
    CHECK(reason({FinishReason::stop, {}, {}}) == Json{"end_turn", nullptr});
    CHECK(reason({FinishReason::length, {}, {}}) == Json{"max_tokens", nullptr});
    CHECK(reason({FinishReason::stop, "END", {}}) == Json{"stop_sequence", "END"});
    CHECK(whole({}, {FinishReason::stop, {}, {}}).at("content") == Json::array());
}

TEST_CASE("two calls are two blocks") {
    std::vector<Event> events = weather_call();
    for (const Event& event : weather_call()) events.push_back(event);
    const Outcome outcome = {FinishReason::tool_calls, {}, usage};
    const Json message = joined(stream(events, outcome));
    CHECK(message == whole(events, outcome));
    CHECK(message.at("content").size() == 2);
    CHECK(message.at("content").at(1).at("id") == "toolu_2");
}

TEST_CASE("a call that is no JSON has the members that came whole") {
    const std::vector<Event> cut = {call_begin("weather"), arguments("{\"days\": 2, \"city\": Os"),
                                    call_end(false, "<tool_call>{\"name\": ...")};
    const Json message = whole(cut, {FinishReason::length, {}, {}});
    CHECK(message.at("content") ==
          Json::array({{{"type", "tool_use"}, {"id", "toolu_1"}, {"name", "weather"}, {"input", {{"days", 2}}}}}));
    const auto events = stream(cut, {FinishReason::length, {}, {}});
    CHECK(types(events).at(4) == "content_block_stop");
    CHECK(events.at(5).at("delta").at("stop_reason") == "max_tokens");
}

TEST_CASE("errors within a stream have Anthropic's envelope") {
    Writer writer("qwen", true, counted_ids());
    const auto events = read_stream(writer.fail(ApiError(500, "server_error", "the device was lost")));
    REQUIRE(events.size() == 1);
    CHECK(events[0].at("type") == "error");
    CHECK(events[0].at("error") == Json{{"type", "api_error"}, {"message", "the device was lost"}});
    CHECK(read_stream(writer.ping()).at(0) == Json{{"type", "ping"}});
}
