// The form that every API's request is brought into, and its answer as events: APIs differ only in how they are parsed and
// written.
#pragma once
#include "model/text/tool_calls.h"
#include "tools/server/api_error.h"
#include "tools/server/service.h"
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tq::server {

using Json = nlohmann::ordered_json;

constexpr float never_bias = -1e9f; // on a logit: the token is not sampled

// The sampling of tokens, and the end of an answer.
struct Sampling {
    SamplerOptions options;  // begins as ServiceOptions::sampling
    bool seed_given = false; // false: a random one for each request
    std::optional<uint32_t> max_tokens;
    std::vector<std::string> stop;                      // none is empty; in the content and the calls, not in the thinking
    std::vector<std::pair<uint32_t, float>> logit_bias; // ids below the vocabulary's size
    uint32_t choices = 1;                               // n; choice i has seed + i
    bool logprobs = false;
    uint32_t top_logprobs = 0;
    bool ignore_end = false;
};

enum class ToolChoice { automatic, none, required, named };

// The form that the content of the answer must have.
struct Format {
    enum class Kind { text, json_object, json_schema, gbnf } kind = Kind::text;
    Json schema;         // of json_schema
    std::string gbnf;    // of gbnf
    bool strict = false; // the schema must be followed to the letter: what a grammar cannot say of it is an error
};

// A conversation to go on with.
struct ChatTask {
    std::vector<uint32_t> context;      // token ids of a conversation that the messages follow
    Json messages = Json::array();      // as render_chat() takes them: OpenAI's list
    Json tools;                         // OpenAI's list of functions, or null
    std::set<std::string> strict_tools; // names of tools whose schemas must be followed to the letter
    std::set<std::string> custom_tools; // names of tools that take a text: offered as functions with one text, "input"
    ToolChoice tool_choice = ToolChoice::automatic;
    std::string tool_name; // of named
    bool parallel_tool_calls = true;
    Format format;
    std::optional<bool> think;               // enable_thinking; empty: the server's default
    std::optional<ReasoningEffort> effort;   // empty: the template's default
    std::optional<bool> preserve_thinking;   // empty: the template's default
    std::optional<uint32_t> thinking_budget; // tokens; empty: the server's default
    Sampling sampling;
    std::set<std::string> ignored; // what the request has that is not used: for the log
};

// Texts to go on with: token ids. Prompts are answered in their order, as many at the same time as there are slots.
struct TextTask {
    std::vector<std::vector<uint32_t>> prompts;
    Format format;
    Sampling sampling;
    bool prompt_logprobs = false;  // the prompt's tokens get logprobs, too: Generation::prompt_tokens()
    std::set<std::string> ignored; // what the request has that is not used: for the log
};

// A token whose text, or the last part of it, is in an event.
struct TokenText {
    std::string bytes; // perhaps a part of a character
    float logprob;
    std::vector<std::pair<std::string, float>> top; // bytes and logprobs, descending
};

enum class FinishReason { stop, length, tool_calls };

struct Event {
    uint32_t choice = 0;           // of a TextTask: the prompt's number times Sampling::choices, and the choice's number
    AnswerPart part;               // of a TextTask all is content
    std::vector<TokenText> tokens; // with logprobs: tokens that became certain since the last event of the choice
    std::optional<FinishReason> finish = {}; // the choice is at its end; the part is empty
};

struct Usage {
    uint32_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0,
             reasoning_tokens = 0; // of all choices; each prompt once
};

// The answers to one task. next() waits for them. If it is destroyed early, it stops those that still run.
class Generation {
  public:
    // Throws ApiError: 400 for a request that cannot be answered (if a prompt exceeds the context: code context_length_exceeded
    // and both numbers), 429 with Retry-After for a full queue, 503 while draining.
    Generation(Service& service, const ChatTask& task, const std::string& tenant);
    Generation(Service& service, const TextTask& task, const std::string& tenant);
    ~Generation();
    Generation(const Generation&) = delete;
    Generation& operator=(const Generation&) = delete;

    // Returns what is new, in order, at most after `timeout`; nothing new: empty. Throws ApiError if the device or memory
    // failed (500).
    std::vector<Event> next(std::chrono::milliseconds timeout);
    void stop();       // gives up what is running
    bool done() const; // all choices are at their end, and all events were returned

    FinishReason finish(uint32_t choice) const;                           // when done
    const std::optional<std::string>& stop_string(uint32_t choice) const; // the one that ended the answer
    // From the second token on; all there when the choice has an event, or is done.
    const std::vector<TokenText>& prompt_tokens(uint32_t choice) const;
    Usage usage() const;
    serving::RequestTimings timings() const; // sums of all choices; each prompt once
    // Chats only: the ids that the next prompt begins with if the client sends the answer back. Empty for a text.
    std::vector<uint32_t> answered_ids() const;
    uint32_t choices() const;

    // Chats only: renders the answer as the next prompt will have it, and runs that rendering in the background if it differs
    // from what is in the cache (ServiceOptions::run_ahead). Called when done.
    void run_ahead();

  private:
    struct Choice;
    class Impl;
    std::unique_ptr<Impl> impl_;
};

// The rendered prompt, as a Generation would run it. Throws ApiError (400) if it cannot be rendered; its length is not
// checked.
std::vector<uint32_t> prompt_ids(Service& service, const ChatTask& task);

// Calls `on_events` with what is new until the generation is done, and `on_idle` at least every ping_interval without news.
// Returns false, and stops the generation, when the client is gone: either function returns false, or request.disconnected() says
// so, which is asked several times a second.
bool run_generation(Service& service, Generation& generation, const HttpRequest& request,
                    const std::function<bool(const std::vector<Event>&)>& on_events, const std::function<bool()>& on_idle);

} // namespace tq::server
