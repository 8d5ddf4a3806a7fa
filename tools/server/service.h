// The model that the handlers serve, and the scheduler that answers for it.
#pragma once
#include "model/engine/serving/scheduler.h"
#include "model/model.h"
#include "model/prefix/owner.h"
#include "model/prefix/page_signature.h"
#include "model/text/grammar/grammar.h"
#include "model/text/grammar/token_trie.h"
#include "tools/server/item_memory.h"
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

namespace tq::server {

struct Limits {
    uint64_t body_bytes = uint64_t(32) << 20;
    uint32_t json_depth = 64;
    uint32_t messages = 65536, tools = 256, stop_strings = 16, choices = 16, top_logprobs = 20, logit_biases = 1024;
    uint32_t batch_inputs = 2048;                   // of embeddings and rerank
    uint64_t counted_bytes = uint64_t(4) << 20;     // of a text that is only cut into tokens, which may exceed the context
    uint64_t encoded_in_turn = uint64_t(256) << 10; // bytes of a text from which on texts are encoded one at a time
};

// Options of POST /v1/prefill.
struct PrefillOptions {
    std::function<OwnerTexts()> owner; // what pages for other machines belong to; called by many threads; empty: there are none
    PageSigner sign;                   // of these pages; empty: they are not signed
};

struct ServiceOptions {
    std::string alias;       // the model's name in the API; empty: its own
    SamplerOptions sampling; // if a request says nothing
    uint32_t max_tokens = UINT32_MAX;
    std::optional<std::string> system;        // prompt of conversations that have none; empty: the template's own
    std::optional<bool> think;                // if a request says nothing; empty: as the chat template does
    std::optional<ReasoningEffort> effort;    // if a request says nothing; empty: as the chat template does
    std::optional<uint32_t> reasoning_budget; // tokens of thinking, if a request says nothing; empty: no limit
    bool embeddings = false;                  // the model makes embeddings
    PrefillOptions prefill;
    bool run_ahead = true; // after an answer, its rendering in the next prompt is run while nothing else is to do
    Limits limits;
    std::string device_name; // for people
    std::string build;       // for people
    uint64_t started_unix_s = 0;
    std::chrono::milliseconds ping_interval{10'000};  // of streams without news
    std::function<void(const std::string& line)> log; // called by many threads; empty: there is none
};

class Service {
  public:
    Service(const Model& model, serving::Scheduler& scheduler, ServiceOptions options);

    const Model& model;
    serving::Scheduler& scheduler;
    const ServiceOptions options;
    const size_t longest_token; // bytes; at least 1
    ItemMemory items;

    const std::string& model_name() const { return options.alias.empty() ? model.name : options.alias; }
    std::shared_ptr<const grammar::TokenTrie> token_trie(); // made when it is first needed
    // Keeps the last few, since agents send the same tools with every request. Throws Error if the text is no grammar.
    std::shared_ptr<const grammar::Grammar> compile_grammar(const std::string& gbnf);

    // Says once for each thing that requests have it, and that it is not used.
    void say_ignored(const std::set<std::string>& things);

    // Waits for the turn to encode a text of so many bytes: a long text takes some 30 times its bytes meanwhile, so
    // long texts are encoded one at a time. Throws grammar::Interrupted if nobody waits for the answer any more.
    using EncodingTurn = std::unique_lock<std::timed_mutex>;
    [[nodiscard]] EncodingTurn encoding_turn(size_t bytes) const;

  private:
    mutable std::timed_mutex encoding_;
    std::mutex mutex_;
    std::set<std::string> ignored_; // that were said
    std::shared_ptr<const grammar::TokenTrie> trie_;
    std::list<std::pair<std::string, std::shared_ptr<const grammar::Grammar>>> grammars_; // the last used first
};

} // namespace tq::server
