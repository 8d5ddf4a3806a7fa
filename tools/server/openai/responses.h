// OpenAI's Responses API: a request's items become a chat, an answer becomes items. Nothing is stored.
#pragma once
#include "tools/server/answer_writer.h"
#include "tools/server/chat_parts.h"
#include <functional>
#include <set>

namespace tq::server::responses_api {

struct Request {
    ChatTask task; // of its sampling only max_tokens and logprobs
    bool stream = false;
    bool sealed_reasoning = false; // reasoning items carry their text in encrypted_content, which clients send back
    Json echo;                     // fields that the response repeats
};

// The item of an earlier answer with that id.
using FindItem = std::function<std::optional<Json>(const std::string& id)>;

// Throws ApiError (400).
Request read(const Json& body, const Limits& limits);
// The same; the input may refer to items that `find_item` finds.
Request read_with_items(const Json& body, const Limits& limits, const FindItem& find_item);

// The part of read() that reads "instructions" and "input".
Json read_items(const Json& body, const Limits& limits);

// The prefix of the reasoning in encrypted_content. It is not secret: who has it has the text already.
constexpr std::string_view reasoning_seal = "tq-run reasoning:";

class Writer : public AnswerWriter {
  public:
    Writer(const Request& request, std::string model, uint64_t created_unix_s, MakeId make_id = random_id);

    std::string begin(const Usage& usage) override;
    std::string write(const std::vector<Event>& events) override;
    std::string ping() override;
    std::string end(const Outcome& outcome) override;
    std::string fail(const ApiError& error) override;
    Json whole() const override { return response_; }

    std::function<void(const Json& item)> remember; // called with each item that is whole; empty: none

  private:
    enum class Item { none, reasoning, message, function_call, custom_call };

    void send(const char* type, Json fields);
    void send_response(const char* type);
    void part(const AnswerPart& part, Json logprobs);
    void open(Item kind, Json item);
    void open_text(Item kind);
    void open_call(const std::string& name);
    void text(const std::string& delta, Json logprobs);
    void close(const char* status);
    void close_text();
    void close_call();
    Json text_part(const std::string& text) const;
    Json place() const; // of an event: the item's id and index
    std::string take();

    const std::set<std::string> custom_tools_;
    const bool sealed_reasoning_;
    const MakeId make_id_;
    Json response_;
    Item open_ = Item::none;
    Json item_;        // the open one
    std::string text_; // of the open item so far
    Json logprobs_ = Json::array();
    uint64_t sequence_ = 0;
    std::string out_;
};

} // namespace tq::server::responses_api
