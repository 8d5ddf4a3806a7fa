// POST /v1/embeddings with the demo model: what an input may be, what its vector is, and what is refused.
#include "tests/support/served_model.h"
#include "tests/support/text.h"
#include "tests/support/vocabulary_file.h"
#include "tools/server/prompt_values.h"
#include <atomic>
#include <cmath>
#include <cstring>
#include <fmt/ranges.h>
#include <thread>

using namespace tq;
using test::contains;
using Json = test::ServedJson;

namespace {

Model demo() { return load_model(std::filesystem::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf"); }

// With a vocabulary of "a", "b" and "c", fewer than its rows.
Model demo_of_letters() {
    test::VocabularyFile letters;
    letters.tokens = {"a", "b", "c"};
    letters.types.assign(3, 1);
    Model model = demo();
    return {.file = std::move(model.file),
            .config = model.config,
            .weights = std::move(model.weights),
            .tokenizer = Tokenizer(letters.open()),
            .chat = model.chat,
            .name = model.name};
}

std::vector<float> vector_of(const Json& reply, size_t i = 0) { return reply.at("data").at(i).at("embedding"); }

std::vector<float> state_of(const Model& model, const std::vector<uint32_t>& ids) {
    const auto forward = make_cpu_forward(model.config, model.weights,
                                          {.kv = {.k = KvType::f32, .v = KvType::f32}, .context_size = 512, .threads = 1});
    std::vector<float> out;
    const Span span{0, ids, Span::Logits::hidden};
    forward->run({&span, 1}, [&](size_t, uint32_t, std::span<const float> state) { out.assign(state.begin(), state.end()); });
    return out;
}

std::vector<float> unit(std::vector<float> v, size_t dimensions) {
    v.resize(dimensions);
    double squares = 0;
    for (const float x : v) squares += double(x) * x;
    for (float& x : v) x = float(x / std::sqrt(squares));
    return v;
}

std::vector<float> from_base64(const std::string& text) {
    std::string bytes;
    uint32_t bits = 0, count = 0;
    for (const char c : text.substr(0, text.find('='))) {
        const auto at = std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/").find(c);
        REQUIRE(at != std::string_view::npos);
        bits = bits << 6 | uint32_t(at);
        if ((count += 6) >= 8) bytes += char(bits >> (count -= 8));
    }
    REQUIRE(text.size() % 4 == 0);
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), values.size() * 4);
    return values;
}

// Waits, at its first pass, until it is let go.
class WaitingForward final : public Forward {
  public:
    WaitingForward(std::unique_ptr<Forward> forward, std::atomic<bool>& go) : forward_(std::move(forward)), go_(go) {}
    using Forward::run;
    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override {
        go_.wait(false);
        return forward_->run(spans, each, progress);
    }
    const ForwardFacts& facts() const override { return facts_; }
    Cache& cache() override { return forward_->cache(); }

  private:
    const std::unique_ptr<Forward> forward_;
    const ForwardFacts facts_ = without_sampling(forward_->facts());
    std::atomic<bool>& go_;
};

} // namespace

TEST_CASE("texts and token ids, one or several, give the last token's state with length 1") {
    const Model model = demo();
    test::ServedModel served(model);
    const std::string text = "Tom lives near the river.", other = "The baker walked to the market.";
    const auto ids = model.tokenizer.encode(text, false), other_ids = model.tokenizer.encode(other, false);
    const auto expected = unit(state_of(model, ids), model.config.hidden_size);
    const Json one = served.answer(server::embeddings, {{"model", "any"}, {"input", text}});
    CHECK(one.at("object") == "list");
    CHECK(one.at("model") == model.name);
    CHECK(one.at("data").size() == 1);
    CHECK(one.at("data").at(0).at("object") == "embedding");
    CHECK(one.at("data").at(0).at("index") == 0);
    CHECK(vector_of(one) == expected);
    CHECK(one.at("usage").at("prompt_tokens") == ids.size());
    CHECK(one.at("usage").at("total_tokens") == ids.size());
    CHECK(vector_of(served.answer(server::embeddings, {{"input", ids}})) == expected);
    const Json both = served.answer(server::embeddings, {{"input", Json::array({other_ids, ids})}});
    CHECK(vector_of(both, 1) == expected);
    CHECK(both.at("data").at(1).at("index") == 1);
    CHECK(both.at("usage").at("prompt_tokens") == ids.size() + other_ids.size());
    CHECK(served.answer(server::embeddings, {{"input", {other, text}}}).at("data") == both.at("data"));
}

