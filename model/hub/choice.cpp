// Which files of a repository are the model, by their names alone, since nothing is downloaded yet. The order of preference is
// llama.cpp's, so one command gets one file from both programs: the file that was named; the first whose name has the quant as a
// word; without a quant Q4_K_M, then Q8_0, then the first model.
// Names come from whoever made the repository. The parts of a split file are found by the numbers in their names, all must be
// there, and a name that leads out of the directory is an error for the whole choice.
// Beside a model there may be GGUF files that are none: projectors for images, importance matrices, draft heads. They are known
// by words in their names (is_model()).
// A repository without GGUF files is taken as Hugging Face has it: safetensors with configuration and tokenizer.
#include "model/hub/choice.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "model/hub/names.h"
#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <set>

namespace tq {
namespace {

constexpr uint32_t max_parts = 10000;

struct Part {
    std::string stem, extension; // NAME-00001-of-00003.gguf: NAME, .gguf
    uint32_t number = 1, count = 1;
};

// A part's number has five digits, as llama.cpp's gguf-split and Hugging Face write it: other endings in digits are part of the
// name.
bool is_number(std::string_view digits, uint32_t& value) { return digits.size() == 5 && parse_number(digits, value); }

Part split_name(const std::string& path) {
    constexpr std::string_view sample = "-00001-of-00003";
    const size_t dot = path.rfind('.');
    Part part{path.substr(0, dot), dot == std::string::npos ? "" : path.substr(dot)};
    const size_t begin = part.stem.size() < sample.size() ? 0 : part.stem.size() - sample.size();
    const std::string_view tail = std::string_view(part.stem).substr(begin);
    uint32_t number = 0, count = 0;
    if (tail.size() != sample.size() || tail[0] != '-' || tail.substr(6, 4) != "-of-" || !is_number(tail.substr(1, 5), number) ||
        !is_number(tail.substr(10), count))
        return part;
    part.stem.resize(begin);
    part.number = number;
    part.count = count;
    return part;
}

bool is_model(const HubFile& file) {
    if (!file.path.ends_with(".gguf")) return false;
    const std::string name = lowercase(file.path.substr(file.path.rfind('/') + 1));
    constexpr std::array others{"mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-"}; // companion files of a model
    return std::none_of(others.begin(), others.end(), [&](const char* other) { return name.find(other) != std::string::npos; }) &&
           split_name(file.path).number == 1;
}

// Whether the quant is a word of the name: after the beginning, -, ., _ or /, and before - or .
bool has_quant(const HubFile& file, const std::string& quant) {
    const std::string path = lowercase(file.path), word = lowercase(quant);
    for (size_t at = path.find(word); at != std::string::npos; at = path.find(word, at + 1)) {
        const size_t end = at + word.size();
        const bool begins = at == 0 || std::string_view("-._/").find(path[at - 1]) != std::string_view::npos;
        if (begins && end < path.size() && (path[end] == '-' || path[end] == '.')) return true;
    }
    return false;
}

// Returns "Q4_K_M, Q8_0".
std::string list_quants(const std::vector<HubFile>& files) {
    std::set<std::string> quants;
    for (const HubFile& file : files)
        if (is_model(file)) quants.insert(printable(quant_of(file.path), 24));
    return fmt::format("{}", fmt::join(quants, ", "));
}

void require_safe(const HubFile& file, const std::string& repository) {
    if (!is_safe_file_name(file.path))
        fail("{} has a file with the unsafe name '{}', which could be outside its directory: it is not downloaded", repository,
             printable(file.path));
}

// Returns all parts of the file whose first part is `first`, in order.
std::vector<HubFile> all_parts(const std::vector<HubFile>& files, const HubFile& first, const std::string& repository) {
    const Part part = split_name(first.path);
    if (part.count == 1) return {first};
    if (part.count == 0 || part.count > max_parts || part.number != 1)
        fail("{} in {} is part {} of {}: name the first part", printable(first.path), repository, part.number, part.count);
    std::vector<HubFile> parts;
    for (uint32_t number = 1; number <= part.count; number++) {
        const std::string path = fmt::format("{}-{:05}-of-{:05}{}", part.stem, number, part.count, part.extension);
        const auto found = std::find_if(files.begin(), files.end(), [&](const HubFile& file) { return file.path == path; });
        if (found == files.end()) fail("{} lacks {}, part {} of {}", repository, printable(path), number, part.count);
        parts.push_back(*found);
    }
    return parts;
}

const HubFile* find_model(const std::vector<HubFile>& files, const HubTarget& target) {
    const auto first = [&](auto matches) {
        const auto found = std::find_if(files.begin(), files.end(), matches);
        return found == files.end() ? nullptr : &*found;
    };
    if (!target.file.empty()) return first([&](const HubFile& file) { return lowercase(file.path) == lowercase(target.file); });
    const auto of_quant = [&](const std::string& quant) {
        return first([&](const HubFile& file) { return is_model(file) && has_quant(file, quant); });
    };
    if (!target.quant.empty()) return of_quant(target.quant);
    if (const HubFile* usual = of_quant("Q4_K_M")) return usual;
    if (const HubFile* usual = of_quant("Q8_0")) return usual;
    return first(is_model);
}

bool belongs_to_safetensors(const HubFile& file) {
    constexpr std::array names{"config.json",
                               "generation_config.json",
                               "tokenizer.json",
                               "vocab.json",
                               "merges.txt",
                               "tokenizer_config.json",
                               "added_tokens.json",
                               "special_tokens_map.json",
                               "chat_template.jinja",
                               "chat_template.json",
                               "model.safetensors.index.json"};
    return std::find(names.begin(), names.end(), file.path) != names.end();
}

HubChoice choose_safetensors(const std::vector<HubFile>& files, const HubTarget& target) {
    HubChoice choice;
    bool has_config = false;
    std::set<std::string> weights;
    for (const HubFile& file : files) {
        const bool is_weights =
            file.path.starts_with("model") && file.path.ends_with(".safetensors") && file.path.find('/') == std::string::npos;
        if (belongs_to_safetensors(file)) choice.files.push_back(file);
        has_config |= file.path == "config.json";
        // Adds all parts of each split file that begins here; a set without its first part is detected in the same way.
        if (is_weights && weights.insert(split_name(file.path).stem).second) {
            HubFile first = file;
            const Part part = split_name(file.path);
            if (part.count > 1) first.path = fmt::format("{}-00001-of-{:05}{}", part.stem, part.count, part.extension);
            for (HubFile& one : all_parts(files, first, target.repository)) choice.files.push_back(std::move(one));
        }
    }
    if (weights.empty() || !has_config)
        fail("{} has neither GGUF files nor safetensors with a config.json, so tq-run cannot run it", target.repository);
    return choice;
}

} // namespace

std::string quant_of(const std::string& path) {
    const std::string stem = split_name(path).stem;
    const size_t last = stem.find_last_of("-./") + 1;
    return stem.substr(stem.substr(0, last).ends_with("-UD-") ? last - 3 : last);
}

HubChoice choose_files(const std::vector<HubFile>& files, const HubTarget& target) {
    if (!target.file.empty() && !lowercase(target.file).ends_with(".gguf"))
        fail("{} is not a GGUF file: name one with --hf-file, or leave that out to have one chosen", printable(target.file));
    const bool has_models = std::any_of(files.begin(), files.end(), is_model);
    const HubFile* model = find_model(files, target);
    HubChoice choice;
    if (model) {
        choice = {all_parts(files, *model, target.repository), model->path};
    } else if (!target.file.empty()) {
        fail("{} has no file {}{}", target.repository, printable(target.file),
             has_models ? "; its quants: " + list_quants(files) : std::string());
    } else if (has_models) {
        fail("{} has no GGUF file of {}; its quants: {}", target.repository, printable(target.quant), list_quants(files));
    } else if (!target.quant.empty()) {
        fail("{} has no GGUF files, so no quant {}: leave :{} out to download its safetensors", target.repository,
             printable(target.quant), printable(target.quant));
    } else {
        choice = choose_safetensors(files, target);
    }
    for (const HubFile& file : choice.files) require_safe(file, target.repository);
    return choice;
}

std::vector<HubChoice> all_models(const std::vector<HubFile>& files) {
    std::vector<HubChoice> models;
    const auto add_whole = [&](auto choose) {
        try {
            models.push_back(choose());
        } catch (const Error&) { // a part is missing
        }
    };
    for (const HubFile& file : files)
        if (is_model(file)) add_whole([&] { return HubChoice{all_parts(files, file, ""), file.path}; });
    if (models.empty()) add_whole([&] { return choose_safetensors(files, {}); });
    return models;
}

} // namespace tq
