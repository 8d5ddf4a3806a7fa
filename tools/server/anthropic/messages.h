// Anthropic's Messages API: content blocks become a chat, an answer becomes content blocks.
#pragma once
#include "tools/server/answer_writer.h"
#include "tools/server/chat_parts.h"
#include "tools/server/conversation.h"

namespace tq::server::messages_api {

struct Request {
    ChatTask task; // without its sampling, but for max_tokens and stop
    bool stream = false;
};

// Throws ApiError (400).
Request read(const Json& body, const Limits& limits);
// The same for a prompt that is only counted: max_tokens may be missing.
Request read_prompt(const Json& body, const Limits& limits);

class Writer : public AnswerWriter {
  public:
    // `stream`: blocks are sent as they come.
    Writer(std::string model, bool stream, MakeId make_id = random_id);

    std::string begin(const Usage& usage) override;
    std::string write(const std::vector<Event>& events) override;
    std::string ping() override;
    std::string end(const Outcome& outcome) override;
    std::string fail(const ApiError& error) override;
    Json whole() const override { return message_; }

  private:
    enum class Block { none, thinking, text, tool_use };

    void send(const char* type, Json fields);
    void part(const AnswerPart& part);
    void open(Block kind, Json block);
    void text(Block kind, const std::string& text);
    void delta(const char* type, const char* name, const std::string& text);
    void close();

    const bool stream_;
    const MakeId make_id_;
    Json message_;
    Block open_ = Block::none;
    Json block_;       // the open one
    std::string text_; // of the open block so far
    std::string out_;
};

} // namespace tq::server::messages_api