TEST_CASE("many inputs are answered in order, alone as together, with a queue of one") {
    const Model model = demo();
    test::ServedModel served(model, {.slots = 2, .queue = 1}), patient(model);
    Json texts = Json::array();
    for (int i = 0; i < 23; i++) {
        std::string text = fmt::format("The code of the kettle is {}.", i * 37);
        for (int more = 0; more < i % 5; more++) text += " Then Paul went home and read a book.";
        texts.push_back(text);
    }
    const Json together = served.answer(server::embeddings, {{"input", texts}});
    REQUIRE(together.at("data").size() == 23);
    for (size_t i = 0; i < 23; i++)
        CHECK(vector_of(patient.answer(server::embeddings, {{"input", texts[i]}})) == vector_of(together, i));
}

TEST_CASE("dimensions: the first numbers, with length 1; base64: the same numbers") {
    const Model model = demo();
    test::ServedModel served(model);
    const auto state = state_of(model, model.tokenizer.encode("A small cat.", false));
    for (const uint32_t dimensions : {1u, 2u, 31u, model.config.hidden_size}) {
        const Json request{{"input", "A small cat."}, {"dimensions", dimensions}};
        const auto vector = vector_of(served.answer(server::embeddings, request));
        CHECK(vector == unit(state, dimensions));
        Json coded = request;
        coded["encoding_format"] = "base64";
        const Json reply = served.answer(server::embeddings, coded);
        CHECK(from_base64(reply.at("data").at(0).at("embedding")) == vector);
    }
}

TEST_CASE("llama.cpp's path has a list of vectors for each text, with the norm that is asked for") {
    const Model model = demo();
    test::ServedModel served(model);
    const auto state = state_of(model, model.tokenizer.encode("A small cat.", false));
    const auto vector = [&](const Json& more) {
        Json request{{"content", "A small cat."}};
        request.update(more);
        const Json reply = served.answer(server::embedding, request);
        REQUIRE(reply.size() == 1);
        CHECK(reply.at(0).at("index") == 0);
        REQUIRE(reply.at(0).at("embedding").size() == 1);
        return reply.at(0).at("embedding").at(0).get<std::vector<float>>();
    };
    CHECK(vector(Json::object()) == unit(state, model.config.hidden_size));
    CHECK(vector({{"embd_normalize", -1}}) == state);
    double sum = 0, cubes = 0, largest = 0;
    for (const float x : vector({{"embd_normalize", 1}})) sum += std::abs(x);
    for (const float x : vector({{"embd_normalize", 3}})) cubes += std::pow(std::abs(x), 3);
    for (const float x : vector({{"embd_normalize", 0}})) largest = std::max(largest, double(std::abs(x)));
    CHECK(sum == doctest::Approx(1));
    CHECK(cubes == doctest::Approx(1));
    CHECK(largest == doctest::Approx(32760));
    const Json two = served.answer(server::embedding, {{"input", {"Bread.", "A small cat."}}});
    CHECK(two.at(1).at("index") == 1);
    CHECK(two.at(1).at("embedding").at(0).get<std::vector<float>>() == unit(state, model.config.hidden_size));
    CHECK(served.refusal(server::embedding, "{}").at("param") == "content");
    CHECK(served.refusal(server::embedding, R"({"input": "a", "encoding_format": "hex"})").at("param") == "encoding_format");
    CHECK(served.refusal(server::embedding, R"({"content": "a", "embd_normalize": -2})").at("param") == "embd_normalize");
}

