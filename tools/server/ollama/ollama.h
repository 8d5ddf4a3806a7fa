// Ollama's API: a request becomes a chat or a text, an answer becomes lines of JSON.
#pragma once
#include "tools/server/answer_writer.h"
#include "tools/server/chat_parts.h"
#include <variant>

namespace tq::server::ollama_api {

struct Request {
    std::variant<ChatTask, TextTask> task;
    bool stream = true;
    bool only_loads = false; // it asks for no answer: the model is to be loaded, which it is
    bool unloads = false;    // no answer: the model is to be unloaded (keep_alive 0); it is kept all the same
};

// POST /api/chat and /api/generate. Both throw ApiError (400).
Request read_chat(Service& service, const Json& body);
Request read_generate(Service& service, const Json& body);

enum class Form { chat, generate };

class Writer final : public AnswerWriter {
  public:
    // `logprobs`: the reply has log probabilities of the content's tokens. `generation`: null if there is no answer.
    Writer(const Service& service, Form form, bool stream, bool logprobs, std::shared_ptr<const Generation> generation);

    std::string begin(const Usage&) override { return {}; }
    std::string write(const std::vector<Event>& events) override;
    std::string ping() override { return line(piece("", "")); }
    std::string end(const Outcome& outcome) override;
    std::string fail(const ApiError& error) override;
    Json whole() const override { return last_; }

  private:
    Json piece(const std::string& content, const std::string& thinking, Json calls = {}, Json logprobs = {}) const;
    std::string line(const Json& json) const;
    std::string show(const Event& event);
    std::string say(const std::string& content, const std::string& thinking, Json calls = {}, Json logprobs = {});

    const std::string model_;
    const Form form_;
    const bool stream_, has_logprobs_;
    const std::shared_ptr<const Generation> generation_;
    const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
    std::string content_, thinking_; // of an answer that is sent as one
    Json calls_ = Json::array(), logprobs_ = Json::array();
    std::string name_, arguments_; // of the call that is not at its end
    size_t call_count_ = 0;
    Json last_;
};

} // namespace tq::server::ollama_api
