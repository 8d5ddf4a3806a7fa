// POST /v1/completions: texts, or token ids, to go on with.
#include "base/printable.h"
#include "tools/server/answer_writer.h"
#include "tools/server/chat_parts.h"
#include "tools/server/handlers.h"
#include "tools/server/json_fields.h"
#include "tools/server/openai_reply.h"
#include "tools/server/prompt.h"
#include <deque>
#include <utility>

namespace tq::server {
namespace {

constexpr uint32_t default_max_tokens = 16; // OpenAI's

struct CompletionTask {
    std::vector<std::vector<uint32_t>> prompts;
    TextTask common; // without a prompt
    bool echo = false, streams = false, usage = false;
};

std::vector<uint32_t> prompt_ids(const Service& service, const Json& ids, const std::string& path) {
    const Tokenizer& tokenizer = service.model.tokenizer;
    if (ids.is_string()) {
        const Piece text{ids.get<std::string>(), true};
        require_bytes_fit(service, {&text, 1}, "prompt");
        return tokenizer.prompt(text.text);
    }
    if (!ids.is_array()) bad_request(path, "\"{}\" must be a text or a list of token ids", path);
    std::vector<uint32_t> prompt;
    for (const Json& id : ids) {
        if (!id.is_number_integer() || id < 0 || id >= tokenizer.size())
            bad_request(path, "\"{}\" holds {}, which is no token id: those of this model are 0 to {}", path,
                        printable(dump_text(id), 40), tokenizer.size() - 1);
        prompt.push_back(id.get<uint32_t>());
    }
    return prompt;
}

// A text, a list of ids, or a list of such.
std::vector<std::vector<uint32_t>> read_prompts(const Service& service, const Json& body) {
    const Json* given = member(body, "prompt");
    if (!given) bad_request("prompt", "\"prompt\" is missing: give a text, a list of token ids, or a list of several");
    const bool several = given->is_array() && !given->empty() && !given->front().is_number();
    const size_t most = service.options.limits.batch_inputs;
    if (several && given->size() > most)
        bad_request("prompt", "\"prompt\" has {} prompts, of which there may be {}", given->size(), most);
    std::vector<std::vector<uint32_t>> prompts;
    for (size_t i = 0; i < (several ? given->size() : 1); ++i) {
        const std::string path = several ? fmt::format("prompt[{}]", i) : "prompt";
        prompts.push_back(prompt_ids(service, several ? (*given)[i] : *given, path));
        if (prompts.back().empty()) bad_request(path, "\"{}\" is empty, so there is nothing to continue", path);
        require_fits(service, prompts.back().size(), "prompt");
    }
    return prompts;
}

CompletionTask read_completion_task(const Service& service, const Json& body) {
    const Limits& limits = service.options.limits;
    CompletionTask task;
    Sampling& sampling = task.common.sampling = read_sampling(service, body);
    if (!sampling.max_tokens && !member(body, "max_tokens")) sampling.max_tokens = default_max_tokens;
    if (const auto top = integer_field(body, "logprobs", 0, limits.top_logprobs)) {
        sampling.logprobs = true;
        sampling.top_logprobs = uint32_t(*top);
    }
    task.common.format = read_format(body);
    task.echo = bool_field(body, "echo").value_or(false);
    task.common.prompt_logprobs = task.echo && sampling.logprobs;
    const auto best_of = integer_field(body, "best_of", 1, INT32_MAX);
    if (best_of && *best_of != sampling.choices)
        bad_request("best_of", "\"best_of\" is {}, but must be as \"n\", {}", *best_of, sampling.choices);
    task.streams = bool_field(body, "stream").value_or(false);
    task.usage = wants_usage(body);
    const auto suffix = text_field(body, "suffix");
    if (!suffix || suffix->empty()) {
        task.prompts = read_prompts(service, body);
        return task;
    }
    const Json* prefix = member(body, "prompt");
    if (task.echo) bad_request("echo", "\"echo\" has no use with \"suffix\": leave one of them out");
    if (prefix && !prefix->is_string()) bad_request("prompt", "\"prompt\" must be one text where there is a \"suffix\"");
    task.prompts = {infill_prompt(service, prefix ? prefix->get<std::string>() : "", *suffix, "", {}, "suffix")};
    return task;
}

size_t characters(std::string_view text) {
    return size_t(std::ranges::count_if(text, [](char c) { return (uint8_t(c) & 0xC0) != 0x80; }));
}

// The text of a choice, of which the last part may be all that is kept.
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

    // Before the first token nothing is known, so that it has no logprob.
    void add_prompt(const std::string& echoed, const std::string& first, const std::vector<TokenText>& tokens) {
        text = echoed;
        size_t at = 0;
        add({first, 0, {}}, at);
        logprobs["token_logprobs"].back() = logprobs["top_logprobs"].back() = nullptr;
        for (const TokenText& token : tokens) add(token, at);
    }

