// POST /completion and /infill, llama.cpp's: a text to go on with, and one whose middle is to be written.
// Both give one answer as plain text, without choices or logprobs. In a stream each event has a piece of the text, and the last
// one has none: it is the whole answer without its content, where clients find the reason of the end, the counts and the times.
#include "tools/server/answer_writer.h"
#include "tools/server/handlers.h"
#include "tools/server/ignored_fields.h"
#include "tools/server/json_fields.h"
#include "tools/server/openai/reply.h"
#include "tools/server/prompt.h"

namespace tq::server {
namespace {

TextTask read_infill(Service& service, const Json& body) {
    const Limits& limits = service.options.limits;
    const std::string prefix = text_field(body, "input_prefix").value_or(""),
                      suffix = text_field(body, "input_suffix").value_or("");
    const std::string begun = text_field(body, "prompt").value_or(""); // what the middle begins with
    std::vector<InfillFile> others;
    const Json* extra = array_field(body, "input_extra", limits.messages);
    for (size_t i = 0; extra && i < extra->size(); ++i) {
        const std::string path = fmt::format("input_extra[{}]", i);
        const Json& one = (*extra)[i];
        if (!one.is_object()) bad_request(path, "{} must be an object with a filename and a text", path);
        others.push_back({text_field(one, "filename", path).value_or("tmp"), text_field(one, "text", path).value_or("")});
    }
    return {.prompts = {infill_prompt(service, prefix, suffix, begun, others, "input_suffix")}};
}

class NativeWriter final : public AnswerWriter {
  public:
    NativeWriter(const Service& service, bool stream) : service_(service), stream_(stream) {}

    std::string begin(const Usage&) override { return {}; }
    std::string write(const std::vector<Event>& events) override {
        std::string out;
        for (const Event& event : events) {
            if (event.finish) continue;
            if (stream_)
                out += data_event({{"content", event.part.text}, {"stop", false}});
            else
                content_ += event.part.text;
        }
        return out;
    }
    std::string ping() override { return data_event({{"content", ""}, {"stop", false}}); }
    std::string end(const Outcome& outcome) override {
        outcome_ = outcome;
        return stream_ ? data_event(whole()) : std::string();
    }
    std::string fail(const ApiError& error) override { return error_event(error); }
    Json whole() const override; // of a stream the last event, without content

  private:
    const Service& service_;
    const bool stream_;
    std::string content_;
    Outcome outcome_;
};

Json NativeWriter::whole() const {
    const auto& word = outcome_.stop_string;
    return {{"content", content_},
            {"stop", true},
            {"model", service_.model_name()},
            {"stop_type", word                                      ? "word"
                          : outcome_.finish == FinishReason::length ? "limit"
                                                                    : "eos"},
            {"stopping_word", word.value_or("")},
            {"truncated", false},
            {"tokens_predicted", outcome_.usage.completion_tokens},
            {"tokens_evaluated", outcome_.usage.prompt_tokens},
            {"tokens_cached", outcome_.usage.cached_tokens},
            {"timings", timings_json(outcome_.timings)}};
}

Asked complete(Service& service, const HttpRequest& request, const Json& body, TextTask task) {
    const bool streams = bool_field(body, "stream").value_or(false);
    task.sampling = read_sampling(service, body);
    task.sampling.choices = 1;
    task.format = read_formats(body);
    return {std::make_shared<Generation>(service, task, request.tenant), std::make_shared<NativeWriter>(service, streams),
            streams};
}

} // namespace

HttpReply infill(Service& service, const HttpRequest& request) {
    return answer(service, request, read_body(service, request, [&](const Json& body) {
                      return complete(service, request, body, read_infill(service, body));
                  }));
}

HttpReply completion(Service& service, const HttpRequest& request) {
    return answer(service, request, read_body(service, request, [&](const Json& body) {
                      return complete(service, request, body, {.prompts = {text_prompt(service, body)}});
                  }));
}

} // namespace tq::server
