// The content of a model file, checked and ready for a forward pass.
#pragma once
#include "model/config.h"
#include "model/text/chat_template.h"
#include "model/text/tokenizer.h"
#include "model/weights/weights.h"
#include <filesystem>
#include <string>

namespace tq {

struct SamplerOptions;

struct Model {
    ModelFile file; // the weights and the tokenizer point into it
    Config config;
    Weights weights;
    Tokenizer tokenizer;
    ChatVariant chat;
    std::string name;                    // the file's general.name, else its file name; printable
    std::vector<std::string> notes = {}; // on what was ignored in the file, a sentence each
    std::string system = {};             // the system prompt of conversations that have none: the template's own
};

// Whether a model's head for multi-token prediction is loaded, too. if_there: if it has one that can be used.
enum class MtpHead { left_out, requested, if_there };

// Parts of a model to load.
struct ModelOptions {
    MtpHead mtp = MtpHead::left_out;
};

// Throws an Error when the file is not a model we can run. The values of the weights are not checked here: see load.h. `path`
// leads to a model in any supported format (formats/open.h).
Model load_model(const std::filesystem::path& path, const ModelOptions& options = {});

// Returns the file's own recommendations (its keys general.sampling.*), and for the rest the numbers of the cards of Qwen3,
// Qwen3.5 or Qwen3-Coder-Next, by the file's chat template.
SamplerOptions recommended_sampling(const ModelFile& file, bool thinking);

} // namespace tq
