#include "tests/tools/server/answers.h"
#include "tools/server/openai/responses.h"

using namespace tq::server;
using responses_api::Request;
using responses_api::Writer;

namespace {

const Usage usage = {.prompt_tokens = 50, .cached_tokens = 30, .completion_tokens = 9, .reasoning_tokens = 2};

Request request(Json fields = Json::object()) {
    fields["input"] = "Hello";
    return responses_api::read(fields, Limits());
}

struct Answer {
    std::vector<Json> events;
    Json response;
};

// Each event in a write of its own.
Answer stream(const std::vector<Event>& events, const Outcome& outcome, const Request& asked = request()) {
    Writer writer(asked, "qwen", 1700000000, counted_ids());
    std::string text = writer.begin({});
    for (const Event& event : events) text += writer.write({event});
    text += writer.end(outcome);
    Answer answer = {read_stream(text), writer.whole()};
    for (size_t i = 0; i < answer.events.size(); ++i) CHECK(answer.events[i].at("sequence_number") == i);
    CHECK(answer.events.back().at("response") == answer.response);
    return answer;
}

// The items of a stream, as clients join them from deltas; and again as the events at their ends have them.
Json joined_items(const std::vector<Json>& events) {
    Json items = Json::array();
    for (const Json& event : events) {
        const std::string type = event.at("type");
        if (type == "response.output_item.added") {
            CHECK(event.at("output_index") == items.size());
            items.push_back(event.at("item"));
            continue;
        }
        if (!event.contains("output_index")) continue;
        REQUIRE(event.at("output_index") == items.size() - 1);
        Json& item = items.back();
        if (event.contains("item_id")) CHECK(event.at("item_id") == item.at("id"));
        if (type == "response.content_part.added") item["content"].push_back(event.at("part"));
        if (type == "response.reasoning_text.delta" || type == "response.output_text.delta")
            item["content"].at(event.at("content_index").get<size_t>())["text"].get_ref<std::string&>() +=
                event.at("delta").get<std::string>();
        if (type == "response.function_call_arguments.delta")
            item["arguments"].get_ref<std::string&>() += event.at("delta").get<std::string>();
        if (type == "response.custom_tool_call_input.delta")
            item["input"].get_ref<std::string&>() += event.at("delta").get<std::string>();
        if (type == "response.output_item.done") {
            item["status"] = event.at("item").at("status");
            CHECK(item == event.at("item"));
        }
    }
    return items;
}

} // namespace

