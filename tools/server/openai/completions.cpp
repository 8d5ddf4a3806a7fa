// POST /v1/completions: texts, or token ids, to go on with.
// Several prompts, with `n` answers each, are one generation: choice i answers prompt i / n, and the events of a prompt's choices
// come mixed. A prompt that is a text may name special tokens: whoever gives a text without a template writes its markup.
#include "base/printable.h"
#include "model/text/unicode.h"
#include "tools/server/answer_writer.h"
#include "tools/server/chat_parts.h"
#include "tools/server/handlers.h"
#include "tools/server/ignored_fields.h"
#include "tools/server/json_fields.h"
#include "tools/server/openai/reply.h"
#include "tools/server/prompt.h"
#include <utility>

namespace tq::server {
namespace {

constexpr uint32_t default_max_tokens = 16; // OpenAI's

struct CompletionTask {
    TextTask text;
    bool echo = false, streams = false, usage = false;
};

// One prompt, or a list of several.
std::vector<std::vector<uint32_t>> read_prompts(const Service& service, const Json& body) {
    const Json* given = member(body, "prompt");
    if (!given) bad_request("prompt", "\"prompt\" is missing: give a text, a list of token ids, or a list of several");
    const bool several = !is_one_prompt(*given);
    const size_t max = service.options.limits.batch_inputs;
    if (several && given->size() > max)
        bad_request("prompt", "\"prompt\" has {} prompts, of which there may be {}", given->size(), max);
    std::vector<std::vector<uint32_t>> prompts;
    for (size_t i = 0; i < (several ? given->size() : 1); ++i) {
        const std::string path = several ? fmt::format("prompt[{}]", i) : "prompt";
        prompts.push_back(prompt_ids(service, several ? (*given)[i] : *given, path, true));
        if (prompts.back().empty()) bad_request(path, "\"{}\" is empty, so there is nothing to continue", path);
        require_fits(service, prompts.back().size(), "prompt");
    }
    return prompts;
}

// Without "max_tokens" the answer has 16 tokens, as OpenAI's API says; -1 means no limit, as llama.cpp has it. "best_of" is taken
// only if it asks for nothing: all answers are returned, and none is chosen among more. With "suffix" the prompt is the text
// before a gap, and becomes a prompt of the model's own for filling it in.
CompletionTask read_completion_task(const Service& service, const Json& body) {
    const Limits& limits = service.options.limits;
    CompletionTask task;
    Sampling& sampling = task.text.sampling = read_sampling(service, body);
    const bool unlimited = member(body, "max_tokens") || member(body, "max_completion_tokens") || member(body, "n_predict"); // -1
    if (!sampling.max_tokens && !unlimited) sampling.max_tokens = default_max_tokens;
    if (const auto top = integer_field(body, "logprobs", 0, limits.top_logprobs)) {
        sampling.logprobs = true;
        sampling.top_logprobs = uint32_t(*top);
    }
    task.text.format = read_formats(body);
    task.echo = bool_field(body, "echo").value_or(false);
    task.text.prompt_logprobs = task.echo && sampling.logprobs;
    const auto best_of = integer_field(body, "best_of", 1, INT32_MAX);
    if (best_of && *best_of != sampling.choices)
        bad_request("best_of", "\"best_of\" is {}, but must be as \"n\", {}", *best_of, sampling.choices);
    task.streams = bool_field(body, "stream").value_or(false);
    task.usage = wants_usage(body);
    const auto suffix = text_field(body, "suffix");
    if (!suffix || suffix->empty()) {
        task.text.prompts = read_prompts(service, body);
        return task;
    }
    const Json* prefix = member(body, "prompt");
    if (task.echo) bad_request("echo", "\"echo\" has no use with \"suffix\": leave one of them out");
    if (prefix && !prefix->is_string()) bad_request("prompt", "\"prompt\" must be one text where there is a \"suffix\"");
    task.text.prompts = {infill_prompt(service, prefix ? prefix->get<std::string>() : "", *suffix, "", {}, "suffix")};
    return task;
}

// The name of a token, by which clients tell tokens apart: its text, or for a part of a character its bytes, as OpenAI writes
// them: "bytes:\\xe6\\x97".
std::string token_name(const std::string& bytes) {
    if (!find_invalid_utf8(bytes)) return bytes;
    std::string name = "bytes:";
    for (const char c : bytes)
        name += c >= 0x20 && c < 0x7F && c != '\\' ? std::string(1, c) : fmt::format("\\x{:02x}", uint8_t(c));
    return name;
}

size_t characters(std::string_view text) {
    return size_t(std::ranges::count_if(text, [](char c) { return (uint8_t(c) & 0xC0) != 0x80; }));
}

// The text of a choice; only its last part may be kept.
// The log probabilities of a text completion are four lists of the same length, one entry for each token. Offsets count
// characters (code points) from the beginning of the choice, so a stream has to keep how many it has sent.
struct TextChoice {
    std::string text;
    bool begun = false;
    size_t offset = 0; // characters that were sent before
    Json logprobs = {{"tokens", Json::array()},
                     {"token_logprobs", Json::array()},
                     {"top_logprobs", Json::array()},
                     {"text_offset", Json::array()}};

