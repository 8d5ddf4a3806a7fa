// The body of a request as its bytes come.
#pragma once
#include "tools/server/http/head.h"

namespace tq::server {

class BodyReader {
  public:
    // A body of more than `max` bytes is refused with 413.
    BodyReader(const Head& head, uint64_t max)
        : left_(head.chunked ? 0 : head.content_length), max_(max), chunked_(head.chunked),
          state_(head.chunked ? State::size : State::data) {}

    // Reads the bytes that belong to the body, and returns their number; 0 if the body is done or refused.
    size_t push(std::string_view bytes);
    bool done() const { return state_ == State::done || (!chunked_ && left_ == 0); }
    const std::optional<Refusal>& refusal() const { return refusal_; }
    size_t size() const { return body_.size(); }
    std::string take() { return std::move(body_); }

  private:
    enum class State { size, extension, data, data_end, trailer, done };

    bool step(char c);
    bool step_size(char c);
    void refuse(int status, std::string reason) { refusal_ = Refusal{status, std::move(reason)}; }

    uint64_t left_; // of the body, or of its chunk
    const uint64_t max_;
    const bool chunked_;
    State state_;
    size_t line_ = 0, framing_ = 0; // bytes of the line; of all lines since the last byte of the body
    bool after_cr_ = false;
    std::string body_;
    std::optional<Refusal> refusal_;
};

} // namespace tq::server
