// A draft model has the tokens of the model that it drafts for.
#include "base/error.h"
#include "model/engine/speculation/vocabulary_check.h"
#include "model/weights/synthetic/synthetic.h"
#include <doctest/doctest.h>
#include <functional>

using namespace tq;

namespace {

using Tokens = std::vector<std::string_view>;
using Types = std::vector<int64_t>;

// A token for each byte, ChatML's tokens, and unused ones; `change` has the tokens and their types before they are read.
struct Vocabulary {
    ModelFile file{"vocabulary"};
    std::optional<Tokenizer> tokenizer;

    explicit Vocabulary(uint32_t size, const std::function<void(Tokens&, Types&)>& change = {}) {
        put_synthetic_vocabulary(file, size);
        auto& keys = file.mutable_metadata();
        if (change) change(std::get<Tokens>(keys["tokenizer.ggml.tokens"]), std::get<Types>(keys["tokenizer.ggml.token_type"]));
        tokenizer.emplace(file);
    }
};

void require_same(const Vocabulary& draft, const Vocabulary& model) {
    require_same_vocabulary(*draft.tokenizer, "draft", *model.tokenizer, "model");
}

} // namespace

TEST_CASE("vocabularies that differ in unused entries alone are the same") {
    const Vocabulary model(320), longer(400);
    require_same(model, model);
    require_same(model, longer);
    require_same(longer, model);
}

TEST_CASE("others are refused, with the first token that differs") {
    const Vocabulary model(320), more(320, [](Tokens& tokens, Types& types) {
        tokens[300] = "word";
        types[300] = 1;
    });
    const Vocabulary swapped(320, [](Tokens& tokens, Types&) { std::swap(tokens[70], tokens[80]); });
    CHECK_THROWS_WITH_AS(
        require_same(more, model),
        doctest::Contains("draft cannot draft for model, because their vocabularies differ: token 300 is \"word\" in "
                          "the first and unused in the second"),
        Error);
    CHECK_THROWS_WITH_AS(require_same(model, more), doctest::Contains("token 300 is unused in the first"), Error);
    CHECK_THROWS_WITH_AS(require_same(swapped, model), doctest::Contains("token 70 is "), Error);
}
