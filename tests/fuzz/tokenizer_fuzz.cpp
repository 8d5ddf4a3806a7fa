// tokenizer.json, followed by a line with a single "-" and tokenizer_config.json: read as a vocabulary that encodes a text.
#include "model/files/formats/huggingface.h"
#include "model/text/chat_template.h"
#include "model/text/tokenizer.h"
#include "tests/fuzz/fuzz_target.h"
#include <algorithm>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view all = tq::fuzz::text(data, size);
    const size_t cut = std::min(all.find("\n-\n"), all.size());
    tq::fuzz::write("tokenizer.json", all.substr(0, cut));
    tq::fuzz::write("tokenizer_config.json", cut == all.size() ? "{}" : all.substr(cut + 3));
    return tq::fuzz::run([] {
        tq::ModelFile file(tq::fuzz::directory());
        tq::read_huggingface_tokenizer(file, tq::fuzz::directory(), 512);
        const tq::Tokenizer tokenizer(file);
        const std::string text = "<|im_start|>user\nUsers' aaaa e\u0301 12<think>\n\n\u1112\u1161\u11AB<|im_end|>";
        const auto ids = tokenizer.encode(text);
        for (const uint32_t id : ids)
            if (id >= tokenizer.size()) std::abort();
        tokenizer.decode(ids);
        tq::chat_variant(file);
    });
}
