// From the messages of a request, as OpenAI has them, to token ids: chat_prompt() is where a request's JSON becomes a prompt.
// Steps: the options of thinking (options_of, thinking_of); a last message of the assistant is taken off, to be left open at the
// end; the default system prompt; render_chat (model/text/chat_template.h) makes pieces of text by the model's template; the
// tokenizer makes ids of them. Pieces say whether special tokens are recognised in them: only the template's own are, so nobody
// writes <|im_end|> into a message.
// A prompt that cannot fit is refused twice: by its bytes before the tokenizer runs (begin_encoding: no token stands for more
// bytes than the longest), because a text of many megabytes would take long and much memory, and by its tokens.
// answered_prompt() renders the conversation with its new answer as the next request will have it, for work ahead. A template may
// treat the last message otherwise, so another one follows, and is cut off again at the tag of its turn.
#include "tools/server/prompt.h"
#include "base/printable.h"
#include "tools/server/chat_parts.h"
#include "tools/server/json_fields.h"
#include <algorithm>

namespace tq::server {
namespace {

// Whether the last message is the assistant's.
bool ends_open(const Json& messages) {
    if (!messages.is_array() || messages.empty() || !messages.back().is_object()) return false;
    const Json& last = messages.back();
    const auto role = last.find("role");
    return role != last.end() && *role == "assistant";
}

std::string text_member(const Json& message, const char* name) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) return {};
    if (found->is_string()) return found->get<std::string>();
    std::string text;
    if (found->is_array())
        for (const Json& part : *found)
            if (part.is_object() && part.contains("text") && part["text"].is_string()) text += part["text"].get<std::string>();
    return text;
}

void append_open_answer(std::vector<Piece>& pieces, const std::string& reasoning, const std::string& content,
                        const ChatOptions& options) {
    const bool opens = options.variant == ChatVariant::hybrid && !reasoning.empty();
    if (opens) pieces.push_back({"<think>\n", true});
    if (opens || options.opens_thinking()) {
        pieces.push_back({reasoning, false});
        pieces.push_back({"\n</think>\n\n", true});
    }
    pieces.push_back({content, false});
}

// Adds the server's system prompt, or the one that the file's template gives a conversation without any.
void add_default_system(const Service& service, const ChatTask& task, Json& messages) {
    if (!task.context.empty()) return;
    const std::string& system = service.options.system ? *service.options.system : service.model.system;
    const bool has_own = messages.is_array() && !messages.empty() && messages.front().is_object() &&
                         messages.front().value("role", "") == "system";
    if (!system.empty() && !has_own) messages.insert(messages.begin(), Json{{"role", "system"}, {"content", system}});
}

const char* turn_tag(const Service& service) { return is_llama(service.model.chat) ? "<|start_header_id|>" : "<|im_start|>"; }

// Returns `ids` if the task has no context (ids of earlier turns); else the context, followed by the last `turns` rendered turns:
// all that a template puts before its first message is cut off.
std::vector<uint32_t> behind_context(const Service& service, const ChatTask& task, std::vector<uint32_t> ids, size_t turns) {
    if (task.context.empty()) return ids;
    const auto tag = service.model.tokenizer.special(turn_tag(service));
    size_t begin = ids.size();
    for (size_t left = turns; tag && left > 0 && begin > 0;) left -= ids[--begin] == *tag ? 1 : 0;
    ids.erase(ids.begin(), ids.begin() + ptrdiff_t(begin));
    ids.insert(ids.begin(), task.context.begin(), task.context.end());
    return ids;
}

size_t bytes_of(std::span<const Piece> pieces) {
    size_t bytes = 0;
    for (const Piece& piece : pieces) bytes += piece.text.size();
    return bytes;
}

// The bytes that the text has at least once it is composed (NFC), before tokens are made of it: of four bytes that are not ASCII
// one may be left, as of a letter with marks, and an ASCII letter goes into the character of a mark behind it.
size_t composed_bytes(std::string_view text) {
    size_t ascii = 0;
    for (size_t i = 0; i < text.size(); ++i)
        ascii += uint8_t(text[i]) < 0x80 && (i + 1 == text.size() || uint8_t(text[i + 1]) < 0x80) ? 1 : 0;
    return ascii + (text.size() - ascii) / 4;
}

template <class Render> auto rendered(const Render& render) {
    try {
        return render();
    } catch (const ApiError&) {
        throw;
    } catch (const Error& error) {
        bad_request("messages", "{}", error.what());
    }
}

ChatOptions options_of(const Service& service, const ChatTask& task) {
    ChatOptions options{.variant = service.model.chat, .cut_arguments = true, .preserve_thinking = task.preserve_thinking};
    options.enable_thinking = task.think ? task.think : service.options.think;
    options.effort = task.effort.value_or(service.options.effort.value_or(options.effort));
    return options;
}