TEST_CASE("inputs have all of llama.cpp's forms, and its paths and \"content\" its reply") {
    const Model model = demo();
    test::ServedModel served(model);
    const auto ids = model.tokenizer.encode("A small"), more = model.tokenizer.encode(" cat.");
    std::vector<uint32_t> all = ids;
    all.insert(all.end(), more.begin(), more.end());
    const std::vector<float> expected = unit(state_of(model, all), model.config.hidden_size);
    Json mixed = ids, begun{"A small"};
    mixed.push_back(" cat.");
    for (const uint32_t id : more) begun.push_back(id);
    const Json one_text{{"prompt_string", "A small cat."}};
    for (const Json& input : {Json("A small cat."), Json(all), mixed, begun, one_text}) {
        CAPTURE(input.dump());
        const Json openai = served.answer(server::embeddings, {{"input", input}});
        CHECK(openai.at("data").size() == 1);
        if (model.tokenizer.encode("A small cat.") == all || input != Json("A small cat.")) CHECK(vector_of(openai) == expected);
        for (const char* field : {"input", "content"}) {
            const Json own = served.answer(server::embedding, {{field, input}});
            REQUIRE(own.size() == 1);
            CHECK(own.at(0).at("index") == 0);
            CHECK(own.at(0).at("embedding").size() == 1);
            CHECK((own.at(0).at("embedding").at(0).get<std::vector<float>>() == vector_of(openai)));
            if (std::string(field) == "content") CHECK((served.answer(server::embeddings, {{field, input}}) == own));
        }
        const Json several = served.answer(server::embedding, {{"input", Json::array({"Bread.", input})}});
        REQUIRE(several.size() == 2);
        CHECK(several.at(1).at("embedding").at(0).get<std::vector<float>>() == vector_of(openai));
    }
    const Json coded = served.answer(server::embeddings, {{"input", "A small cat."}, {"encoding_format", "base64"}});
    CHECK(coded.at("data").at(0).at("encoding_format") == "base64");
    CHECK(
        served.answer(server::embedding, {{"input", "a"}, {"encoding_format", "base64"}}).at(0).at("embedding").at(0).is_array());
    const auto state = state_of(model, model.tokenizer.encode("A small cat.", false));
    CHECK(vector_of(served.answer(server::embeddings, {{"input", "A small cat."}, {"embd_normalize", -1}})) == state);
    // Raw prompts name special tokens, and what OpenAI's clients send is text.
    const Json marked{{"input", "A cat<|im_end|>"}};
    const auto special = unit(state_of(model, model.tokenizer.encode("A cat<|im_end|>")), model.config.hidden_size);
    CHECK(served.answer(server::embedding, marked).at(0).at("embedding").at(0).get<std::vector<float>>() == special);
    CHECK(vector_of(served.answer(server::embeddings, marked)) != special);
    for (const auto& endpoint : server::routes(served.service()))
        if (endpoint.path == "/embeddings" || endpoint.path == "/embedding")
            CHECK(Json::parse(endpoint.handle({.body = R"({"input": "a"})"}).body).is_array());
}

TEST_CASE("texts end with the token that the file says, once") {
    Model model = demo();
    const auto end_of_text = model.tokenizer.special("<|endoftext|>"), end_of_turn = model.tokenizer.end_id();
    REQUIRE(end_of_text);
    REQUIRE(end_of_turn == model.tokenizer.special("<|im_end|>"));
    auto& metadata = model.file.mutable_metadata();
    const auto ids = model.tokenizer.encode("A small cat.", false);
    const auto check = [&](std::optional<uint32_t> end) {
        test::ServedModel served(model);
        auto ended = ids;
        if (end) ended.push_back(*end);
        const auto expected = unit(state_of(model, ended), model.config.hidden_size);
        for (const Json& input : {Json("A small cat."), Json(ids), Json(ended)}) {
            const Json reply = served.answer(server::embeddings, {{"input", input}});
            CHECK(vector_of(reply) == expected);
            CHECK(reply.at("usage").at("prompt_tokens") == ended.size());
        }
    };
    check(std::nullopt);
    metadata["qwen3.pooling_type"] = uint64_t(3);
    check(end_of_text);
    metadata["tokenizer.ggml.add_eos_token"] = false;
    check(std::nullopt);
    metadata["tokenizer.ggml.add_eos_token"] = true;
    check(end_of_turn);
    metadata.erase("qwen3.pooling_type");
    metadata.erase("tokenizer.ggml.add_eos_token");
    model.name = "Qwen3-Embedding-0.6B";
    check(end_of_text);
}

TEST_CASE("ids are those of the vocabulary, not of all rows") {
    const Model model = demo_of_letters();
    test::ServedModel served(model);
    const auto message = [&](const Json& input) {
        return served.refusal(server::embeddings, Json{{"input", input}}.dump()).at("message").get<std::string>();
    };
    CHECK(message(Json::array({0, 3})) == "\"input\" holds 3, which is no token id: those of this model are 0 to 2");
    CHECK(message(Json::array({0, nullptr})) == "\"input\" holds null, which is no token id: those of this model are 0 to 2");
    CHECK(vector_of(served.answer(server::embeddings, {{"input", {0, "b"}}})) ==
          vector_of(served.answer(server::embeddings, {{"input", "ab"}})));
}

TEST_CASE("a text of characters that the vocabulary lacks is refused; where there are others, they count") {
    const Model model = demo_of_letters();
    REQUIRE(model.tokenizer.encode("\u00e9").empty());
    test::ServedModel served(model);
    const auto refusal = [&](const Json& input) { return served.refusal(server::embeddings, Json{{"input", input}}.dump()); };
    CHECK(refusal("\u00e9").at("message") == "\"input\" has no character that the model's vocabulary knows");
    CHECK(refusal("\u00e9").at("param") == "input");
    CHECK(refusal(Json::array({"a", "\u00e9"})).at("param") == "input[1]");
    CHECK(vector_of(served.answer(server::embeddings, {{"input", "a\u00e9b"}})) ==
          vector_of(served.answer(server::embeddings, {{"input", {0, 1}}})));
}

