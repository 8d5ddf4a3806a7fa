// The JSON of a model: config.json, followed by a line with a single "-" and generation_config.json.
#include "model/files/formats/huggingface.h"
#include "model/model.h"
#include "tests/fuzz/fuzz_target.h"
#include <algorithm>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view all = tq::fuzz::text(data, size);
    const size_t cut = std::min(all.find("\n-\n"), all.size());
    tq::fuzz::write("config.json", all.substr(0, cut));
    tq::fuzz::write("generation_config.json", cut == all.size() ? "{}" : all.substr(cut + 3));
    return tq::fuzz::run([] {
        tq::ModelFile file(tq::fuzz::directory());
        tq::read_huggingface_config(file, tq::fuzz::directory());
        file.mutable_metadata().emplace("tokenizer.ggml.tokens", std::vector<std::string_view>{"a"});
        tq::read_config(file);
        tq::recommended_sampling(file, true);
    });
}
