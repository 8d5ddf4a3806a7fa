#pragma once
#include "model/text/tokenizer.h"
#include <string_view>

namespace tq {

// Throws Error, naming the first token that differs, if a draft model's tokens are not those of the model that it drafts for.
// Unused entries are ignored, so the number of padding entries may differ.
void require_same_vocabulary(const Tokenizer& draft, std::string_view draft_name, const Tokenizer& model, std::string_view name);

} // namespace tq
