// A common reader for the messages of all APIs. MessageReader understands the union of their parts: OpenAI's text, refusal and
// tool_calls, Anthropic's tool_use, tool_result, documents and thinking, Ollama's images beside the content. Conversation joins
// what it reads into turns as the chat template takes them.
// Three rules keep the prompt's beginning the same from request to request, so that the prefix cache finds it:
// - Texts, thinking and calls of an assistant, in several items, become the one turn that they were when the model answered.
// - A system text after the beginning stays where it is, and does not move to the front.
// - A line of Claude Code that changes with every request is removed (without_billing).
#include "tools/server/conversation.h"
#include "base/printable.h"
#include "model/text/tokenizer.h"
#include "model/text/unicode.h"
#include "tools/server/chat_parts.h"
#include <algorithm>
#include <cctype>

namespace tq::server {
namespace {

constexpr std::string_view billing = "x-anthropic-billing-header:", blanks = " \t", spaces = " \t\r\n";

// Returns what follows the fields of a billing header, and the space behind them.
std::string_view after_billing(std::string_view text) {
    text.remove_prefix(billing.size());
    const auto skip = [&](std::string_view what) { text.remove_prefix(std::min(text.find_first_not_of(what), text.size())); };
    for (bool is_last = false; !is_last;) {
        skip(blanks);
        const std::string_view field = text.substr(0, text.find_first_of("; \t\r\n"));
        if (field.find('=') == field.npos) break;
        is_last = field.starts_with("cch=");
        text.remove_prefix(field.size());
        if (text.starts_with(';')) text.remove_prefix(1);
    }
    skip(spaces);
    return text;
}

// Claude Code begins its prompts with a line of fields that change with every request: "x-anthropic-billing-header: cch=71fea;".
// Routers put other text before it, and behind it also without a line break.
std::string without_billing(std::string_view text) {
    std::string out;
    const auto same = [](char a, char b) { return std::tolower(uint8_t(a)) == b; };
    for (size_t at = 0;;) {
        at = size_t(std::search(text.begin() + ptrdiff_t(at), text.end(), billing.begin(), billing.end(), same) - text.begin());
        if (at == text.size()) break;
        const std::string_view before = text.substr(0, at);
        const size_t last = before.find_last_not_of(blanks);
        if (last != before.npos && before[last] != '\n') { // it does not begin a line
            at += billing.size();
            continue;
        }
        if (!out.empty() || before.find_first_not_of(spaces) != before.npos) out += before;
        text = after_billing(text.substr(at));
        at = 0;
    }
    return out += text;
}

std::string text_or_none(const Json& object, const char* name) {
    const Json* value = member(object, name);
    return value && value->is_string() ? value->get<std::string>() : std::string();
}

// Decodes RFC 4648's alphabet, or the one for URLs, up to its padding. Returns nothing if there is another character.
std::optional<std::string> from_base64(std::string_view text) {
    std::string bytes;
    uint32_t bits = 0, count = 0;
    for (const char c : text.substr(0, text.find('='))) {
        constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const size_t value = alphabet.find(c == '-' ? '+' : c == '_' ? '/' : c);
        if (spaces.find(c) != spaces.npos) continue;
        if (value == alphabet.npos) return std::nullopt;
        bits = bits << 6 | uint32_t(value);
        if ((count += 6) >= 8) bytes += char(bits >> (count -= 8));
    }
    return bytes;
}

// Returns nothing if the file is no text. Other types than text/... are texts if their bytes are (YAML, SVG, ...), but for PDF.
// Bytes of a text that are no UTF-8 become U+FFFD.
std::optional<std::string> encoded_text(std::string_view media_type, std::string_view base64) {
    const std::string type = lowercase(std::string(media_type.substr(0, media_type.find(';'))));
    const auto bytes = type == "application/pdf" ? std::nullopt : from_base64(base64);
    const auto is_control = [](char c) { return uint8_t(c) < 0x20 && spaces.find(c) == spaces.npos && c != '\f'; };
    const bool is_text = bytes && !bytes->empty() && !find_invalid_utf8(*bytes) && std::ranges::none_of(*bytes, is_control);
    if (!bytes || (!is_text && !type.starts_with("text/"))) return std::nullopt;
    Utf8Stream utf8;
    std::string text = utf8.push(*bytes);
    return text += utf8.flush();
}

// Returns the kind of a part, by whatever name an API has for it.
std::string_view kind_of_part(std::string_view type) {
    for (const std::string_view kind : {"image", "audio", "video", "document", "file"})
        if (type.find(kind) != type.npos) return kind == "file" ? "document" : kind;
    return type;
}

// Reads one message.
class MessageReader {
  public:
    MessageReader(Conversation& conversation, const Limits& limits) : conversation_(conversation), limits_(limits) {}

