// Renders the Jinja templates of Qwen2.5 and Qwen3 in C++, and reads what all templates get. The template's own text is markup,
// the callers' text is not.
// The prompt must be what the model's own template gives, byte for byte, with its line ends and its quirks, as the model was
// trained on that text. Jinja itself is not run: of the file's template only the variant is taken (chat_variant), and the system
// prompt of conversations without one. Pieces keep apart what nobody may forge. The tokenizer finds special tokens in markup
// alone, so that an <|im_end|> in a message or a tool's description is text and ends no turn. Llama's and Qwen3.5's templates,
// and the XML of Qwen3-Coder, have files of their own.
#include "model/text/chat_template.h"
#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "model/text/chat_message.h"
#include "model/text/coder_template.h"
#include "model/text/llama_template.h"
#include "model/text/python_json.h"
#include "model/text/qwen35_template.h"
#include <nlohmann/json.hpp>

namespace tq {
namespace {

using Json = nlohmann::ordered_json;
using Role = ChatMessage::Role;
using ToolCall = ChatMessage::ToolCall;
using Message = ChatMessage;

constexpr std::string_view turn_end = "<|im_end|>\n";
constexpr std::string_view empty_thinking = "<think>\n\n</think>\n\n";

constexpr std::string_view tools_intro = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
                                         "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
constexpr std::string_view tools_outro =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
    "<args-json-object>}\n</tool_call>";

// Reads one message; every error begins with its index.
// Messages come from clients, and the errors go back to them. `content` may be a text or a list of text parts, as in OpenAI's
// API; an assistant's message may have calls and no content.
class MessageReader {
  public:
    MessageReader(const Json& json, size_t index) : json_(json), index_(index) {}

    Message read() const {
        if (!json_.is_object()) refuse("is not an object");
        Message message{read_role(), {}, {}, {}};
        const bool is_assistant = message.role == Role::assistant;
        if (!is_assistant && !json_.contains("content")) refuse("has no content");
        message.content = read_content();
        if (is_assistant) {
            message.reasoning_content = read_reasoning();
            message.tool_calls = read_tool_calls();
        }
        return message;
    }

  private:
    template <class... Args> [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
        fail("message {} {}", index_, fmt::format(format, std::forward<Args>(args)...));
    }

    // Returns a member; a null member counts as absent.
    static const Json* member(const Json& object, const char* key) {
        const auto entry = object.find(key);
        return entry == object.end() || entry->is_null() ? nullptr : &*entry;
    }

    Role read_role() const {
        const Json* role = member(json_, "role");
        if (!role || !role->is_string()) refuse("has no role");
        const auto& name = role->get_ref<const std::string&>();
        if (name == "system") return Role::system;
        if (name == "user") return Role::user;
        if (name == "assistant") return Role::assistant;
        if (name == "tool") return Role::tool;
        refuse("has the role \"{}\"; known are system, user, assistant and tool", printable(name));
    }

    std::string read_content() const {
        const Json* content = member(json_, "content");
        if (!content) return {};
        if (content->is_string()) return content->get<std::string>();
        if (!content->is_array()) refuse("has a content that is neither text, null nor a list of text parts");
        std::string text;
        for (const Json& part : *content) {
            const Json* type = part.is_object() ? member(part, "type") : nullptr;
            const Json* words = part.is_object() ? member(part, "text") : nullptr;
            if (!type || *type != "text" || !words || !words->is_string())
                refuse("has a content part that is not {{\"type\": \"text\", \"text\": \"...\"}}; only text is supported");
            text += words->get_ref<const std::string&>();
        }
        return text;
    }

    std::optional<std::string> read_reasoning() const {
        const Json* reasoning = member(json_, "reasoning_content");
        if (!reasoning) return std::nullopt;
        if (!reasoning->is_string()) refuse("has a reasoning_content that is not text");
        return reasoning->get<std::string>();
    }

