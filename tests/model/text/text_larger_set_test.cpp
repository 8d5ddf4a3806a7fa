// The tokenizer on the whole of Qwen3's vocabulary, and Qwen3's chat template, with the cases of the larger set of test data.
#include "model/formats/gguf.h"
#include "model/text/chat_template.h"
#include "model/text/tokenizer.h"
#include "tests/support/chat_cases.h"
#include "tests/support/golden.h"
#include "tests/support/qwen3_vocabulary.h"

using namespace tq;
using namespace tq::test;

TEST_CASE("Qwen3's whole vocabulary") {
    const auto folder = larger_set("qwen-tokenizer");
    if (!folder) return;
    const ModelFile file = read_gguf(*folder / "qwen3-vocab.gguf");
    const auto cases = read_tokenizer_cases(*folder / "cases.json"),
               ours = read_tokenizer_cases(test_data("qwen3-tokenizer/cases.json"));
    REQUIRE(cases.size() == 46);
    check_tokenizer_cases(file, cases);
    check_tokenizer_cases(file, ours);
    check_nfc_and_special_tokens(file);
    check_round_trips(file);
    check_huggingface_forms(file, cases);

    const Tokenizer tokenizer(file);
    uint32_t unused = 0;
    for (uint32_t id = 0; id < tokenizer.size(); ++id) unused += tokenizer.is_unused(id);
    CHECK(unused == 267);
    CHECK(tokenizer.encode("My favourite condiment is ") == std::vector<uint32_t>{5050, 18696, 9756, 3819, 374, 220});
    CHECK(chat_variant(file) == ChatVariant::hybrid);
}

TEST_CASE("Qwen3.5's words over Qwen3's vocabulary") {
    const auto folder = larger_set("qwen35"), vocabulary = larger_set("qwen-tokenizer");
    if (!folder || !vocabulary) return;
    ModelFile file = read_gguf(*vocabulary / "qwen3-vocab.gguf");
    const auto cases = nlohmann::json::parse(std::ifstream(*folder / "qwen35-tokenizer-cases.json"));
    REQUIRE(cases.size() == 44);
    for (const auto& [pre, key] : {std::pair("qwen35", "ids"), {"qwen2", "ids_qwen2"}}) {
        file.mutable_metadata().insert_or_assign("tokenizer.ggml.pre", file.add_text(pre));
        const Tokenizer tokenizer(file), raw(file, false);
        for (const auto& item : cases) {
            const std::string text = item.at("text");
            CAPTURE(text);
            const std::vector<uint32_t> ids = item.at(key); // after NFC
            CHECK(tokenizer.encode(text) == ids);
            if (!item.at("nfc").get<bool>()) CHECK(raw.encode(text) == ids);
        }
    }
}

TEST_CASE("Qwen3's template: the larger set's cases") {
    const auto folder = larger_set("qwen-tokenizer");
    if (!folder) return;
    check_chat_cases(*folder / "chat_template_cases.json", 11);
}