TEST_CASE("the events of a streamed text") {
    const Answer answer = stream({says("Hel"), says("lo")}, {FinishReason::stop, {}, usage});
    const std::vector<std::string> expected = {
        "response.created",           "response.in_progress",       "response.output_item.added", "response.content_part.added",
        "response.output_text.delta", "response.output_text.delta", "response.output_text.done",  "response.content_part.done",
        "response.output_item.done",  "response.completed"};
    CHECK(types(answer.events) == expected);
    CHECK(answer.events[0].at("response").at("status") == "in_progress");
    CHECK(answer.events[6].at("text") == "Hello");
    const Json text = {{"type", "output_text"}, {"text", "Hello"}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
    CHECK(answer.response.at("output") == Json::array({{{"id", "msg_1"},
                                                        {"type", "message"},
                                                        {"status", "completed"},
                                                        {"role", "assistant"},
                                                        {"content", Json::array({text})}}}));
    CHECK(answer.response.at("usage") == Json{{"input_tokens", 50},
                                              {"input_tokens_details", {{"cached_tokens", 30}}},
                                              {"output_tokens", 9},
                                              {"output_tokens_details", {{"reasoning_tokens", 2}}},
                                              {"total_tokens", 59}});
}

TEST_CASE("thinking, text and two calls are four items, of which a client joins the same from the deltas") {
    std::vector<Event> events = {thinks("H"), thinks("m"), says("Let me see")};
    for (int i = 0; i < 2; ++i)
        for (const Event& event : weather_call()) events.push_back(event);
    const Answer answer = stream(events, {FinishReason::tool_calls, {}, usage});
    const Json& output = answer.response.at("output");
    CHECK(joined_items(answer.events) == output);
    REQUIRE(output.size() == 4);
    CHECK(output.at(0).at("content") == Json::array({{{"type", "reasoning_text"}, {"text", "Hm"}}}));
    CHECK(output.at(0).at("summary") == Json::array());
    CHECK(output.at(3) == Json{{"id", "fc_2"},
                               {"type", "function_call"},
                               {"status", "completed"},
                               {"call_id", "call_2"},
                               {"name", "weather"},
                               {"arguments", "{\"city\": \"Oslo\"}"}});
    CHECK(answer.response.at("status") == "completed");
}

TEST_CASE("a custom tool's call has its text, not JSON") {
    const Request asked = request({{"tools", {{{"type", "custom"}, {"name", "patch"}}}}});
    const std::vector<Event> events = {call_begin("patch"), arguments("{\"input\": \"a\\n"), arguments("b\"}"), call_end()};
    const Answer answer = stream(events, {FinishReason::tool_calls, {}, usage}, asked);
    CHECK(joined_items(answer.events) == answer.response.at("output"));
    CHECK(answer.response.at("output").at(0) == Json{{"id", "ctc_1"},
                                                     {"type", "custom_tool_call"},
                                                     {"status", "completed"},
                                                     {"call_id", "call_1"},
                                                     {"name", "patch"},
                                                     {"input", "a\nb"}});
}

TEST_CASE("an answer that is cut off says so, and so does its last item") {
    const Answer text = stream({says("Hel")}, {FinishReason::length, {}, usage});
    CHECK(text.events.back().at("type") == "response.incomplete");
    CHECK(text.response.at("incomplete_details") == Json{{"reason", "max_output_tokens"}});
    CHECK(text.response.at("output").at(0).at("status") == "incomplete");
    const Answer call =
        stream({call_begin("weather"), arguments("{\"ci"), call_end(false, "...")}, {FinishReason::length, {}, usage});
    CHECK(call.response.at("output").at(0).at("status") == "incomplete");
    CHECK(call.response.at("output").at(0).at("arguments") == "{\"ci");
}

TEST_CASE("reasoning can be sealed for the next request, which reads it back") {
    const Request asked = request({{"include", {"reasoning.encrypted_content"}}});
    const Answer answer = stream({thinks("Hm"), says("Hi")}, {FinishReason::stop, {}, usage}, asked);
    Json item = answer.response.at("output").at(0);
    item["content"] = nullptr; // as Codex does
    CHECK(responses_api::read_items({{"input", {item}}}, Limits()).at(0).at("reasoning_content") == "Hm");
}

TEST_CASE("an answer goes back into the conversation as it was") {
    std::vector<Event> events = {thinks("Hm"), says("Let me see")};
    for (const Event& event : weather_call()) events.push_back(event);
    const Json output = stream(events, {FinishReason::tool_calls, {}, usage}).response.at("output");
    const Json turns = responses_api::read_items({{"input", output}}, Limits());
    REQUIRE(turns.size() == 1);
    CHECK(turns.at(0).at("reasoning_content") == "Hm");
    CHECK(turns.at(0).at("content") == "Let me see");
    CHECK(turns.at(0).at("tool_calls").at(0).at("function") == Json{{"name", "weather"}, {"arguments", "{\"city\": \"Oslo\"}"}});
}

TEST_CASE("a response repeats what was asked for") {
    Request asked = request({{"instructions", "Be brief"}, {"metadata", {{"k", "v"}}}, {"max_output_tokens", 5}});
    asked.task.sampling.options.temperature = 0.7f;
    const Json response = stream({}, {FinishReason::stop, {}, usage}, asked).response;
    CHECK(response.at("object") == "response");
    CHECK(response.at("id") == "resp_1");
    CHECK(response.at("created_at") == 1700000000);
    CHECK(response.at("instructions") == "Be brief");
    CHECK(response.at("metadata") == Json{{"k", "v"}});
    CHECK(response.at("max_output_tokens") == 5);
    CHECK(response.at("temperature") == 0.7);
    CHECK(response.at("tool_choice") == "auto");
    CHECK(response.at("tools") == Json::array());
    CHECK(response.at("text") == Json{{"format", {{"type", "text"}}}});
    CHECK(response.at("truncation") == "disabled");
    CHECK(response.at("store") == false);
    for (const char* name : {"error", "incomplete_details", "previous_response_id"}) CHECK(response.at(name).is_null());
    CHECK(response.at("output") == Json::array());
}

TEST_CASE("a failure within a stream is a response that failed") {
    Writer writer(request(), "qwen", 0, counted_ids());
    writer.begin({});
    writer.write({says("Hel")});
    const auto events = read_stream(writer.fail(ApiError(500, "server_error", "the device was lost")));
    REQUIRE(events.size() == 1);
    CHECK(events[0].at("type") == "response.failed");
    CHECK(events[0].at("response").at("status") == "failed");
    CHECK(events[0].at("response").at("error") == Json{{"code", "server_error"}, {"message", "the device was lost"}});
    CHECK(types(read_stream(writer.ping())) == std::vector<std::string>{"response.in_progress"});
}

TEST_CASE("logprobs are in the deltas of the text, and all of them at its end") {
    Event first = says("Hel"), second = says("lo");
    first.tokens = {{"Hel", -0.5f, {{"Hel", -0.5f}, {"W", -1}}}};
    second.tokens = {{"lo", -0.25f, {}}};
    const Answer answer = stream({thinks("Hm"), first, second}, {FinishReason::stop, {}, usage});
    const Json hel = {
        {"token", "Hel"},
        {"logprob", -0.5},
        {"bytes", {72, 101, 108}},
        {"top_logprobs",
         {{{"token", "Hel"}, {"logprob", -0.5}, {"bytes", {72, 101, 108}}}, {{"token", "W"}, {"logprob", -1}, {"bytes", {87}}}}}};
    const Json lo = {{"token", "lo"}, {"logprob", -0.25}, {"bytes", {108, 111}}, {"top_logprobs", Json::array()}};
    std::vector<Json> seen;
    for (const Json& event : answer.events)
        if (event.at("type") == "response.output_text.delta" || event.at("type") == "response.output_text.done")
            seen.push_back(event.at("logprobs"));
    CHECK(seen == std::vector<Json>{Json::array({hel}), Json::array({lo}), Json::array({hel, lo})});
    CHECK(answer.response.at("output").at(1).at("content").at(0).at("logprobs") == Json::array({hel, lo}));
}
