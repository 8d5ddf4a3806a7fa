#include "tests/support/qwen3_vocabulary.h"
#include "model/files/formats/gguf_writer.h"
#include "model/files/formats/huggingface.h"
#include "model/text/tokenizer.h"
#include "model/text/unicode.h"
#include "tests/support/huggingface_files.h"
#include "tests/support/random_text.h"
#include "tests/support/test_data.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tq::test {
namespace {

using Ids = std::vector<uint32_t>;
using Ints = std::vector<int64_t>;

constexpr uint64_t vocab_size = 151936;

bool is_normal(uint32_t id) { return id < 151643; } // the added tokens follow

} // namespace

std::vector<TokenizerCase> read_tokenizer_cases(const std::filesystem::path& path) {
    std::vector<TokenizerCase> cases;
    for (const auto& item : nlohmann::json::parse(std::ifstream(path))) cases.push_back({item.at("text"), item.at("ids")});
    return cases;
}

ModelFile read_qwen3_vocabulary() {
    const auto folder = test_data("qwen3-tokenizer");
    ModelFile file(folder);
    read_huggingface_tokenizer(file, folder, vocab_size);
    return file;
}

void write_qwen3_vocabulary(const std::filesystem::path& path) {
    const ModelFile file = read_qwen3_vocabulary();
    GgufWriter writer;
    for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
                            "tokenizer.ggml.merges"})
        writer.set(key, *file.find(key));
    std::ofstream(path, std::ios::binary) << writer.zeros();
}

void check_tokenizer_cases(const ModelFile& file, const std::vector<TokenizerCase>& cases) {
    const Tokenizer tokenizer(file), raw(file, false);
    for (const auto& [text, ids] : cases) {
        CAPTURE(text);
        CHECK(tokenizer.encode(text) == ids);
        CHECK(tokenizer.decode(ids, false) == normalize_nfc(text));
        const bool has_special = !std::ranges::all_of(ids, is_normal);
        if (!has_special) CHECK(tokenizer.encode(text, false) == ids);
        if (normalize_nfc(text) != text) continue;
        CHECK(raw.encode(text) == ids);
        CHECK(raw.decode(ids, false) == text);
        if (has_special) continue;
        CHECK(raw.encode(text, false) == ids);
        CHECK(tokenizer.decode(ids) == text);
    }
}

void check_nfc_and_special_tokens(const ModelFile& file) {
    const Tokenizer tokenizer(file), raw(file, false);
    CHECK(tokenizer.size() == vocab_size);
    CHECK(tokenizer.encode("e\u0301") == Ids{963});
    CHECK(raw.encode("e\u0301") == Ids{68, 53839});
    CHECK(tokenizer.encode("\u1112\u1161\u11AB") == Ids{23573});
    CHECK(raw.encode("\u1112\u1161\u11AB") == Ids{146073, 146679, 147245});

    const Ids turn{151644, 872, 198, 13048, 151645, 198, 151644, 77091, 198, 151667, 271, 151668, 271};
    const std::string text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    CHECK(tokenizer.encode(text) == turn);
    CHECK(tokenizer.decode(turn, false) == text);
    CHECK(tokenizer.decode(turn) == "user\nHi\nassistant\n<think>\n\n</think>\n\n");
    CHECK(std::ranges::all_of(tokenizer.encode(text, false), is_normal));

    Ids ends, controls;
    for (uint32_t id = 0; id < tokenizer.size(); ++id) {
        if (tokenizer.is_end_of_generation(id)) ends.push_back(id);
        if (tokenizer.is_control(id)) controls.push_back(id);
    }
    CHECK(ends == Ids{151643, 151645, 151662, 151663, 151664});
    CHECK(controls.size() == 20);
    CHECK(tokenizer.special("<think>") == 151667u);
    CHECK(!tokenizer.special("user"));
    CHECK(!tokenizer.is_control(151667));
}

void check_round_trips(const ModelFile& file) {
    const Tokenizer tokenizer(file), raw(file, false);
    std::mt19937 random(1);
    for (int i = 0; i < 3000; ++i) {
        const std::string text = utf8(random_text(random, 60));
        CHECK(tokenizer.decode(tokenizer.encode(text)) == normalize_nfc(text));
        CHECK(raw.decode(raw.encode(text)) == text);
    }
}

void check_huggingface_forms(const ModelFile& file, const std::vector<TokenizerCase>& cases) {
    const auto& token_views = file.strings("tokenizer.ggml.tokens");
    const auto& merge_views = file.strings("tokenizer.ggml.merges");
    const std::vector<std::string> tokens(token_views.begin(), token_views.end()), merges(merge_views.begin(), merge_views.end());
    const auto& types = std::get<Ints>(*file.find("tokenizer.ggml.token_type"));
    HuggingFaceFiles as_texts, as_pairs, apart;
    as_texts.documents["tokenizer.json"] = tokenizer_json(tokens, types, merges);
    as_pairs.documents["tokenizer.json"] = tokenizer_json(tokens, types, merges, true);
    add_vocab_and_merges(apart, tokens, types, merges);
    for (const HuggingFaceFiles* files : {&as_texts, &as_pairs, &apart}) {
        const TemporaryDirectory directory;
        files->write(directory);
        ModelFile back(directory.path());
        read_huggingface_tokenizer(back, directory.path(), tokens.size());
        CHECK(back.strings("tokenizer.ggml.tokens") == token_views);
        CHECK(back.strings("tokenizer.ggml.merges") == merge_views);
        CHECK(std::get<Ints>(*back.find("tokenizer.ggml.token_type")) == types);
        const Tokenizer tokenizer(back);
        for ([[maybe_unused]] const auto& [text, ids] : cases) CHECK(tokenizer.encode(text) == ids);
    }
}

} // namespace tq::test
