// The prompt of a chat: what the template makes of its messages, and how the answer to it begins.
#pragma once
#include "tools/server/constraints.h"

namespace tq::server {

struct ChatPrompt {
    std::vector<uint32_t> ids;
    Thinking thinking;
    bool continues = false; // the last message, of the assistant
};

// Throws ApiError (400) if the messages or tools are not what the template takes. A last message of the assistant is left
// open, to be continued; its thinking is over. A text that is too long for the context in any case is refused before it is cut
// into tokens; one that is not answered may be longer, up to limits.counted_bytes.
ChatPrompt chat_prompt(const Service& service, const ChatTask& task, bool is_answered = false);

// The ids that the next prompt will begin with if `answer` is sent back: with its thinking only from a client that has sent
// back some.
std::vector<uint32_t> answered_prompt(const Service& service, const ChatTask& task, const ParsedAnswer& answer);

// Reads a list of token ids. They must be of the vocabulary, not of rows that pad the embedding. Throws ApiError (400, of
// `path`).
std::vector<uint32_t> read_ids(const Service& service, const Json& ids, const std::string& path);

// Whether it is one prompt, and not a list of several: a text, a list that has token ids, or llama.cpp's {"prompt_string": text}.
bool is_one_prompt(const Json& given);

// Reads one prompt. In a list texts may stand between ids. special: texts may name special tokens. Throws ApiError (400, of
// `path`).
std::vector<uint32_t> prompt_ids(const Service& service, const Json& given, const std::string& path, bool special);

// Returns the prompt of a body of /completion: a text or a list of ids. Throws ApiError (400).
std::vector<uint32_t> text_prompt(const Service& service, const Json& body);

struct InfillFile { // of the same project
    std::string name, text;
};
// Returns the prompt for a text between `prefix` and `suffix` that begins with `begun`. Throws ApiError (400, of `field`) if the
// model has no tokens for that.
std::vector<uint32_t> infill_prompt(const Service& service, const std::string& prefix, const std::string& suffix,
                                    const std::string& begun, const std::vector<InfillFile>& others, const char* field);

struct TooLong final : ApiError { // 400, context_length_exceeded
    TooLong(const std::string& message, const std::string& param, size_t tokens)
        : ApiError(400, "invalid_request_error", message, param, "context_length_exceeded"), tokens(tokens) {}
    size_t tokens; // or more
};

// Throws TooLong with both numbers.
void require_fits(const Service& service, size_t prompt_tokens, const std::string& param, const char* how_many = "");

// Before each text of a client is cut into tokens: throws TooLong if even the longest tokens could not encode it within the
// context, and waits for the turn to encode it, which ends with what is returned.
[[nodiscard]] Service::EncodingTurn begin_encoding(const Service& service, std::span<const Piece> pieces,
                                                   const std::string& param);
// The same for a text whose tokens are only counted or shown: throws ApiError (400) if it has more than limits.counted_bytes.
[[nodiscard]] Service::EncodingTurn begin_counting(const Service& service, size_t bytes, const std::string& param);

} // namespace tq::server
