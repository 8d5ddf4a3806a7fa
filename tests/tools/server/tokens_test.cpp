// Texts into tokens and back, as llama.cpp's clients and vLLM's ask.
#include "tests/tools/server/chat_answers.h"

using namespace tq;
using namespace tq::server;

TEST_CASE("a text, a prompt or messages become the ids that an answer would begin with") {
    ScriptedServer server("x");
    const Json ids = server.model.tokenizer.encode("Count <|im_end|>");
    for (const char* field : {"content", "prompt"}) {
        const Json answer = server.answer(tokenize, {{field, "Count <|im_end|>"}});
        CHECK(answer.at("tokens") == ids);
        CHECK(answer.at("count") == ids.size());
        CHECK(answer.at("max_model_len") == server.scheduler.context_size());
    }
    const Json pieces = server.answer(tokenize, {{"content", "Co"}, {"with_pieces", true}}).at("tokens");
    CHECK(pieces.at(0).contains("piece"));
    CHECK(server.answer(tokenize, {{"content", "<|im_end|>"}, {"parse_special", false}}).at("count") > 1);
    const Json chat = chat_body("Count");
    CHECK(server.answer(tokenize, chat).at("count") == server.answer(chat_completions, chat).at("usage").at("prompt_tokens"));
    const Json text = server.answer(detokenize, {{"tokens", ids}});
    CHECK(text.at("content") == "Count <|im_end|>");
    CHECK(text.at("prompt") == text.at("content"));
    CHECK(refused_field([&] { server.post(tokenize, "{}"); }) == "content");
    CHECK(refused_field([&] { server.post(tokenize, R"({"prompt": 1})"); }) == "prompt");
    CHECK(refused_field([&] { server.post(detokenize, R"({"tokens": [-1]})"); }) == "tokens");
}

TEST_CASE("what a tokenizer adds is known by its text") {
    ScriptedServer server("x");
    const Json info = server.answer(tokenizer_info, Json::object());
    CHECK(info.at("bos_token").is_null());
    CHECK(info.at("eos_token") == "<|im_end|>");
    CHECK(info.at("model_max_length") == server.scheduler.context_size());
    CHECK(info.contains("chat_template"));
}