    std::vector<ToolCall> read_tool_calls() const {
        const Json* list = member(json_, "tool_calls");
        if (!list) return {};
        if (!list->is_array()) refuse("has tool_calls that are not a list");
        std::vector<ToolCall> calls;
        for (const Json& call : *list) {
            if (!call.is_object()) refuse("has a tool call that is not an object");
            const Json* function = member(call, "function");
            const Json& body = function ? *function : call;
            const Json* name = body.is_object() ? member(body, "name") : nullptr;
            const Json* arguments = body.is_object() ? member(body, "arguments") : nullptr;
            if (!name || !name->is_string()) refuse("has a tool call without a name");
            if (!arguments) refuse("has a tool call without arguments");
            calls.push_back({name->get<std::string>(), *arguments});
        }
        return calls;
    }

    const Json& json_;
    const size_t index_;
};

std::string_view strip_left(std::string_view text) {
    const size_t begin = text.find_first_not_of('\n');
    return begin == text.npos ? std::string_view() : text.substr(begin);
}

std::string_view strip_right(std::string_view text) { return text.substr(0, text.find_last_not_of('\n') + 1); }

void render_turn(PromptPieces& prompt, std::string_view role, std::string_view content) {
    prompt.markup("<|im_start|>");
    prompt.markup(role);
    prompt.markup("\n");
    prompt.content(content);
    prompt.markup(turn_end);
}

void render_coder_system(PromptPieces& prompt, const Message& first, const Json& tools, ChatVariant variant) {
    prompt.markup("<|im_start|>system\n");
    if (first.role == Role::system)
        prompt.content(first.content);
    else
        prompt.markup(coder_system);
    prompt.markup("\n\n");
    const bool is_next = variant == ChatVariant::coder_next;
    prompt.markup(is_next ? coder_next_intro : coder_intro);
    for (const Json& tool : tools) prompt.content(coder_tool(tool));
    prompt.markup(is_next ? coder_next_outro : coder_outro);
    prompt.markup(turn_end);
}

// Tools stand in the system turn, behind the system prompt of the conversation. Without either there is no system turn.
void render_system(PromptPieces& prompt, const Message& first, const Json& tools, ChatVariant variant) {
    const bool has_system = first.role == Role::system;
    if (has_xml_calls(variant) && !tools.empty()) return render_coder_system(prompt, first, tools, variant);
    if (tools.empty()) {
        if (has_system) render_turn(prompt, "system", first.content);
        return;
    }
    prompt.markup("<|im_start|>system\n");
    if (has_system) {
        prompt.content(first.content);
        prompt.markup("\n\n");
    }
    prompt.markup(tools_intro);
    for (const Json& tool : tools) {
        prompt.markup("\n");
        prompt.content(python_json(tool));
    }
    prompt.markup(tools_outro);
    prompt.markup(turn_end);
}

void render_coder_calls(PromptPieces& prompt, const Message& message, size_t index, const ChatOptions& options) {
    const std::string_view content = python_strip(message.content);
    prompt.markup("<|im_start|>assistant");
    if (!content.empty()) {
        prompt.markup("\n");
        prompt.content(content);
        prompt.markup("\n");
    }
    for (const ToolCall& call : message.tool_calls) {
        prompt.markup("\n<tool_call>\n");
        prompt.content(coder_call(call, index, options));
        prompt.markup("</tool_call>");
    }
    prompt.markup(turn_end);
}

// A response's own turn begins only after another message; the system message does not count.
void render_coder_tool(PromptPieces& prompt, const Message& message, bool begins_turn, bool is_last) {
    if (begins_turn) prompt.markup("<|im_start|>user\n");
    prompt.markup("<tool_response>\n");
    prompt.content(message.content);
    prompt.markup("\n</tool_response>\n");
    if (is_last) prompt.markup(turn_end);
}

// Reasoning is kept only after the last query, to which the model is still working on the answer.
void render_assistant(PromptPieces& prompt, const Message& message, bool behind_query, bool is_last, ChatVariant variant) {
    const DividedAnswer answer =
        may_think(variant) ? divide_answer(message.reasoning_content, message.content) : DividedAnswer{{}, message.content};
    prompt.markup("<|im_start|>assistant\n");
    if (may_think(variant) && behind_query && (is_last || !answer.reasoning.empty())) {
        prompt.markup("<think>\n");
        prompt.content(strip_left(strip_right(answer.reasoning)));
        prompt.markup("\n</think>\n\n");
        prompt.content(strip_left(answer.content));
    } else {
        prompt.content(answer.content);
    }
    bool first = true;
    for (const ToolCall& call : message.tool_calls) {
        if (!first || !answer.content.empty()) prompt.markup("\n");
        prompt.markup("<tool_call>\n{\"name\": \"");
        prompt.content(call.name);
        prompt.markup("\", \"arguments\": ");
        prompt.content(call.text());
        prompt.markup("}\n</tool_call>");
        first = false;
    }
    prompt.markup(turn_end);
}

// Adjacent tool messages are one user turn.
void render_tool(PromptPieces& prompt, const Message& message, bool is_first, bool is_last) {
    if (is_first) prompt.markup("<|im_start|>user");
    prompt.markup("\n<tool_response>\n");
    prompt.content(message.content);
    prompt.markup("\n</tool_response>");
    if (is_last) prompt.markup(turn_end);
}

std::vector<Message> read_messages(const Json& json) {
    if (!json.is_array() || json.empty()) fail("\"messages\" is not a list of at least one message");
    std::vector<Message> messages;
    for (const Json& message : json) messages.push_back(MessageReader(message, messages.size()).read());
    return messages;
}

void check_tools(const Json& tools) {
    if (tools.is_null()) return;
    if (!tools.is_array()) fail("\"tools\" is not a list");
    for (size_t i = 0; i < tools.size(); ++i)
        if (!tools[i].is_object()) fail("tool {} is not an object", i);
}

// Jinja is not run here. The templates of one family differ in few phrases, and each of these phrases stands for the changes of a
// release. They are looked for from the newest release to the oldest, since later templates keep what earlier ones had.
ChatVariant variant_of_xml_calls(std::string_view text) {
    const auto has = [&](std::string_view words) { return text.find(words) != text.npos; };
    if (has("preserve_thinking is undefined")) return ChatVariant::qwen38;
    if (has("preserve_thinking")) return ChatVariant::qwen36;
    if (has("enable_thinking") || has("render_content"))
        return has("enable_thinking is true") ? ChatVariant::qwen35_small : ChatVariant::qwen35;
    return has("following tools:") ? ChatVariant::coder_next : ChatVariant::coder;
}

} // namespace

std::string ChatMessage::ToolCall::text() const {
    return arguments.is_string() ? arguments.get<std::string>() : python_json(arguments);
}

Json ChatMessage::ToolCall::object(size_t message) const {
    Json object = arguments;
    if (const auto* text = object.get_ptr<const std::string*>())
        object = build_json<Json>(*text, fmt::format("message {} has a tool call whose arguments are wrong", message),
                                  {.max_depth = 128, .repeated_keys = true, .lone_surrogates = true});
    if (!object.is_object()) fail("message {} has a tool call whose arguments are not a JSON object", message);
    return object;
}

// Without reasoning_content the reasoning is what precedes the first </think>, from the last <think> in it on; the content is
// what follows the last </think>. Text between two closing tags is in neither, as in the templates. Line ends at the seams belong
// to the template, and are removed.
DividedAnswer divide_answer(const std::optional<std::string>& reasoning_content, std::string_view content) {
    constexpr std::string_view open = "<think>", close = "</think>";
    if (reasoning_content) return {*reasoning_content, content};
    const size_t first_close = content.find(close);
    if (first_close == content.npos) return {{}, content};
    std::string_view reasoning = strip_right(content.substr(0, first_close));
    if (const size_t last_open = reasoning.rfind(open); last_open != reasoning.npos)
        reasoning.remove_prefix(last_open + open.size());
    return {strip_left(reasoning), strip_left(content.substr(content.rfind(close) + close.size()))};
}

// A user's message that is a tool's response is no query: some clients send results as messages of the user.
size_t last_query(const std::vector<ChatMessage>& messages, bool stripped) {
    for (size_t i = messages.size(); i-- > 0;) {
        const std::string_view content = stripped ? python_strip(messages[i].content) : messages[i].content;
        const bool is_response = content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
        if (messages[i].role == Role::user && !is_response) return i;
    }
    return messages.size() - 1;
}

std::optional<ChatVariant> find_chat_variant(std::string_view name) {
    for (const auto& [known, variant] : chat_variant_names)
        if (name == known) return variant;
    return std::nullopt;
}

std::optional<ReasoningEffort> find_effort(std::string_view name) {
    if (name == "low") return ReasoningEffort::low;
    if (name == "medium") return ReasoningEffort::medium;
    return name == "high" || name == "xhigh" || name == "max" ? std::optional(ReasoningEffort::xhigh) : std::nullopt;
}

// The order of these tests matters: each looks for what only the remaining families have. A template that writes <think> behind
// the generation prompt and never closes it is of a model that always thinks.
ChatVariant chat_variant(const ModelFile& file) {
    const std::string_view text = file.text("tokenizer.chat_template", "");
    if (text.find("<|start_header_id|>") != text.npos)
        return text.find("Cutting Knowledge Date") == text.npos ? ChatVariant::llama3
               : text.find("strftime_now") == text.npos         ? ChatVariant::llama31
                                                                : ChatVariant::llama32;
    if (text.find("<parameter=") != text.npos) return variant_of_xml_calls(text);
    if (text.find("enable_thinking") != text.npos) return ChatVariant::hybrid;
    const size_t generation = text.rfind("add_generation_prompt");
    if (generation == text.npos || text.find("<think>", generation) == text.npos) return ChatVariant::instruct;
    const bool closes = text.find("</think>", generation) != text.npos;
    return closes ? ChatVariant::hybrid : ChatVariant::thinking;
}

std::vector<Piece> render_chat(const Json& messages_json, const Json& tools, const ChatOptions& options) {
    const std::vector<Message> messages = read_messages(messages_json);
    check_tools(tools);
    PromptPieces prompt;
    if (is_llama(options.variant)) {
        render_llama(prompt, messages, tools, options);
        return prompt.take();
    }
    if (is_qwen35(options.variant)) {
        render_qwen35(prompt, messages, tools, options);
        return prompt.take();
    }
    render_system(prompt, messages[0], tools, options.variant);
    const size_t query = last_query(messages);
    for (size_t i = 0; i < messages.size(); ++i) {
        const Message& message = messages[i];
        const bool is_last = i + 1 == messages.size();
        switch (message.role) {
        case Role::user: render_turn(prompt, "user", message.content); break;
        case Role::system:
            if (i > 0) render_turn(prompt, "system", message.content);
            break;
        case Role::assistant:
            if (has_xml_calls(options.variant) && !message.tool_calls.empty())
                render_coder_calls(prompt, message, i, options);
            else
                render_assistant(prompt, message, i > query, is_last, options.variant);
            break;
        case Role::tool: {
            const bool begins = i == 0 || messages[i - 1].role != Role::tool,
                       ends = is_last || messages[i + 1].role != Role::tool;
            if (has_xml_calls(options.variant))
                render_coder_tool(prompt, message, begins && i > (messages[0].role == Role::system ? 1u : 0u), ends);
            else
                render_tool(prompt, message, begins, ends);
        }
        }
    }
    if (options.add_generation_prompt) {
        prompt.markup("<|im_start|>assistant\n");
        if (options.opens_thinking()) prompt.markup("<think>\n");
        if (options.variant == ChatVariant::hybrid && !options.thinks()) prompt.markup(empty_thinking);
    }
    return prompt.take();
}

std::string to_text(std::span<const Piece> pieces) {
    std::string text;
    for (const Piece& piece : pieces) text += piece.text;
    return text;
}

std::vector<uint32_t> message_marks(const Tokenizer& tokenizer, std::span<const uint32_t> prompt) {
    std::vector<uint32_t> begins;
    const auto begin = tokenizer.special("<|im_start|>"), header = tokenizer.special("<|start_header_id|>");
    for (uint32_t at = 0; at < prompt.size(); at++)
        if (prompt[at] == begin || prompt[at] == header) begins.push_back(at);
    if (begins.size() > 4) begins.erase(begins.begin() + 2, begins.end() - 2);
    if (!begins.empty()) begins.erase(begins.begin());
    return begins;
}

} // namespace tq
