// The tokenizer on the whole of Qwen3's vocabulary, and Qwen3's chat template, with the cases of the larger set of test data.
#include "model/files/formats/gguf.h"
#include "model/files/formats/huggingface.h"
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

TEST_CASE("the tokenizers of hybrid models' files, and where their answers end") {
    const auto folder = larger_set("qwen35");
    if (!folder) return;
    const auto check = [](const ModelFile& file, const char* pre) {
        CHECK(file.text("tokenizer.ggml.pre") == pre);
        const Tokenizer tokenizer(file);
        for (uint32_t id = 0; id < tokenizer.size(); ++id)
            CHECK(tokenizer.is_end_of_generation(id) ==
                  (id == tokenizer.special("<|im_end|>") || id == tokenizer.special("<|endoftext|>")));
    };
    check(read_gguf(*folder / "q35-tied-q8_0.gguf"), "qwen35");
    for (const auto& [name, pre] : {std::pair("q35-hf", "qwen35"), {"q35moe-hf", "qwen35"}, {"q3next-hf", "qwen2"}}) {
        ModelFile file(*folder / name);
        read_huggingface_tokenizer(file, *folder / name, 512);
        check(file, pre);
    }
}

// Returns, for an input that the templates refuse and we render, an input that they take and that means the same.
static nlohmann::ordered_json taken_input(const std::string& name, nlohmann::ordered_json input) {
    if (name == "effort high") input["reasoning_effort"] = "xhigh";
    if (name == "system in the middle") input["messages"][1]["role"] = "user";
    if (name == "arguments as text" || name == "arguments empty text") {
        auto& arguments = input["messages"][1]["tool_calls"][0]["function"]["arguments"];
        const std::string text = arguments;
        arguments = nlohmann::ordered_json::parse(text.empty() ? "{}" : text);
    }
    return input;
}

TEST_CASE("Qwen3.5's, 3.6's and 3.8's templates: the larger set's cases") {
    const auto folder = larger_set("qwen35");
    if (!folder) return;
    const auto cases = nlohmann::ordered_json::parse(std::ifstream(*folder / "qwen35-template-cases.json"));
    REQUIRE(cases.size() == 104);
    size_t refused = 0;
    for (const auto& item : cases) {
        const std::string name = item.at("name");
        CAPTURE(name);
        CAPTURE(item.at("template").get<std::string>());
        const auto& input = item.at("input");
        const ChatOptions options = options_of_case(input, find_chat_variant(item.at("template").get<std::string>()).value());
        const std::string ours = rendered_case(input, options);
        if (item.contains("rendered")) {
            CHECK(ours == item.at("rendered").get<std::string>());
            continue;
        }
        ++refused;
        CHECK(ours == rendered_case(taken_input(name, input), options));
        if (name == "no user") CHECK(ours.find("a<|im_end|>\n<|im_start|>assistant\n<think>\n") != ours.npos);
    }
    CHECK(refused == 16);
}

TEST_CASE("Qwen3's template: the larger set's cases") {
    const auto folder = larger_set("qwen-tokenizer");
    if (!folder) return;
    check_chat_cases(*folder / "chat_template_cases.json", 11);
}