    void system(const Json& object, const char* name, const std::string& path);
    void user(const Json& message, const std::string& path);
    void assistant(const Json& message, const std::string& path);
    std::string text(const Json& object, const char* name, const std::string& path);
    std::string foreign_text(const Json& value, const std::string& path);

  private:
    std::string part_text(const Json& part, const std::string& type, const std::string& path);
    std::string document_text(const Json& part, const std::string& path);
    std::string file_text(const Json& part);
    void part_of_answer(const Json& part, const std::string& type, const std::string& path);
    void calls(const Json& message);
    void one_call(const Json& call);

    Conversation& conversation_;
    const Limits& limits_;
};

// Returns a part's text, or a note in place of one that is no text.
std::string MessageReader::part_text(const Json& part, const std::string& type, const std::string& path) {
    if (type == "text" || type == "input_text" || type == "output_text") {
        const Json* text = member(part, "text");
        return text && text->is_object() ? shown_text(part, "text") : text_field(part, "text", path).value_or("");
    }
    if (type == "refusal" || type == "thinking" || type == "reasoning")
        if (member(part, type.c_str())) return required_text(part, type.c_str(), path);
    if (type == "thinking" || type == "reasoning") return text_field(part, "text", path).value_or("");
    if (type == "search_result" || type == "document") return document_text(part, path);
    if (type == "file" || type == "input_file") return file_text(part);
    return conversation_.left_out(kind_of_part(type));
}

// Returns the text of Anthropic's documents and search results: title, context, source and content. The content of a document
// that is no text is left out.
std::string MessageReader::document_text(const Json& part, const std::string& path) {
    std::string all = shown_text(part, "title");
    append_text(all, text_or_none(part, "context"), "\n");
    const Json* source = member(part, "source");
    if (source && source->is_string()) append_text(all, source->get<std::string>(), "\n");
    const std::string inner = field_path(path, "source");
    std::optional<std::string> words;
    if (member(part, "content"))
        words = text(part, "content", path);
    else if (source && source->is_object() && text_or_none(*source, "type") == "text")
        words = shown_text(*source, "data");
    else if (source && source->is_object() && text_or_none(*source, "type") == "base64")
        words = encoded_text(text_or_none(*source, "media_type"), text_or_none(*source, "data"));
    else if (source && source->is_object() && member(*source, "content"))
        words = text(*source, "content", inner);
    append_text(all, words ? *words : conversation_.left_out("document"), "\n");
    return all;
}

// Returns the text of OpenAI's files: their name, and what a URL of data holds.
std::string MessageReader::file_text(const Json& part) {
    const Json* inner = member(part, "file"); // of chats
    const Json& file = inner && inner->is_object() ? *inner : part;
    std::string all = text_or_none(file, "filename");
    const std::string data = text_or_none(file, "file_data");
    const size_t comma = data.find(";base64,");
    const auto words = data.starts_with("data:") && comma != data.npos
                           ? encoded_text(data.substr(5, comma - 5), std::string_view(data).substr(comma + 8))
                           : std::nullopt;
    append_text(all, words ? *words : conversation_.left_out("document"), "\n");
    return all;
}

std::string MessageReader::text(const Json& object, const char* name, const std::string& path) {
    std::string all;
    each_part(object, name, limits_, path, [&](const Json& part, const std::string& type, const std::string& part_path) {
        append_text(all, part_text(part, type, part_path), "\n");
    });
    return all;
}

// Returns the text within a result of a tool that another server ran: of its parts, and of all other members that people could
// read, such as a title, an address or the output of a command.
std::string MessageReader::foreign_text(const Json& value, const std::string& path) {
    if (value.is_string()) return value.get<std::string>();
    std::string all;
    const std::string type = value.is_object() ? text_or_none(value, "type") : "";
    for (const std::string_view kind : {"text", "input_text", "output_text", "document", "search_result", "image"})
        if (type == kind) return part_text(value, type, path);
    if (value.is_structured())
        for (const auto& [key, inner] : value.items())
            if (key != "type" && !key.starts_with("encrypted_")) append_text(all, foreign_text(inner, path), "\n");
    return all;
}

// A part with nothing but a billing header is as if it were not there. An empty text is there: it is a system prompt, though an
// empty one.
void MessageReader::system(const Json& object, const char* name, const std::string& path) {
    std::string all;
    bool given = false;
    each_part(object, name, limits_, path, [&](const Json& part, const std::string& type, const std::string& part_path) {
        const std::string words = part_text(part, type, part_path);
        const std::string rest = without_billing(words);
        given |= !rest.empty() || words.empty();
        append_text(all, rest, "\n\n");
    });
    if (given) conversation_.system(all);
}

// Results of tools, which Anthropic's API has within a user's message, are turns of their own before it.
void MessageReader::user(const Json& message, const std::string& path) {
    std::string all;
    bool has_text = false, has_result = false;
    each_part(message, "content", limits_, path, [&](const Json& part, const std::string& type, const std::string& part_path) {
        if (type == "tool_result") {
            conversation_.result(shown_text(part, "tool_use_id"),
                                 read_result(conversation_, part, "content", limits_, part_path));
            has_result = true;
        } else {
            append_text(all, part_text(part, type, part_path), "\n");
            has_text = true;
        }
    });
    const Json* images = array_field(message, "images", limits_.messages, path); // Ollama's
    for (size_t i = 0; images && i < images->size(); ++i) append_text(all, conversation_.left_out("image"), "\n");
    if (has_text || !has_result) conversation_.user(all);
}

// Thinking that only its maker can read says nothing to this model, and is passed over, as are calls of tools that ran elsewhere
// and had no result that is text.
void MessageReader::part_of_answer(const Json& part, const std::string& type, const std::string& path) {
    if (type == "thinking" || type == "reasoning")
        return conversation_.reasoning(shown_text(part, member(part, type.c_str()) ? type.c_str() : "text"));
    if (type == "tool_use") return conversation_.call(shown_text(part, "id"), shown_text(part, "name"), member(part, "input"));
    if (type.ends_with("_tool_use"))
        return conversation_.foreign_call(shown_text(part, "id"), shown_text(part, "name"), member(part, "input"));
    if (type.ends_with("_tool_result")) {
        const Json* content = member(part, "content");
        return conversation_.foreign_result(shown_text(part, "tool_use_id"), content ? foreign_text(*content, path) : "");
    }
    if (type == "text" || type == "input_text" || type == "output_text" || type == "refusal")
        return conversation_.answer(shown_text(part, type == "refusal" ? "refusal" : "text"));
    if (type != "redacted_thinking") conversation_.answer(part_text(part, type, path));
}

void MessageReader::assistant(const Json& message, const std::string& path) {
    conversation_.answer("");
    for (const char* name : {"reasoning_content", "reasoning", "thinking"}) {
        const Json* reasoning = member(message, name);
        if (!reasoning || !reasoning->is_string() || *reasoning == "") continue;
        conversation_.reasoning(reasoning->get<std::string>());
        break;
    }
    each_part(message, "content", limits_, path, [&](const Json& part, const std::string& type, const std::string& part_path) {
        part_of_answer(part, type, part_path);
    });
    if (!member(message, "content")) conversation_.answer(text_or_none(message, "refusal"));
    calls(message);
}

void MessageReader::calls(const Json& message) {
    if (const Json* old = member(message, "function_call")) one_call({{"function", *old}});
    const Json* given = member(message, "tool_calls");
    if (given && given->is_array()) std::ranges::for_each(*given, [&](const Json& call) { one_call(call); });
}

void MessageReader::one_call(const Json& call) {
    const auto object = [](const Json& holder, const char* name) {
        const Json* found = holder.is_object() ? member(holder, name) : nullptr;
        return found && found->is_object() ? found : nullptr;
    };
    const std::string id = call.is_object() ? shown_text(call, "id") : "";
    if (const Json* custom = object(call, "custom")) {
        const Json arguments = {{"input", shown_text(*custom, "input")}};
        return conversation_.call(id, shown_text(*custom, "name"), &arguments);
    }
    const Json* function = object(call, "function");
    conversation_.call(id, function ? shown_text(*function, "name") : "", function ? member(*function, "arguments") : nullptr);
}

} // namespace

std::string shown_text(const Json& object, const char* name) {
    const Json* value = member(object, name);
    if (!value) return {};
    if (value->is_object()) value = value->contains("value") ? &(*value)["value"] : value;
    return value->is_string() ? value->get<std::string>() : dump_text(*value);
}

void Conversation::system(const std::string& text) {
    if (!empty()) return messages_.push_back({{"role", "system"}, {"content", text}});
    has_system_ = true;
    append_text(system_, text, "\n\n");
}

void Conversation::user(const std::string& text) { messages_.push_back({{"role", "user"}, {"content", text}}); }

// The turn of the assistant that is being built: the last message if it is one, else a new one.
Json& Conversation::assistant() {
    if (empty() || messages_.back().at("role") != "assistant") messages_.push_back({{"role", "assistant"}, {"content", ""}});
    return messages_.back();
}

void Conversation::append(const char* name, const std::string& text) {
    Json& whole = assistant()[name];
    if (whole.is_null()) whole = "";
    append_text(whole.get_ref<std::string&>(), text, "\n");
}

void Conversation::reasoning(const std::string& text) { append("reasoning_content", text); }

void Conversation::answer(const std::string& text) { append("content", text); }

// Arguments stay a text if they came as one: templates print it as it is, and parsing and printing it again would change its
// bytes, and with them the prompt that the cache knows.
void Conversation::call(const std::string& id, const std::string& name, const Json* arguments) {
    if (name.empty()) return ignore("calls without a name");
    const bool none = !arguments || arguments->is_null() || *arguments == "";
    Json shown = none ? Json("{}") : arguments->is_object() || arguments->is_string() ? *arguments : Json(dump_text(*arguments));
    assistant()["tool_calls"].push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(shown)}}}});
}

