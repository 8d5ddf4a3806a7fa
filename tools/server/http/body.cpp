// The body as its bytes come, in parts of any size. A body with a length is copied; chunks are read by a state machine of single
// bytes, so a part may end anywhere. Guards: a size of a chunk of more than 62 bits is refused before it overflows; the body's
// limit is checked when a chunk's size is known, before its bytes are stored; what is around the chunks (extensions, trailers)
// may have 32 KiB in a row, or a client could send a body that never has a byte. Each line must end with CR LF, as in the head.
#include "tools/server/http/body.h"
#include <algorithm>
#include <fmt/format.h>

namespace tq::server {

constexpr size_t max_framing_bytes = 32 << 10; // without any of the body's between them

size_t BodyReader::push(std::string_view bytes) {
    size_t read = 0;
    while (read < bytes.size() && !done() && !refusal_) {
        if (state_ != State::data) {
            if (++framing_ > max_framing_bytes || !step(bytes[read++])) refuse(400, "the chunks of the body are not well-formed");
        } else if (left_ > max_ - body_.size()) {
            refuse(413, fmt::format("the body has more than {} bytes", max_));
        } else {
            const size_t n = size_t(std::min<uint64_t>(left_, bytes.size() - read));
            body_.append(bytes.substr(read, n));
            read += n, left_ -= n, framing_ = 0;
            if (left_ == 0 && chunked_) state_ = State::data_end, line_ = 0;
        }
    }
    return read;
}

// A byte of what is around the chunks: "5;extension" CR LF, the chunk, CR LF; after the chunk of no bytes trailers, which are
// ignored, and an empty line.
bool BodyReader::step(char c) {
    if (state_ == State::data_end) {
        if (c != "\r\n"[line_++]) return false;
        if (line_ == 2) state_ = State::size, line_ = 0;
        return true;
    }
    if (after_cr_ != (c == '\n')) return false; // each line ends with both
    after_cr_ = c == '\r';
    if (after_cr_) return true;
    if (c != '\n') return ++line_, state_ == State::trailer || state_ == State::extension || step_size(c);
    if (state_ == State::trailer && line_ == 0)
        state_ = State::done;
    else if (state_ != State::trailer && line_ == 0)
        return false; // no size
    else if (state_ != State::trailer)
        state_ = left_ == 0 ? State::trailer : State::data;
    line_ = 0;
    return true;
}

bool BodyReader::step_size(char c) {
    const size_t digit = std::string_view("0123456789abcdef0123456789ABCDEF").find(c);
    if (digit == std::string_view::npos) {
        state_ = State::extension;
        return line_ > 1 && (c == ';' || c == ' ' || c == '\t');
    }
    if (left_ >> 58 != 0) return false;
    left_ = left_ * 16 + digit % 16;
    return true;
}

} // namespace tq::server
