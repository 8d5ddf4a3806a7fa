// A request of the Responses API. "input" is a text or a list of items: messages, reasoning, calls and their results. Items
// become turns by Conversation, as messages of other APIs do. Nothing is stored here, so what would refer to a stored response is
// refused: to answer without it would be wrong in silence. One exception is item_reference, which some clients send for items of
// the answer before; the server keeps the last ones (ItemMemory). A reference that is found within an item is not followed again.
// Reasoning comes back as the client got it: as text, or in "encrypted_content", where it is not encrypted but marked
// (reasoning_seal), so that the content of other servers is not taken for text.
#include "base/printable.h"
#include "tools/server/conversation.h"
#include "tools/server/openai/responses.h"
#include <algorithm>

namespace tq::server::responses_api {
namespace {

// Clients send reasoning back as they got it: in its content, or sealed. Summaries are other models'.
std::string read_reasoning(const Json& item, const Limits& limits, const std::string& path) {
    const std::string sealed = shown_text(item, "encrypted_content");
    if (sealed.starts_with(reasoning_seal)) return sealed.substr(reasoning_seal.size());
    const Json* content = member(item, "content");
    if (!content || !content->is_array()) return shown_text(item, "content");
    std::string text;
    for (const Json& part : *array_field(item, "content", limits.messages, path))
        append_text(text, part.is_object() ? shown_text(part, "text") : "", "\n");
    return text;
}

// Reads an item of a tool that another server ran, whose result is in the item, or in one that follows (..._output). Without a
// result a call says nothing to this model.
void read_foreign(Conversation& conversation, const Json& item, const std::string& type, const Limits& limits,
                  const std::string& path) {
    const std::string call_id = shown_text(item, "call_id"), id = call_id.empty() ? shown_text(item, "id") : call_id;
    if (type.ends_with("_output")) return conversation.result(id, read_result(conversation, item, "output", limits, path));
    std::string text;
    for (const char* name : {"output", "outputs", "results", "error"})
        if (const Json* found = member(item, name))
            append_text(text, read_foreign_text(conversation, *found, limits, path), "\n");
    if (!type.ends_with("_call") || (text.empty() && call_id.empty()))
        return conversation.ignore(fmt::format("items of the type {}", printable(type, 40)));
    const std::string name = shown_text(item, "name");
    Json arguments = Json::object();
    for (const char* key : {"action", "code", "queries", "operation"})
        if (const Json* found = member(item, key)) arguments[key] = *found;
    const Json* given = member(item, "arguments");
    conversation.foreign_call(id, name.empty() ? type.substr(0, type.size() - std::string_view("_call").size()) : name,
                              given ? given : &arguments);
    conversation.foreign_result(id, text);
}

void read_item(Conversation& conversation, const Json& item, const Limits& limits, const std::string& path,
               const FindItem& find_item) {
    constexpr std::string_view roles[]{"user", "assistant", "system", "developer"};
    const bool refers = member(item, "id") && !member(item, "role"); // to an item, whose type may be left out
    const std::string type = text_field(item, "type", path).value_or(refers ? "item_reference" : "message");
    const auto call_id = [&] { return shown_text(item, "call_id"); };
    const auto name = [&] { return shown_text(item, "name"); };
    if (type == "message") return read_message(conversation, item, roles, limits, path);
    if (type == "reasoning") return conversation.reasoning(read_reasoning(item, limits, path));
    if (type == "function_call") return conversation.call(call_id(), name(), member(item, "arguments"));
    if (type == "custom_tool_call") {
        const Json arguments = {{"input", shown_text(item, "input")}};
        return conversation.call(call_id(), name(), &arguments);
    }
    if (type == "item_reference") {
        const auto found = find_item ? find_item(text_field(item, "id", path).value_or("")) : std::nullopt;
        if (found) return read_item(conversation, *found, limits, path, {});
        bad_request(path,
                    "{} refers to an item of an earlier response, of which only the last are kept: send the item itself "
                    "(store: false)",
                    path);
    }
    read_foreign(conversation, item, type, limits, path);
}

// Refuses requests that need stored responses: an answer without these would be wrong.
void refuse_stored(const Json& body) {
    if (member(body, "previous_response_id"))
        bad_request("previous_response_id",
                    "previous_response_id is not supported, because responses are not stored (store): send "
                    "the whole conversation as input");
    if (member(body, "conversation"))
        bad_request("conversation",
                    "conversation is not supported, because nothing is stored: send the whole conversation as input");
    if (member(body, "prompt"))
        bad_request("prompt", "prompt is not supported, because no prompts are stored: send instructions and input");
    if (bool_field(body, "background").value_or(false))
        bad_request("background", "background is not supported, because responses are not stored: use stream");
}

Json member_or(const Json& body, const char* name, Json otherwise) {
    const Json* value = member(body, name);
    return value ? *value : std::move(otherwise);
}

// OpenAI's metadata are texts. Others are not repeated: a tree would lie in memory until the answer's end.
Json texts_of(const Json* metadata) {
    constexpr size_t max_pairs = 16;
    Json texts = Json::object();
    if (metadata)
        for (const auto& [name, value] : metadata->items())
            if (value.is_string() && texts.size() < max_pairs) texts[name] = value;
    return texts;
}

Json echo_of(const Json& body, const ChatTask& task) {
    return {{"instructions", member_or(body, "instructions", nullptr)},
            {"max_output_tokens", member_or(body, "max_output_tokens", nullptr)},
            {"parallel_tool_calls", task.parallel_tool_calls},
            {"previous_response_id", nullptr},
            {"reasoning", member_or(body, "reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
            {"store", false},
            {"text", member_or(body, "text", {{"format", {{"type", "text"}}}})},
            {"tool_choice", member_or(body, "tool_choice", "auto")},
            {"tools", member_or(body, "tools", Json::array())},
            {"top_logprobs", task.sampling.top_logprobs},
            {"truncation", "disabled"},
            {"user", nullptr},
            {"metadata", texts_of(object_field(body, "metadata"))}};
}

// "include": what the response holds beyond its text. Names that are not known are for tools that are not offered here.
void read_include(Request& request, const Json& body, const Limits& limits) {
    const Json* include = array_field(body, "include", limits.tools);
    const auto has = [&](const char* name) {
        return include && std::find(include->begin(), include->end(), name) != include->end();
    };
    request.sealed_reasoning = has("reasoning.encrypted_content");
    Sampling& sampling = request.task.sampling;
    const auto top = integer_field(body, "top_logprobs", 0, limits.top_logprobs);
    sampling.logprobs = has("message.output_text.logprobs") || top.value_or(0) > 0;
    sampling.top_logprobs = uint32_t(top.value_or(0));
}

} // namespace

static Conversation read_conversation(const Json& body, const Limits& limits, const FindItem& find_item) {
    Conversation conversation;
    read_system(conversation, body, "instructions", limits, "");
    const Json* input = member(body, "input");
    if (!input || !(input->is_string() || input->is_array())) bad_request("input", "input must be a text or a list of items");
    if (input->is_string()) {
        conversation.user(input->get<std::string>());
    } else {
        const Json& items = *array_field(body, "input", limits.messages);
        for (size_t i = 0; i < items.size(); ++i)
            read_item(conversation, object_entry(items, i, "input"), limits, entry_path("input", i), find_item);
    }
    if (conversation.empty()) conversation.user(""); // clients probe a server with no input at all
    return conversation;
}

Json read_items(const Json& body, const Limits& limits) { return read_conversation(body, limits, {}).take(); }

Request read(const Json& body, const Limits& limits) { return read_with_items(body, limits, {}); }

Request read_with_items(const Json& body, const Limits& limits, const FindItem& find_item) {
    refuse_stored(body);
    Request request;
    ChatTask& task = request.task;
    Conversation conversation = read_conversation(body, limits, find_item);
    task.messages = conversation.take();
    task.ignored = conversation.ignored();
    read_tools(task, body, limits);
    read_reasoning(task, body);
    if (const Json* text = object_field(body, "text"))
        task.format = read_format(object_field(*text, "format", "text"), "text.format");
    if (const auto tokens = integer_field(body, "max_output_tokens", 1, INT32_MAX)) task.sampling.max_tokens = uint32_t(*tokens);
    request.stream = bool_field(body, "stream").value_or(false);
    read_include(request, body, limits);
    request.echo = echo_of(body, task);
    return request;
}

} // namespace tq::server::responses_api