    void add(const TokenText& token, size_t& at) {
        logprobs["tokens"].push_back(token.bytes);
        logprobs["token_logprobs"].push_back(token.logprob);
        Json top = Json::object();
        for (const auto& [bytes, logprob] : token.top) top[bytes] = logprob;
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

// The answers to all prompts in their order: those of a few run at the same time.
class Completions {
  public:
    Completions(Service& service, CompletionTask task, const HttpRequest& request)
        : service_(service), task_(std::move(task)), request_(without_body(request)) {
        begin_more();
    }

    // Calls `on_events` with what is new of one prompt's choices, then `on_end`. Returns false when the client is gone.
    bool run(const std::function<bool(const Generation&, const std::vector<Event>&, size_t first_choice)>& on_events,
             const std::function<bool(const Generation&, size_t first_choice)>& on_end, const std::function<bool()>& on_idle) {
        for (size_t first = 0; !running_.empty(); first += task_.common.sampling.choices) {
            Generation& generation = *running_.front();
            const bool whole = run_generation(
                service_, generation, request_, [&](const auto& events) { return on_events(generation, events, first); },
                on_idle);
            if (!whole || !on_end(generation, first)) return false;
            const Usage usage = generation.usage();
            usage_.prompt_tokens += usage.prompt_tokens;
            usage_.cached_tokens += usage.cached_tokens;
            usage_.completion_tokens += usage.completion_tokens;
            timings_ = generation.timings();
            running_.pop_front();
            begin_more();
        }
        return true;
    }

    const CompletionTask& task() const { return task_; }
    size_t choices() const { return task_.prompts.size() * task_.common.sampling.choices; }
    // Begins the text of a choice, once, with its prompt where that is wanted.
    void begin(TextChoice& text, const Generation& generation, size_t first, uint32_t choice) const {
        if (std::exchange(text.begun, true) || !task_.echo) return;
        const Tokenizer& tokenizer = service_.model.tokenizer;
        const std::vector<uint32_t>& prompt = task_.prompts[first / task_.common.sampling.choices];
        Utf8Stream utf8;
        text.text = utf8.push(tokenizer.decode(prompt, false));
        text.text += utf8.flush();
        if (task_.common.prompt_logprobs)
            text.add_prompt(text.text, std::string(tokenizer.bytes(prompt.front())), generation.prompt_tokens(choice));
    }
    const Usage& usage() const { return usage_; }
    const serving::RequestTimings& timings() const { return timings_; } // of the last prompt

  private:
    void begin_more() {
        while (begun_ < task_.prompts.size() && running_.size() < std::max(service_.scheduler.slots(), 1u)) {
            TextTask one = task_.common;
            one.prompt = task_.prompts[begun_++];
            running_.push_back(std::make_unique<Generation>(service_, one, request_.tenant));
        }
    }

    Service& service_;
    const CompletionTask task_;
    const HttpRequest request_;
    std::deque<std::unique_ptr<Generation>> running_;
    size_t begun_ = 0;
    Usage usage_;
    serving::RequestTimings timings_;
};

void write_completions(const Service& service, Completions& completions, const Send& send) {
    const CompletionTask& task = completions.task();
    const Json head = completion_head(service, random_id("cmpl-"), "text_completion");
    std::vector<TextChoice> choices(completions.choices());
    const auto chunk = [&](size_t i, const char* finish) {
        Json json = head;
        json["choices"] = Json::array({choices[i].json(i, task.common.sampling.logprobs, finish)});
        const size_t sent = choices[i].offset + characters(choices[i].text);
        choices[i] = {.begun = true, .offset = sent};
        return data_event(json);
    };
    const bool whole = completions.run(
        [&](const Generation& generation, const std::vector<Event>& events, size_t first) {
            std::string out;
            for (const Event& event : events) {
                const size_t i = first + event.choice;
                completions.begin(choices[first + event.choice], generation, first, event.choice);
                choices[i].add(event);
                out += chunk(i, nullptr);
            }
            return send_some(send, out);
        },
        [&](const Generation& generation, size_t first) {
            std::string out;
            for (uint32_t c = 0; c < generation.choices(); ++c) {
                completions.begin(choices[first + c], generation, first, c);
                out += chunk(first + c, finish_name(generation.finish(c)));
            }
            return send_some(send, out);
        },
        [&] { // for readers of events, who do not count comments
            Json json = head;
            json["choices"] = Json::array({TextChoice().json(0, false, nullptr)});
            return send(data_event(json));
        });
    if (!whole) return;
    std::string end;
    if (task.usage) {
        Json json = head;
        json["choices"] = Json::array();
        json["usage"] = completion_usage(completions.usage());
        end = data_event(json);
    }
    send_last(send, end.append(done_event));
}

} // namespace

std::vector<uint32_t> text_prompt(const Service& service, const Json& body) {
    std::vector<std::vector<uint32_t>> prompts = read_prompts(service, body);
    if (prompts.size() != 1) bad_request("prompt", "\"prompt\" must be one text, or one list of token ids");
    return std::move(prompts.front());
}

HttpReply completions(Service& service, const HttpRequest& request) {
    const Json body = parse_body(request.body, service.options.limits);
    auto all = std::make_shared<Completions>(service, read_completion_task(service, body), request);
    const CompletionTask& task = all->task();
    if (task.streams) return event_stream([&service, all](const Send& send) { write_completions(service, *all, send); });

    std::vector<TextChoice> choices(all->choices());
    Json list = Json::array();
    const bool whole = all->run(
        [&](const Generation& generation, const std::vector<Event>& events, size_t first) {
            for (const Event& event : events) {
                all->begin(choices[first + event.choice], generation, first, event.choice);
                choices[first + event.choice].add(event);
            }
            return true;
        },
        [&](const Generation& generation, size_t first) {
            for (uint32_t c = 0; c < generation.choices(); ++c) {
                all->begin(choices[first + c], generation, first, c);
                list.push_back(
                    choices[first + c].json(first + c, task.common.sampling.logprobs, finish_name(generation.finish(c))));
            }
            return true;
        },
        [] { return true; });
    if (!whole) return {.status = 499}; // nobody reads it
    Json json = completion_head(service, random_id("cmpl-"), "text_completion");
    json["choices"] = std::move(list);
    json["usage"] = completion_usage(all->usage());
    json["timings"] = timings_json(all->timings());
    return json_reply(json);
}

} // namespace tq::server
