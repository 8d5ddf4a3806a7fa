// Bodies that are not what they should be: each is a 400 with a sentence that names the field and what was expected.
#include "tests/tools/server/refused.h"
#include "tests/tools/server/scripted_server.h"
#include "tools/server/json_fields.h"

using namespace tq;
using namespace tq::server;

namespace {

std::string nested(size_t levels) { return "{\"a\":" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}"; }

std::string refusal(const std::function<void()>& run) {
    try {
        run();
    } catch (const ApiError& error) {
        CHECK(error.status == 400);
        return error.what();
    }
    return "not refused";
}

} // namespace

TEST_CASE("a body that is no JSON object is refused") {
    const std::vector<std::string> bodies = {"",
                                             " ",
                                             "{",
                                             "}",
                                             "nothing",
                                             "null",
                                             "1",
                                             "\"text\"",
                                             "[]",
                                             "{\"a\":}",
                                             "{\"a\":1,}",
                                             "{a:1}",
                                             "{'a':1}",
                                             "{\"a\":NaN}",
                                             "{\"a\":Infinity}",
                                             "{\"a\":-}",
                                             "{\"a\":01}",
                                             "{\"a\":1e999}",
                                             "{\"a\":1}{}",
                                             "{\"a\":1} x",
                                             "{\"a\":\"\xFF\"}",
                                             "{\"a\":\"\xC3\"}",
                                             "{\"a\":\"\xED\xA0\x80\"}",
                                             "{\"a\":\"\\ud80\"}",
                                             "{\"a\":\"\\x\"}",
                                             "{\"a\":\"\n\"}",
                                             "{\"a\":\"",
                                             "{\"a\":1/*no*/}",
                                             std::string("{\"a\"\0:1}", 8),
                                             "\xFF\xFE{\0}\0",
                                             "{\"a\":tru}",
                                             nested(65),
                                             nested(100'000)};
    for (const std::string& body : bodies) {
        CAPTURE(body.substr(0, 40));
        const std::string message = refusal([&] { parse_body(body, {}); });
        CHECK(message.starts_with("the request's body"));
    }
}

TEST_CASE("a body at the limit of the depth is read; deep nesting costs no stack") {
    CHECK(parse_body(nested(64), {}).size() == 1);
    CHECK(refusal([] { parse_body(std::string(10'000'000, '['), {}); }).find("64 levels") != std::string::npos);
}

TEST_CASE("of a key that occurs twice the last value counts, also in a list of many") {
    const Json body = parse_body(R"({"a": 1, "b": {"c": [1]}, "a": "x", "b": {"c": 2, "d": 3, "c": [4]}})", {});
    CHECK(body == Json::parse(R"({"a": "x", "b": {"c": [4], "d": 3}})"));
    std::string many = "{\"last\": 0";
    for (int i = 0; i < 100'000; ++i) many += ",\"" + std::to_string(i) + "\":0,\"last\":" + std::to_string(i);
    CHECK(parse_body(many + "}", {})["last"] == 99'999);
}

TEST_CASE("a field that is null is missing") {
    const Json body = parse_body(R"({"a": null})", {});
    CHECK(member(body, "a") == nullptr);
    CHECK(member(body, "b") == nullptr);
    CHECK(!number_field(body, "a", 0, 1));
    CHECK(!text_field(body, "a"));
    CHECK(!bool_field(body, "a"));
    CHECK(!integer_field(body, "a", 0, 1));
    CHECK(array_field(body, "a", 1) == nullptr);
    CHECK(object_field(body, "a") == nullptr);
}

TEST_CASE("integers may be written with a point, not as a text, and huge ones are out of range") {
    const Json body =
        parse_body(R"({"a": 5.0, "b": 5.5, "c": "5", "d": 1e300, "e": 18446744073709551615, "f": true, "g": [5]})", {});
    CHECK(integer_field(body, "a", 0, 9) == 5);
    for (const char* name : {"b", "c", "d", "e", "f", "g"}) {
        CAPTURE(name);
        CHECK(refused_field([&] { integer_field(body, name, 0, 9); }) == name);
    }
    CHECK(refusal([&] { integer_field(body, "c", 0, 9, "x[1]"); }) ==
          "\"x[1].c\" must be an integer between 0 and 9, but is the text \"5\"");
}

TEST_CASE("every field of the sampling is refused with its name where it has a wrong type or value") {
    ScriptedServer server("");
    const std::vector<std::pair<const char*, const char*>> wrong = {{"temperature", "\"0.5\""},
                                                                    {"temperature", "-1"},
                                                                    {"temperature", "[]"},
                                                                    {"temperature", "1e308"},
                                                                    {"temperature", "true"},
                                                                    {"top_p", "1.5"},
                                                                    {"top_p", "{}"},
                                                                    {"min_p", "-0.1"},
                                                                    {"top_k", "0.5"},
                                                                    {"top_k", "-2"},
                                                                    {"top_k", "\"20\""},
                                                                    {"presence_penalty", "\"\""},
                                                                    {"frequency_penalty", "1000"},
                                                                    {"repeat_penalty", "0"},
                                                                    {"repetition_penalty", "[1]"},
                                                                    {"repeat_last_n", "-2"},
                                                                    {"seed", "1.5"},
                                                                    {"seed", "\"1\""},
                                                                    {"max_tokens", "-2"},
                                                                    {"max_tokens", "1e18"},
                                                                    {"max_tokens", "\"7\""},
                                                                    {"max_completion_tokens", "{}"},
                                                                    {"n", "0"},
                                                                    {"n", "17"},
                                                                    {"n", "\"1\""},
                                                                    {"ignore_eos", "1"},
                                                                    {"stop", "7"},
                                                                    {"stop", "{}"},
                                                                    {"logit_bias", "\"x\""},
                                                                    {"logit_bias", "5"}};
    for (const auto& [name, value] : wrong) {
        CAPTURE(name);
        CAPTURE(value);
        const Json body = Json::parse(fmt::format("{{\"{}\": {}}}", name, value));
        CHECK(refused_field([&] { read_sampling(server.service, body); }) == name);
    }
}

TEST_CASE("stop strings and biases have limits") {
    ScriptedServer server("");
    const auto read = [&](const std::string& body) { return read_sampling(server.service, Json::parse(body)); };
    CHECK(read(R"({"stop": ["a", "", "b"]})").stop == std::vector<std::string>{"a", "b"});
    CHECK(read(R"({"stop": "a"})").stop == std::vector<std::string>{"a"});
    CHECK(refused_field([&] { read(R"({"stop": ["a", 1]})"); }) == "stop[1]");
    CHECK(refused_field([&] { read(Json{{"stop", std::vector<std::string>(17, "a")}}.dump()); }) == "stop");
    CHECK(refused_field([&] { read(Json{{"stop", std::string(1025, 'a')}}.dump()); }) == "stop[0]");
    using Biases = std::vector<std::pair<uint32_t, float>>;
    CHECK(read(R"({"logit_bias": {"5": 1.5, "6": -100}})").logit_bias == Biases{{5, 1.5f}, {6, never_bias}});
    CHECK(read(R"({"logit_bias": [[5, 1.5], [6, false]]})").logit_bias == Biases{{5, 1.5f}, {6, never_bias}});
    for (const char* biases : {R"({"x": 1})", R"({"-1": 1})", R"({"151936": 1})", R"({"5": "1"})", R"({"5": 101})", R"([[1]])",
                               R"([5])", R"({"5 ": 1})", R"([[1.5, 1]])", R"({"": 1})", R"({"99999999999999999999": 1})"}) {
        CAPTURE(biases);
        CHECK(refused_field([&] { read(fmt::format("{{\"logit_bias\": {}}}", biases)); }) == "logit_bias");
    }
}

TEST_CASE("fields of the sampling are read, under each of their names") {
    ScriptedServer server("");
    const auto read = [&](const std::string& body) { return read_sampling(server.service, Json::parse(body)); };
    CHECK(read(R"({"temperature": 0.25, "unknown": {}})").options.temperature == 0.25f);
    CHECK(read(R"({"top_k": -1})").options.top_k == 0);
    CHECK(read(R"({"repetition_penalty": 1.5})").options.repeat_penalty == 1.5f);
    CHECK(read(R"({"max_tokens": 5})").max_tokens == 5);
    CHECK(read(R"({"max_tokens": 5, "max_completion_tokens": 6})").max_tokens == 6);
    CHECK(!read(R"({"max_tokens": -1})").max_tokens);
    CHECK(!read("{}").seed_given);
    CHECK(!read(R"({"seed": -1})").seed_given);
    CHECK(read(R"({"seed": 9223372036854775807})").options.seed == INT64_MAX);
}

TEST_CASE("errors have OpenAI's envelope, or Anthropic's") {
    ApiError error(429, "rate_limit_error", "wait \xFF", "n", "a_code");
    error.retry_after_s = 3;
    const HttpReply reply = error_reply(error, Envelope::openai);
    CHECK(reply.status == 429);
    CHECK(reply.headers.at("Retry-After") == "3");
    const Json body = Json::parse(reply.body)["error"];
    CHECK(body == Json::parse("{\"message\": \"wait \xEF\xBF\xBD\", \"type\": \"rate_limit_error\", \"param\": \"n\", \"code\": "
                              "\"a_code\"}"));
    CHECK(Json::parse(error_body(ApiError(400, "x", "y"), Envelope::openai))["error"]["param"].is_null());
    const Json other = Json::parse(error_body(ApiError(500, "server_error", "y"), Envelope::anthropic));
    CHECK(other["type"] == "error");
    CHECK(other["error"] == Json::parse(R"({"type": "api_error", "message": "y"})"));
    CHECK(other["request_id"].get<std::string>().starts_with("req_"));
}