TEST_CASE("a model that pools otherwise is refused") {
    Model model = demo();
    test::ServedModel served(model);
    for (const auto& [type, name] :
         {std::pair(0u, "none"), {1u, "mean"}, {2u, "first token"}, {4u, "/v1/rerank"}, {77u, "unknown"}}) {
        model.file.mutable_metadata()["qwen3.pooling_type"] = uint64_t(type);
        CHECK(contains(served.refusal(server::embeddings, R"({"input": "a"})").at("message").get<std::string>(), name));
    }
}

TEST_CASE("what is no request is refused with the field's name, and nothing is run") {
    const Model model = demo();
    test::ServedSetup setup{.context = 40};
    setup.options.limits.batch_inputs = 3;
    test::ServedModel served(model, setup);
    const auto param = [&](const std::string& body) { return served.refusal(server::embeddings, body).at("param"); };
    for (const char* input : {"", R"("input": null)", R"("input": "")", R"("input": [])", R"("input": {"a": 1})", R"("input": 7)",
                              R"("input": [1.5])", R"("input": [-1])", R"("input": [1, ["a"]])", R"("input": true)",
                              R"("input": [18446744073709551615])", R"("input": [1e300])", R"("input": ["a", "b", "c", "d"])"})
        CHECK(param(fmt::format("{{{}}}", input)) == "input");
    CHECK(param(fmt::format(R"({{"input": [{}]}})", model.config.vocab_size)) == "input");
    CHECK(param(R"({"input": [""]})") == "input[0]");
    CHECK(param(R"({"input": ["a", []]})") == "input[1]");
    CHECK(param(R"({"input": ["a", [["b"]]]})") == "input[1]");
    CHECK(param(R"({"input": ["a", null]})") == "input[1]");
    CHECK(param(R"({"input": "a", "encoding_format": "hex"})") == "encoding_format");
    CHECK(param(R"({"input": "a", "encoding_format": 1})") == "encoding_format");
    for (const std::string& dimensions : {std::string("0"), std::string("-1"), std::to_string(model.config.hidden_size + 1),
                                          std::string("1.5"), std::string(R"("8")"), std::string("1e99")})
        CHECK(param(fmt::format(R"({{"input": "a", "dimensions": {}}})", dimensions)) == "dimensions");
    const std::string ids = fmt::format("[{}]", fmt::join(std::vector<int>(41, 7), ","));
    const Json long_input = served.refusal(server::embeddings, fmt::format(R"({{"input": ["a", {}]}})", ids));
    CHECK(long_input.at("code") == "context_length_exceeded");
    CHECK(long_input.at("param") == "input[1]");
    CHECK(contains(long_input.at("message").get<std::string>(), "41 tokens"));
    CHECK(contains(long_input.at("message").get<std::string>(), "holds 40"));
    CHECK(served.scheduler().status().requests == 0);
    CHECK(served.answer(server::embeddings, {{"input", std::vector<int>(40, 7)}}).at("data").size() == 1);
}

TEST_CASE("a client that is gone stops its inputs, and a full queue says when to come again") {
    const Model model = demo();
    std::atomic<bool> go = false;
    test::ServedSetup setup{.slots = 2, .queue = 3};
    setup.wrap = [&](std::unique_ptr<Forward> forward) { return std::make_unique<WaitingForward>(std::move(forward), go); };
    test::ServedModel served(model, setup);
    Json texts = Json::array();
    for (int i = 0; i < 20; i++) texts.push_back(fmt::format("Number {}.", i));
    int asked = 0;
    const auto gone = [&] { return ++asked == 2; };
    const auto reply = served.post(server::embeddings, Json{{"input", texts}}.dump(), gone);
    CHECK(reply.status == 499);
    CHECK(asked == 2);
    for (int i = 0; i < 20; i++) { // those that were cancelled are still in the queue
        serving::Request request;
        request.prompt = {1};
        request.max_tokens = 1;
        try {
            served.scheduler().submit(std::move(request));
        } catch (const serving::QueueFull&) {
            break;
        }
    }
    const auto full = served.post(server::embeddings, R"({"input": "a"})");
    CHECK(full.status == 429);
    CHECK(full.headers.contains("Retry-After"));
    go = true;
    go.notify_all();
    CHECK(served.scheduler().drain(std::chrono::seconds(20)));
    CHECK(served.scheduler().status().cancelled >= 1); // the pass that waited had at most two, as there are slots
    CHECK(served.post(server::embeddings, R"({"input": "a"})").status == 503);
}
