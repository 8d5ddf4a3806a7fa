#include "tools/server/service.h"
#include "model/grammar/gbnf.h"
#include <algorithm>

namespace tq::server {

constexpr size_t kept_grammars = 32;

std::shared_ptr<const grammar::TokenTrie> Service::token_trie() {
    const std::scoped_lock lock(mutex_);
    if (!trie_) trie_ = std::make_shared<grammar::TokenTrie>(model.tokenizer);
    return trie_;
}

std::shared_ptr<const grammar::Grammar> Service::compile_grammar(const std::string& gbnf) {
    const auto find = [&] {
        const auto found =
            std::ranges::find(grammars_, gbnf, [](const auto& entry) -> const std::string& { return entry.first; });
        if (found != grammars_.end()) grammars_.splice(grammars_.begin(), grammars_, found);
        return found != grammars_.end();
    };
    {
        const std::scoped_lock lock(mutex_);
        if (find()) return grammars_.front().second;
    }
    auto compiled = std::make_shared<const grammar::Grammar>(grammar::parse_gbnf(gbnf)); // others need not wait meanwhile
    const std::scoped_lock lock(mutex_);
    if (!find()) grammars_.emplace_front(gbnf, std::move(compiled));
    if (grammars_.size() > kept_grammars) grammars_.pop_back();
    return grammars_.front().second;
}

} // namespace tq::server