void Conversation::foreign_call(const std::string& id, const std::string& name, const Json* arguments) {
    foreign_.insert_or_assign(id, std::pair(name, arguments ? *arguments : Json()));
}

void Conversation::foreign_result(const std::string& id, const std::string& text) {
    if (!text.empty()) result(id, text);
}

void Conversation::result(const std::string& id, const std::string& text) {
    if (const auto asked = foreign_.find(id); asked != foreign_.end()) {
        call(id, asked->second.first, &asked->second.second);
        foreign_.erase(asked);
    }
    messages_.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", text}});
}

std::string Conversation::left_out(std::string_view type) {
    const std::string name = printable(type, 40);
    ignore(fmt::format("parts of messages of the type {}", name));
    return fmt::format("[{} is left out: the model reads only text]", name);
}

Json Conversation::take() {
    if (has_system_) messages_.insert(messages_.begin(), Json{{"role", "system"}, {"content", system_}});
    return std::move(messages_);
}

void each_part(const Json& object, const char* name, const Limits& limits, std::string_view path, const ReadPart& read) {
    const Json* content = member(object, name);
    const std::string field = field_path(path, name);
    if (!content) return;
    const auto read_one = [&](const Json& part, const std::string& part_path) {
        if (part.is_null()) return;
        if (part.is_string()) return read({{"type", "text"}, {"text", part}}, "text", part_path);
        if (!part.is_object()) bad_request(part_path, "{} must be a text or an object", part_path);
        const bool is_text = !member(part, "type") && member(part, "text");
        read(part, is_text ? "text" : required_text(part, "type", part_path), part_path);
    };
    if (!content->is_array()) return read_one(*content, field);
    const Json& parts = *array_field(object, name, limits.messages, path);
    for (size_t i = 0; i < parts.size(); ++i) read_one(parts[i], entry_path(field, i));
}

