#include "model/model.h"
#include "base/printable.h"

namespace tq {

Model load_model(const std::filesystem::path& path) {
    Gguf file = Gguf::open(path);
    const Config config = read_config(file);
    Weights weights = read_weights(file, config);
    Tokenizer tokenizer(file);
    const ChatVariant chat = chat_variant(file);
    std::string name = printable(file.text("general.name", path.stem().string()));
    return {std::move(file), config, std::move(weights), std::move(tokenizer), chat, std::move(name)};
}

} // namespace tq
