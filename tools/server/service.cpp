#include "tools/server/service.h"
#include "model/text/grammar/gbnf.h"
#include "model/text/grammar/interrupt.h"
#include <algorithm>
#include <fmt/format.h>

namespace tq::server {

constexpr size_t kept_grammars = 32, max_said = 100; // clients choose the names

static size_t longest_token_of(const Tokenizer& tokenizer) {
    size_t longest = 1;
    for (uint32_t id = 0; id < tokenizer.size(); ++id) longest = std::max(longest, tokenizer.bytes(id).size());
    return longest;
}

Service::Service(const Model& model, serving::Scheduler& scheduler, ServiceOptions options)
    : model(model), scheduler(scheduler), options(std::move(options)), longest_token(longest_token_of(model.tokenizer)) {}

void Service::say_ignored(const std::set<std::string>& things) {
    for (const std::string& thing : things) {
        const std::scoped_lock lock(mutex_);
        if (!options.log || ignored_.size() == max_said || !ignored_.insert(thing).second) continue;
        options.log(fmt::format("tq-run: requests have {}, which this server does not use (said once)", thing));
    }
}

Service::EncodingTurn Service::encoding_turn(size_t bytes) const {
    constexpr std::chrono::milliseconds look_at_client{50};
    EncodingTurn turn(encoding_, std::defer_lock);
    while (bytes >= options.limits.encoded_in_turn && !turn.try_lock_for(look_at_client)) grammar::look_at_interrupt();
    return turn;
}

std::shared_ptr<const grammar::TokenTrie> Service::token_trie() {
    const std::scoped_lock lock(mutex_);
    if (!trie_) trie_ = std::make_shared<grammar::TokenTrie>(model.tokenizer);
    return trie_;
}

// A grammar may take long to compile, so no lock is held meanwhile. Two requests may then compile the same text; the first to be
// done is kept, and the other gets that one, too.
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