// Changes the options if there must be no thinking.
Thinking thinking_of(const Service& service, const ChatTask& task, ChatOptions& options) {
    Thinking thinking;
    if (!may_think(options.variant)) return thinking;
    thinking.budget = task.thinking_budget ? task.thinking_budget : service.options.reasoning_budget;
    // Most templates have a way of their own not to think; a model that always thinks closes it at once.
    if (options.variant == ChatVariant::thinking && task.think == false) thinking.budget = 0;
    if (thinking.budget == 0u) options.enable_thinking = false;
    thinking.open = options.opens_thinking();
    thinking.possible = !thinking.open && options.thinks();
    return thinking;
}

// Whether the client sends back what the model thought.
bool returns_thinking(const Json& messages) {
    return std::ranges::any_of(messages, [](const Json& message) {
        return message.is_object() && message.contains("reasoning_content") && !text_member(message, "reasoning_content").empty();
    });
}

} // namespace

void require_fits(const Service& service, size_t prompt_tokens, const std::string& param, const char* how_many) {
    const uint32_t context = service.scheduler.context_size();
    if (prompt_tokens <= context) return;
    throw TooLong(
        fmt::format("This model's maximum context length is {} tokens. However, your {} resulted in {}{} tokens. Please "
                    "reduce the length of the {}.",
                    context, param, how_many, prompt_tokens, param),
        param, prompt_tokens);
}

Service::EncodingTurn begin_encoding(const Service& service, std::span<const Piece> pieces, const std::string& param) {
    size_t bytes = 0;
    for (const Piece& piece : pieces) bytes += composed_bytes(piece.text);
    require_fits(service, bytes / service.longest_token, param, "at least ");
    return service.encoding_turn(bytes_of(pieces));
}

Service::EncodingTurn begin_counting(const Service& service, size_t bytes, const std::string& param) {
    constexpr uint64_t bytes_per_token = 8; // of what fits into a large context
    const uint64_t max = std::max(service.options.limits.counted_bytes, service.scheduler.context_size() * bytes_per_token);
    if (bytes > max)
        bad_request(param, "\"{}\" has a text of {} bytes, of which at most {} are cut into tokens at once: divide it", param,
                    bytes, max);
    return service.encoding_turn(bytes);
}

// A last message of the assistant is not rendered with the others, because the template would close its turn:
// append_open_answer() puts it behind them. It is rendered alone first, only for the error that it may have. Its reasoning turns
// thinking on; without reasoning, a hybrid's answer turns thinking off.
ChatPrompt chat_prompt(const Service& service, const ChatTask& task, bool is_answered) {
    ChatOptions options = options_of(service, task);
    ChatPrompt prompt{{}, thinking_of(service, task, options), false};
    Json messages = task.messages;
    std::string content, reasoning;
    if (ends_open(messages)) {
        const Json last = messages.back();
        if (last.contains("tool_calls") && !last["tool_calls"].empty())
            bad_request("messages",
                        "the last message calls tools, but no result follows: add a message of the role \"tool\" for each");
        rendered([&] { return render_chat(Json::array({last}), nullptr, options); }); // for its error
        content = text_member(last, "content"), reasoning = text_member(last, "reasoning_content");
        messages.erase(messages.size() - 1);
        prompt.continues = !content.empty() || !reasoning.empty();
    }
    add_default_system(service, task, messages);
    if (messages.empty() && prompt.continues)
        bad_request("messages",
                    "\"messages\" has an answer to go on with, but nothing before it: add the message that it answers");
    if (!reasoning.empty())
        options.enable_thinking = true;
    else if (prompt.continues && options.variant == ChatVariant::hybrid)
        options.enable_thinking = false;
    prompt.ids = rendered([&] {
        std::vector<Piece> pieces = render_chat(messages, task.tools, options);
        if (prompt.continues) append_open_answer(pieces, reasoning, content, options);
        const auto turn =
            is_answered ? begin_encoding(service, pieces, "messages") : begin_counting(service, bytes_of(pieces), "messages");
        return behind_context(service, task, service.model.tokenizer.encode(pieces), messages.size() + 1);
    });
    if (prompt.continues) prompt.thinking = {};
    return prompt;
}

