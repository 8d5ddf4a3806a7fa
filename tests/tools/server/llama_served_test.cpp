// A model of Llama 3's kind as it is served: its template, the BOS token of texts, and calls of tools without tags.
#include "model/model.h"
#include "tests/support/served_model.h"
#include "tests/support/test_data.h"
#include "tests/support/text.h"

using namespace tq;
using namespace tq::test;
using Json = ServedJson;

namespace {

const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
    "properties": {"city": {"enum": ["Oslo", "Bern"]}}, "required": ["city"]}}}])");

Json chat(const Json& more) {
    Json body{{"messages", {{{"role", "user"}, {"content", "the weather?"}}}}, {"max_tokens", 80}};
    body.update(more);
    return body;
}

} // namespace

TEST_CASE("a call that is required keeps to the tools, and is read without a tag") {
    const Model model = load_model(test_data("llama3.gguf"));
    ServedModel served(model, {.context = 2048});
    for (const char* choice : {"required", "auto", "none"}) {
        const Json reply =
            served.answer(server::chat_completions, chat({{"tools", tools}, {"tool_choice", choice}, {"seed", 1}}));
        const Json& message = reply.at("choices").at(0).at("message");
        CAPTURE(message.dump());
        if (choice != std::string("required")) {
            CHECK(!message.contains("tool_calls")); // this model says nothing that makes sense
            continue;
        }
        REQUIRE(message.at("tool_calls").size() >= 1);
        const Json& function = message.at("tool_calls").at(0).at("function");
        CHECK(function.at("name") == "weather");
        const Json arguments = Json::parse(function.at("arguments").get<std::string>());
        CHECK((arguments.at("city") == "Oslo" || arguments.at("city") == "Bern"));
        CHECK(reply.at("choices").at(0).at("finish_reason") == "tool_calls");
        Json body = chat({{"tools", tools}});
        body["messages"].push_back(message);
        for (const Json& call : message.at("tool_calls"))
            body["messages"].push_back({{"role", "tool"}, {"tool_call_id", call.at("id")}, {"content", "21"}});
        CHECK(served.answer(server::chat_completions, body).at("usage").at("prompt_tokens") > 100);
    }
}

TEST_CASE("Ollama's context has one beginning of a text and one date") {
    const Model model = load_model(test_data("llama3.gguf"));
    ServedModel served(model, {.context = 2048});
    const auto generate = [&](const Json& more) {
        Json body{{"prompt", "the weather?"}, {"stream", false}, {"options", {{"num_predict", 3}}}};
        body.update(more);
        return served.answer(server::ollama_generate, body);
    };
    const Json first = generate(Json::object());
    const auto before = first.at("context").get<std::vector<uint32_t>>();
    const auto all = generate({{"context", before}}).at("context").get<std::vector<uint32_t>>();
    REQUIRE(all.size() > before.size());
    CHECK(std::equal(before.begin(), before.end(), all.begin()));
    const std::string more = model.tokenizer.decode(std::span(all).subspan(before.size()), false);
    CHECK(more.starts_with("<|start_header_id|>user<|end_header_id|>\n\nthe weather?<|eot_id|>"));
    CHECK(std::count(all.begin(), all.end(), model.tokenizer.special("<|begin_of_text|>").value()) == 1);
}

TEST_CASE("a call that is cut off is no text, whatever API asked for it") {
    const Model model = load_model(test_data("llama3.gguf"));
    ServedModel served(model, {.context = 2048});
    const Json function = tools.at(0).at("function");
    Json flat = function;
    flat["type"] = "function";
    const Json own = {{"name", "weather"}, {"input_schema", function.at("parameters")}};
    size_t begun = 0;
    for (int tokens = 1; tokens < 40; ++tokens) {
        CAPTURE(tokens);
        const Json required = {{"tools", tools}, {"tool_choice", "required"}, {"max_tokens", tokens}, {"seed", 1}};
        const Json chosen = served.answer(server::chat_completions, chat(required)).at("choices").at(0);
        if (chosen.at("finish_reason") != "length") break;
        const Json& message = chosen.at("message");
        CHECK((message.at("content").is_null() || message.at("content") == ""));
        for (const Json& call : message.value("tool_calls", Json::array()))
            begun += call.at("function").at("arguments").get<std::string>().starts_with("{");
        const Json response = served.answer(server::responses, {{"input", "the weather?"},
                                                                {"tools", {flat}},
                                                                {"tool_choice", "required"},
                                                                {"max_output_tokens", tokens},
                                                                {"seed", 1}});
        for (const Json& item : response.at("output")) CHECK(item.at("type") == "function_call");
        Json asked = chat({{"tools", {own}}, {"tool_choice", {{"type", "any"}}}, {"max_tokens", tokens}, {"seed", 1}});
        const Json used = served.answer(server::messages, asked);
        for (const Json& block : used.at("content")) CHECK(block.at("type") == "tool_use");
    }
    CHECK(begun > 0);
}

TEST_CASE("texts begin with a BOS token, and chats with that of the template alone") {
    const Model model = load_model(test_data("llama3.gguf"));
    ServedModel served(model, {.context = 2048});
    CHECK(served.answer(server::tokenize, {{"content", "2024"}}).at("tokens") == Json({284, 19}));
    CHECK(served.answer(server::tokenize, {{"content", "2024"}, {"add_special", true}}).at("tokens") == Json({296, 284, 19}));
    const auto prompt_tokens = [&](auto handle, const Json& body) {
        return served.answer(handle, body).at("usage").at("prompt_tokens");
    };
    CHECK(prompt_tokens(server::completions, {{"prompt", "2024"}, {"max_tokens", 1}}) == 3);
    CHECK(prompt_tokens(server::completions, {{"prompt", {284, 19}}, {"max_tokens", 1}}) == 2);
    CHECK(prompt_tokens(server::embeddings, {{"input", "2024"}}) == 3);
    const auto ids = model.tokenizer.encode(
        render_chat(Json::parse(R"([{"role": "user", "content": "the weather?"}])"), nullptr, {.variant = model.chat}));
    CHECK(ids[0] == 296);
    CHECK(prompt_tokens(server::chat_completions, chat({{"max_tokens", 1}})) == ids.size());
}

TEST_CASE("a model whose vocabulary lacks the template's tokens completes texts, and refuses chats with the reason") {
    Model model = load_model(test_data("llama3.gguf"));
    model.chat = ChatVariant::instruct;
    ServedModel served(model, {.context = 2048});
    CHECK(contains(served.refusal(server::chat_completions, chat(Json::object()).dump()).at("message").get<std::string>(),
                   "the model's vocabulary has no token <|im_start|>"));
    served.answer(server::completions, {{"prompt", "the"}, {"max_tokens", 1}});
    const Json ranked = served.refusal(server::rerank, Json{{"query", "the"}, {"documents", {"a"}}}.dump());
    CHECK(contains(ranked.at("message").get<std::string>(), "cannot rerank"));
    CHECK(contains(ranked.at("message").get<std::string>(), "<|im_start|>"));
}