// A result is a text, a list of parts, or any JSON that a tool has returned; the last is shown as JSON.
std::string read_result(Conversation& conversation, const Json& object, const char* name, const Limits& limits,
                        const std::string& path) {
    const Json* given = member(object, name);
    const auto is_part = [](const Json& part) {
        if (!part.is_object() || text_or_none(part, "type").empty()) return false;
        const Json* text = member(part, "text");
        return !text || text->is_string() || text->is_object();
    };
    const bool of_parts = !given || given->is_string() || (given->is_array() && std::ranges::all_of(*given, is_part));
    const std::string text = of_parts ? MessageReader(conversation, limits).text(object, name, path) : dump_text(*given);
    const Json* is_error = member(object, "is_error");
    return is_error && *is_error == true ? "Error: " + text : text;
}

std::string read_foreign_text(Conversation& conversation, const Json& value, const Limits& limits, const std::string& path) {
    return MessageReader(conversation, limits).foreign_text(value, path);
}

void read_system(Conversation& conversation, const Json& object, const char* name, const Limits& limits,
                 const std::string& path) {
    MessageReader(conversation, limits).system(object, name, path);
}

void read_message(Conversation& conversation, const Json& message, std::span<const std::string_view> roles, const Limits& limits,
                  const std::string& path) {
    const std::string name = required_text(message, "role", path);
    if (std::ranges::find(roles, name) == roles.end())
        bad_request(field_path(path, "role"), "{}.role must be {}, but is \"{}\"", path, fmt::join(roles, ", "), printable(name));
    MessageReader reader(conversation, limits);
    if (name == "assistant") return reader.assistant(message, path);
    const bool is_result = name == "tool" || name == "function";
    if (!message.contains("content") && !is_result)
        bad_request(field_path(path, "content"), "{}.content is missing: it must be a text or a list of parts", path);
    if (name == "system" || name == "developer") return reader.system(message, "content", path);
    if (name == "user") return reader.user(message, path);
    conversation.result(shown_text(message, "tool_call_id"), read_result(conversation, message, "content", limits, path));
}

} // namespace tq::server
