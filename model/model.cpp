// Opens a model: its file, configuration, weights, tokenizer, template and name. Weights are views into mapped files, so this
// takes little time for any size; load.cpp reads them. Parts of a file that this program does not use are told as a note.
// Sampling is recommended by the file if it says anything (general.sampling.*), and otherwise as the model's card does.
#include "model/model.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/engine/sampling/sampler.h"
#include "model/files/formats/open.h"
#include <algorithm>
#include <fmt/format.h>
#include <optional>

namespace tq {
namespace {

// Recommended settings that llama.cpp follows and this program does not, by their neutral values.
std::vector<std::string> sampling_notes(const ModelFile& file) {
    std::vector<std::string> notes;
    for (const char* key : {"mirostat", "xtc_probability"}) {
        const std::string full = fmt::format("general.sampling.{}", key);
        if (file.real(full, 0) != 0) notes.push_back(fmt::format("{} is ignored: tq-run has no such sampling", file.label(full)));
    }
    if (const char* key = "general.sampling.sequence"; file.text(key, "") != "")
        notes.push_back(fmt::format("{} is ignored: tq-run applies penalties, temperature, top-k, top-p and min-p in this order",
                                    file.label(key)));
    return notes;
}

// Throws an Error that names the key for a number that no sampler takes.
float recommended_real(const ModelFile& file, const char* key, float fallback, double min, double max) {
    const double value = file.real(key, double(fallback));
    if (!(value >= min && value <= max)) // also when it is NaN
        fail("{} is {}: it must lie between {} and {}", file.label(key), value, min, max);
    return float(value);
}

// Returns a number of tokens; a negative one means all.
uint32_t recommended_count(const ModelFile& file, const char* key, uint32_t fallback, uint32_t all) {
    const bool is_all = file.real(key, fallback) < 0;
    return is_all ? all : uint32_t(std::min<uint64_t>(file.integer(key, fallback), UINT32_MAX));
}

// The numbers of the model cards.
SamplerOptions card_sampling(ChatVariant variant, bool thinking) {
    SamplerOptions options = qwen_sampling(thinking);
    if (is_qwen35(variant) && thinking) options.temperature = 1;
    if (variant == ChatVariant::coder_next) options.temperature = 1, options.top_p = 0.95f, options.top_k = 40;
    return options;
}

std::optional<std::string> template_note(const ModelFile& file, const Tokenizer& tokenizer) {
    const std::string_view text = file.text("tokenizer.chat_template", "");
    for (const char* known : {"<|im_start|>", "<|start_header_id|>"})
        if (text.empty() || text.find(known) != text.npos) return std::nullopt;
    return fmt::format("{} has a chat template of another kind than ChatML and Llama 3's: chat and serve {}",
                       utf8_text(file.path()),
                       tokenizer.special("<|im_start|>") ? "write ChatML" : "refuse it, as its vocabulary has no <|im_start|>");
}

std::pair<Config, Weights> read_model(const ModelFile& file, MtpHead mtp) {
    const auto read = [&](bool with_head) {
        const Config config = read_config(file, with_head);
        return std::pair(config, read_weights(file, config));
    };
    if (mtp != MtpHead::if_there) return read(mtp == MtpHead::requested);
    auto model = read(false);
    if (model.first.nextn_predict_layers == 0) return model;
    try {
        return read(true);
    } catch (const Error&) { // --spec mtp says what is wrong with it
        return model;
    }
}

} // namespace

Model load_model(const std::filesystem::path& path, const ModelOptions& options) {
    ModelFile file = open_model_file(path);
    auto [config, weights] = read_model(file, options.mtp);
    Tokenizer tokenizer = Tokenizer::of_any_kind(file);
    const ChatVariant chat = chat_variant(file);
    std::string name = printable(file.text("general.name", utf8_text(path.stem())));
    std::vector<std::string> notes = file.notes();
    notes.insert(notes.end(), tokenizer.notes().begin(), tokenizer.notes().end());
    for (std::string& note : sampling_notes(file)) notes.push_back(std::move(note));
    for (const auto& note : {template_note(file, tokenizer), system_prompt_note(file)})
        if (note) notes.push_back(*note);
    check_mapped_files();
    std::string system = default_system_prompt(file);
    return {.file = std::move(file),
            .config = config,
            .weights = std::move(weights),
            .tokenizer = std::move(tokenizer),
            .chat = chat,
            .name = std::move(name),
            .notes = std::move(notes),
            .system = std::move(system)};
}

SamplerOptions recommended_sampling(const ModelFile& file, bool thinking) {
    SamplerOptions options = card_sampling(chat_variant(file), thinking);
    options.temperature = recommended_real(file, "general.sampling.temp", options.temperature, 0, 100);
    options.top_k = recommended_count(file, "general.sampling.top_k", options.top_k, 0);
    options.top_p = recommended_real(file, "general.sampling.top_p", options.top_p, 0, 1);
    options.repeat_penalty = recommended_real(file, "general.sampling.penalty_repeat", options.repeat_penalty, 0.01, 100);
    options.repeat_last_n = recommended_count(file, "general.sampling.penalty_last_n", options.repeat_last_n, UINT32_MAX);
    options.presence_penalty = recommended_real(file, "general.sampling.penalty_present", options.presence_penalty, -100, 100);
    options.frequency_penalty = recommended_real(file, "general.sampling.penalty_freq", options.frequency_penalty, -100, 100);
    options.min_p = recommended_real(file, "general.sampling.min_p", options.min_p, 0, 1);
    return options;
}

} // namespace tq
