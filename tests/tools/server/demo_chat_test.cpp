// Chats with the demo model: each answer, and what comes after it, is what the model gives alone.
#include "model/cpu/forward.h"
#include "model/engine/serving/logprobs.h"
#include "model/engine/session.h"
#include "model/engine/speculation/ngram.h"
#include "model/engine/speculation/speculation.h"
#include "tests/tools/server/scripted_server.h"
#include <filesystem>

using namespace tq;
using namespace tq::server;

namespace {

class DemoServer {
  public:
    explicit DemoServer(bool drafts = false)
        : drafts(drafts), model(load_model(std::filesystem::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf")),
          scheduler({forward(2), nullptr}, {}, options()), service(model, scheduler, ScriptedServer::greedy()) {}

    std::unique_ptr<Forward> forward(uint32_t slots) const {
        return make_cpu_forward(model.config, model.weights,
                                {.context_size = 512, .slots = slots, .threads = 1, .speculative = true});
    }
    Json answer(const Json& body) {
        HttpRequest request;
        request.body = body.dump();
        return Json::parse(chat_completions(service, request).body);
    }
    // The model's answer without a server.
    std::string alone(const std::string& question) const {
        const auto one = forward(1);
        Session session(*one);
        Sampler sampler({.temperature = 0}, unsampled_ids(model.tokenizer, model.config.vocab_size));
        GenerateOptions generate;
        generate.is_end = [this](uint32_t id) { return model.tokenizer.is_end_of_generation(id); };
        const auto prompt = model.tokenizer.encode(render_chat(chat_body(question)["messages"], nullptr, {model.chat}));
        return model.tokenizer.decode(session.generate(prompt, sampler, generate).ids);
    }

    const bool drafts; // whether they pay or not
    const Model model;
    Speculation speculation{std::make_unique<NgramDrafter>(), {.adaptive = false}};
    serving::Scheduler scheduler;
    Service service;

  private:
    serving::Scheduler::Options options() {
        serving::Scheduler::Options options;
        options.is_end = [this](uint32_t id) { return model.tokenizer.is_end_of_generation(id); };
        options.excluded = options.excluded_ends = unsampled_ids(model.tokenizer, model.config.vocab_size);
        if (drafts) options.speculation = &speculation;
        return options;
    }
};

std::string content(const Json& answer, size_t choice = 0) { return answer.at("choices").at(choice).at("message").at("content"); }

} // namespace

TEST_CASE("logprobs of an echoed prompt are those of the model's logits") {
    DemoServer server;
    const auto ids = server.model.tokenizer.encode("Once upon a time there was a little fox who lived in the forest.");
    std::vector<float> expected;
    const auto forward = server.forward(1);
    const Span span{0, ids, Span::Logits::all};
    forward->run({&span, 1}, [&](size_t, uint32_t i, std::span<const float> logits) {
        if (i + 1 < ids.size()) expected.push_back(serving::with_logprobs(ids[i + 1], logits, 0).logprob);
    });
    HttpRequest request;
    request.body = Json{{"prompt", ids}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 0}}.dump();
    const Json known = Json::parse(completions(server.service, request).body)["choices"][0]["logprobs"]["token_logprobs"];
    REQUIRE(known.size() == ids.size());
    for (size_t i = 1; i < ids.size(); ++i) CHECK(known[i].get<float>() == doctest::Approx(expected[i - 1]).epsilon(1e-6));
}

TEST_CASE("the server's greedy answer is the model's own") {
    DemoServer server;
    const std::string question = "Tell me a story.";
    const std::string expected = server.alone(question);
    CHECK(!expected.empty());
    const Json answer = server.answer(chat_body(question));
    CHECK(content(answer) == expected);
    CHECK(answer["timings"]["predicted_n"].get<uint32_t>() > 0);
    CHECK(!answer["timings"].contains("draft_n"));
    DemoServer drafting(true);
    const Json drafted = drafting.answer(chat_body(question));
    CHECK(content(drafted) == expected);
    CHECK(drafted["timings"]["draft_n"].get<uint32_t>() > 0);
    CHECK(drafted["timings"]["draft_n_accepted"].get<uint32_t>() <= drafted["timings"]["draft_n"].get<uint32_t>());
}

TEST_CASE("choice i has the seed + i, alone and among others") {
    DemoServer server;
    const auto ask = [&](uint32_t n, uint64_t seed) {
        return server.answer(
            chat_body("Tell me a story.", {{"n", n}, {"seed", seed}, {"temperature", 1.5}, {"top_k", 0}, {"max_tokens", 24}}));
    };
    const Json three = ask(3, 7);
    for (uint32_t i = 0; i < 3; ++i) CHECK(content(three, i) == content(ask(1, 7 + i)));
    CHECK(content(three, 0) != content(three, 1));
    CHECK(content(ask(1, 7)) == content(three, 0));
}

TEST_CASE("after an answer its rendering in the next prompt is run, where it is worth it") {
    const auto requests_of = [](bool run_ahead, const std::string& says) {
        ServiceOptions options = ScriptedServer::greedy();
        options.run_ahead = run_ahead;
        ScriptedServer server(says, ChatVariant::hybrid, options);
        server.answer(chat_completions, chat_body("Is it?"));
        server.scheduler.drain(std::chrono::seconds(10));
        return server.scheduler.status().requests;
    };
    std::string long_answer = "<think>\nhm\n</think>\n\n";
    for (int i = 0; i < 40; ++i) long_answer += " a";
    CHECK(requests_of(true, long_answer) == 2);
    CHECK(requests_of(false, long_answer) == 1);
    CHECK(requests_of(true, "yes") == 1);
}
