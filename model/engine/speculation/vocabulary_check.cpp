#include "model/engine/speculation/vocabulary_check.h"
#include "base/error.h"
#include "base/printable.h"
#include <algorithm>
#include <optional>

namespace tq {
namespace {

std::optional<std::string_view> used(const Tokenizer& tokenizer, uint32_t id) {
    if (id >= tokenizer.size() || tokenizer.is_unused(id)) return std::nullopt;
    return tokenizer.bytes(id);
}

std::string quoted(std::optional<std::string_view> token) {
    return token ? fmt::format("\"{}\"", printable(std::string(*token))) : "unused";
}

} // namespace

void require_same_vocabulary(const Tokenizer& draft, std::string_view draft_name, const Tokenizer& model, std::string_view name) {
    for (uint32_t id = 0; id < std::max(draft.size(), model.size()); id++) {
        const auto a = used(draft, id), b = used(model, id);
        if (a == b) continue;
        fail(
            "{} cannot draft for {}, because their vocabularies differ: token {} is {} in the first and {} in the second. Name a "
            "draft model of the same family with -md, or use --spec ngram, which needs none",
            draft_name, name, id, quoted(a), quoted(b));
    }
}

} // namespace tq