// Joins the parts as llama.cpp does, in the order of Qwen2.5-Coder.
std::vector<uint32_t> infill_prompt(const Service& service, const std::string& prefix, const std::string& suffix,
                                    const std::string& begun, const std::vector<InfillFile>& others, const char* field) {
    const Tokenizer& tokenizer = service.model.tokenizer;
    const InfillTokens& tokens = tokenizer.infill();
    if (!tokens.are_there())
        bad_request(field,
                    "\"{}\" is not supported: this model has no tokens for the middle of a text, and only goes on with one",
                    field);
    std::vector<std::pair<std::optional<uint32_t>, Piece>> parts; // the token before each text
    for (const InfillFile& file : others) parts.push_back({tokens.file, {fmt::format("{}\n{}\n", file.name, file.text)}});
    if (tokens.file && !others.empty()) parts.push_back({tokens.file, {"filename\n"}});
    parts.insert(parts.end(), {{tokens.prefix, {prefix}}, {tokens.suffix, {suffix}}, {tokens.middle, {begun}}});
    std::vector<Piece> texts;
    for (const auto& [token, text] : parts) texts.push_back(text);
    const auto turn = begin_encoding(service, texts, "prompt");
    std::vector<uint32_t> ids;
    for (const auto& [token, text] : parts) {
        if (token) ids.push_back(*token);
        const std::vector<uint32_t> more = tokenizer.encode(text.text, false);
        ids.insert(ids.end(), more.begin(), more.end());
    }
    return ids;
}

static uint32_t read_id(const Service& service, const Json& id, const std::string& path) {
    const size_t known = service.model.tokenizer.size();
    if (!id.is_number_integer() || id < 0 || id >= known)
        bad_request(path, "\"{}\" holds {}, which is no token id: those of this model are 0 to {}", path,
                    printable(dump_text(id), 40), known - 1);
    return id.get<uint32_t>();
}

std::vector<uint32_t> read_ids(const Service& service, const Json& ids, const std::string& path) {
    if (!ids.is_array()) bad_request(path, "\"{}\" must be a list of token ids", path);
    std::vector<uint32_t> read;
    for (const Json& id : ids) read.push_back(read_id(service, id, path));
    return read;
}

bool is_one_prompt(const Json& given) {
    return !given.is_array() || given.empty() || std::ranges::any_of(given, [](const Json& one) { return one.is_number(); });
}

// Tokens that a tokenizer adds (BOS) come only before a text that is the first part.
std::vector<uint32_t> prompt_ids(const Service& service, const Json& given, const std::string& path, bool special) {
    const Tokenizer& tokenizer = service.model.tokenizer;
    const auto text_ids = [&](const std::string& text, bool is_first) {
        const Piece piece{text, special};
        const auto turn = begin_encoding(service, {&piece, 1}, path);
        return is_first ? tokenizer.prompt(text, special) : tokenizer.encode(text, special);
    };
    if (given.is_string()) return text_ids(given.get_ref<const std::string&>(), true);
    if (const Json* text = given.is_object() ? member(given, "prompt_string") : nullptr) {
        if (!text->is_string()) bad_request(path, "\"{}\" has a \"prompt_string\" that is no text", path);
        if (member(given, "multimodal_data"))
            bad_request(path, "\"{}\" has \"multimodal_data\", but this model reads texts", path);
        return text_ids(text->get_ref<const std::string&>(), true);
    }
    if (!given.is_array()) bad_request(path, "\"{}\" must be a text or a list of token ids", path);
    std::vector<uint32_t> read;
    for (const Json& part : given) {
        if (!part.is_string()) {
            read.push_back(read_id(service, part, path));
            continue;
        }
        const std::vector<uint32_t> ids = text_ids(part.get_ref<const std::string&>(), &part == &given.front());
        read.insert(read.end(), ids.begin(), ids.end());
    }
    return read;
}

std::vector<uint32_t> answered_prompt(const Service& service, const ChatTask& task, const ParsedAnswer& answer) {
    Json message = {{"role", "assistant"}, {"content", answer.content}};
    if (returns_thinking(task.messages)) message["reasoning_content"] = answer.reasoning;
    for (const ParsedAnswer::Call& call : answer.calls)
        message["tool_calls"].push_back(
            {{"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    Json messages = task.messages;
    add_default_system(service, task, messages);
    messages.push_back(std::move(message));
    const size_t turns = messages.size();
    // The template treats the last message otherwise: another follows, which is cut off again.
    messages.push_back({{"role", answer.calls.empty() ? "user" : "tool"}, {"content", ""}});
    ChatOptions options = options_of(service, task);
    thinking_of(service, task, options);
    options.add_generation_prompt = false;
    std::vector<Piece> pieces = render_chat(messages, task.tools, options);
    std::string& end = pieces.back().text;
    end.erase(std::min(end.rfind(turn_tag(service)), end.size()));
    return behind_context(service, task, service.model.tokenizer.encode(pieces), turns);
}

} // namespace tq::server