    void add(const Event& event) {
        size_t at = offset + characters(text);
        text += event.part.text;
        for (const TokenText& token : event.tokens) add(token, at);
    }

    // The first token has no logprob, since nothing is known before it.
    void add_prompt(const std::string& echoed, const std::string& first, const std::vector<TokenText>& tokens) {
        text = echoed;
        size_t at = 0;
        add({first, 0, {}}, at);
        logprobs["token_logprobs"].back() = logprobs["top_logprobs"].back() = nullptr;
        for (const TokenText& token : tokens) add(token, at);
    }

    void add(const TokenText& token, size_t& at) {
        logprobs["tokens"].push_back(token_name(token.bytes));
        logprobs["token_logprobs"].push_back(token.logprob);
        Json top = Json::object();
        for (const auto& [bytes, logprob] : token.top) top[token_name(bytes)] = logprob;
        logprobs["top_logprobs"].push_back(std::move(top));
        logprobs["text_offset"].push_back(at);
        at += characters(token.bytes);
    }

    Json json(size_t index, bool with_logprobs, const char* finish) const {
        return {{"text", text},
                {"index", index},
                {"logprobs", with_logprobs ? logprobs : Json()},
                {"finish_reason", finish ? Json(finish) : Json()}};
    }
};

class TextWriter final : public AnswerWriter {
  public:
    TextWriter(const Service& service, const CompletionTask& task, std::shared_ptr<const Generation> generation)
        : service_(service), head_(completion_head(service, random_id("cmpl-"), "text_completion")), task_(task),
          generation_(std::move(generation)), choices_(generation_->choices()), list_(choices_.size()) {}

    std::string begin(const Usage&) override { return {}; }
    std::string write(const std::vector<Event>& events) override;
    std::string ping() override { return event(TextChoice().json(0, false, nullptr)); }
    std::string end(const Outcome& outcome) override;
    std::string fail(const ApiError& error) override { return error_event(error); }
    Json whole() const override;

  private:
    void begin_choice(uint32_t choice);
    std::string event(Json choice) const;

    const Service& service_;
    const Json head_;
    const CompletionTask task_;
    const std::shared_ptr<const Generation> generation_;
    std::vector<TextChoice> choices_;
    std::vector<Json> list_; // of an answer that is sent as one: the choices that are at their end
    std::string ends_;       // of a stream: their last events, sent with the end, behind which clients may close
    Outcome outcome_;
};

// Begins with the prompt if that is requested ("echo").
void TextWriter::begin_choice(uint32_t choice) {
    TextChoice& text = choices_[choice];
    if (std::exchange(text.begun, true) || !task_.echo) return;
    const Tokenizer& tokenizer = service_.model.tokenizer;
    const std::vector<uint32_t>& prompt = task_.text.prompts[choice / task_.text.sampling.choices];
    Utf8Stream utf8;
    text.text = utf8.push(tokenizer.decode(prompt, false));
    text.text += utf8.flush();
    if (task_.text.prompt_logprobs)
        text.add_prompt(text.text, std::string(tokenizer.bytes(prompt.front())), generation_->prompt_tokens(choice));
}

std::string TextWriter::event(Json choice) const {
    Json json = head_;
    json["choices"] = Json::array({std::move(choice)});
    return data_event(json);
}

// An answer that is not streamed keeps its choices' texts until their ends. In a stream each event is sent and forgotten but for
// the number of its characters, which later offsets count from.
std::string TextWriter::write(const std::vector<Event>& events) {
    std::string out;
    for (const Event& one : events) {
        TextChoice& text = choices_[one.choice];
        begin_choice(one.choice);
        if (!one.finish) text.add(one);
        if (!one.finish && !task_.streams) continue;
        Json json = text.json(one.choice, task_.text.sampling.logprobs, one.finish ? finish_name(*one.finish) : nullptr);
        const size_t sent = text.offset + characters(text.text);
        text = {.begun = true, .offset = sent};
        if (task_.streams)
            (one.finish ? ends_ : out) += event(std::move(json));
        else
            list_[one.choice] = std::move(json);
    }
    return out;
}

std::string TextWriter::end(const Outcome& outcome) {
    outcome_ = outcome;
    return task_.streams ? ends_ + end_of_events(head_, task_.usage ? &outcome.usage : nullptr) : std::string();
}

Json TextWriter::whole() const {
    Json json = head_;
    json["choices"] = list_;
    json["usage"] = completion_usage(outcome_.usage);
    json["timings"] = timings_json(outcome_.timings);
    return json;
}

} // namespace

std::vector<uint32_t> text_prompt(const Service& service, const Json& body) {
    std::vector<std::vector<uint32_t>> prompts = read_prompts(service, body);
    if (prompts.size() != 1) bad_request("prompt", "\"prompt\" must be one text, or one list of token ids");
    return std::move(prompts.front());
}

HttpReply completions(Service& service, const HttpRequest& request) {
    return answer(service, request, read_body(service, request, [&](const Json& body) -> Asked {
                      const CompletionTask task = read_completion_task(service, body);
                      auto generation = std::make_shared<Generation>(service, task.text, request.tenant);
                      return {generation, std::make_shared<TextWriter>(service, task, generation), task.streams};
                  }));
}

} // namespace tq::server
