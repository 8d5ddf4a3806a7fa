#include "base/error.h"
#include "model/weights/synthetic/synthetic.h"

namespace tq {
namespace {

// Returns the UTF-8 of the character for a byte in GPT-2's alphabet; all of them are below U+0800.
std::string byte_token(int byte) {
    const auto prints = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
    int character = byte;
    if (!prints(byte)) {
        character = 0x100;
        for (int b = 0; b < byte; ++b) character += !prints(b);
    }
    if (character < 0x80) return {char(character)};
    return {char(0xc0 | character >> 6), char(0x80 | (character & 63))};
}

} // namespace

void put_synthetic_vocabulary(ModelFile& file, uint32_t vocab_size) {
    enum : int64_t { normal = 1, control = 3, user_defined = 4, unused = 5 };
    std::vector<std::string_view> tokens;
    std::vector<int64_t> types;
    for (int b = 0; b < 256; ++b) tokens.push_back(file.add_text(byte_token(b)));
    types.resize(256, normal);
    for (const auto* name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) tokens.emplace_back(name);
    types.resize(tokens.size(), control);
    for (const auto* name : {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"})
        tokens.emplace_back(name);
    types.resize(tokens.size(), user_defined);
    if (tokens.size() > vocab_size) fail("a vocabulary of {} tokens is too small; {} are needed", vocab_size, tokens.size());
    while (tokens.size() < vocab_size) tokens.push_back(file.add_text(fmt::format("[PAD{}]", tokens.size())));
    types.resize(vocab_size, unused);

    ModelFile::Metadata& keys = file.mutable_metadata();
    keys["tokenizer.ggml.model"] = std::string_view("gpt2");
    keys["tokenizer.ggml.pre"] = std::string_view("qwen2");
    keys["tokenizer.ggml.tokens"] = std::move(tokens);
    keys["tokenizer.ggml.token_type"] = std::move(types);
    keys["tokenizer.ggml.merges"] = std::vector<std::string_view>{};
    keys["tokenizer.ggml.eos_token_id"] = uint64_t(258);
    keys["tokenizer.ggml.padding_token_id"] = uint64_t(256);
    keys["tokenizer.ggml.add_bos_token"] = false;
}

} // namespace tq
