#include "model/files/formats/architecture.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include <algorithm>

namespace tq {

std::string Architecture::key(std::string_view rest) const { return fmt::format("{}.{}", name, rest); }

static std::string names_of(std::string_view Architecture::*kind) {
    std::string names;
    for (const Architecture& a : architectures) names += fmt::format("{}{}", names.empty() ? "" : ", ", a.*kind);
    return names;
}

std::string architecture_names() { return names_of(&Architecture::name); }
std::string model_types() { return names_of(&Architecture::model_type); }

const Architecture& architecture_of(const ModelFile& file) {
    const std::string_view name = file.text("general.architecture");
    const auto* found = std::ranges::find(architectures, name, &Architecture::name);
    if (found == std::end(architectures))
        fail("{}: its architecture is '{}', and tq-run runs {} only: choose such a model, as with -hf Qwen/Qwen3-4B-GGUF",
             utf8_text(file.path()), printable(name), architecture_names());
    return *found;
}

const Architecture* find_model_type(std::string_view model_type) {
    const auto* found = std::ranges::find(architectures, model_type, &Architecture::model_type);
    return found == std::end(architectures) ? nullptr : found;
}

} // namespace tq
