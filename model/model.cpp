#include "model/model.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/formats/open.h"
#include <algorithm>

namespace tq {

Model load_model(const std::filesystem::path& path) {
    ModelFile file = open_model_file(path);
    const Config config = read_config(file);
    Weights weights = read_weights(file, config);
    Tokenizer tokenizer = Tokenizer::of_any_kind(file);
    const ChatVariant chat = chat_variant(file);
    std::string name = printable(file.text("general.name", utf8_text(path.stem())));
    check_mapped_files();
    return {std::move(file), config, std::move(weights), std::move(tokenizer), chat, std::move(name)};
}

SamplerOptions recommended_sampling(const ModelFile& file, bool thinking) {
    SamplerOptions options = qwen_sampling(thinking);
    options.temperature = float(file.real("general.sampling.temp", double(options.temperature)));
    options.top_k = uint32_t(std::min<uint64_t>(file.integer("general.sampling.top_k", options.top_k), UINT32_MAX));
    options.top_p = float(file.real("general.sampling.top_p", double(options.top_p)));
    options.repeat_penalty = float(file.real("general.sampling.penalty_repeat", double(options.repeat_penalty)));
    options.min_p = float(file.real("general.sampling.min_p", double(options.min_p)));
    return options;
}

} // namespace tq
