// Embeddings and scores as they are served, against float64 arithmetic on two models of the larger set.
#include "tests/support/embeddings.h"
#include "tests/support/served_model.h"

using namespace tq;
using Json = test::ServedJson;

TEST_CASE("the vectors of texts and of their tokens, of all dimensions") {
    for (const GoldenEmbeddings& golden : golden_embeddings()) {
        test::ServedModel served(golden.model);
        const bool ends = golden.model.file.find("tokenizer.ggml.add_eos_token") != nullptr;
        Json ids = Json::array(), texts = Json::array();
        size_t tokens = 0;
        for (const GoldenEmbedding& text : golden.texts) {
            ids.push_back(text.ids);
            texts.push_back(text.text);
            tokens += text.ids.size();
        }
        for (const Json& input : ends ? std::vector<Json>{ids, texts} : std::vector<Json>{ids}) {
            for (const auto& [dimensions, unused] : golden.texts[0].vectors) {
                const Json reply = served.answer(server::embeddings, {{"input", input}, {"dimensions", dimensions}});
                CHECK(reply.at("usage").at("prompt_tokens") == tokens);
                for (size_t i = 0; i < golden.texts.size(); i++) {
                    CAPTURE(golden.texts[i].text);
                    check_vector(reply.at("data").at(i).at("embedding").get<std::vector<float>>(),
                                 golden.texts[i].vectors.at(dimensions));
                }
            }
        }
    }
}

TEST_CASE("a reranker's scores") {
    const auto folder = larger_set("qwen3-embedding");
    if (!folder || !larger_set("qwen3-tiny")) return;
    const nlohmann::json json = read_json(*folder / "rerank.json");
    const Model model = load_model(*folder / json.at("model").get<std::string>());
    test::ServedModel served(model);
    for (const auto& one : json.at("cases")) {
        const Json reply = served.answer(server::rerank, {{"query", one.at("query").get<std::string>()},
                                                          {"documents", Json::array({one.at("document").get<std::string>()})},
                                                          {"instruction", one.at("instruct").get<std::string>()}});
        CHECK(reply.at("usage").at("prompt_tokens") == one.at("ids").size());
        CHECK(reply.at("results").at(0).at("relevance_score").get<double>() ==
              doctest::Approx(one.at("score").get<double>()).epsilon(1e-4));
    }
}
