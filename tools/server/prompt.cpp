#include "tools/server/prompt.h"

namespace tq::server {
namespace {

// Where the last message is the assistant's, with something to continue.
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
                        ChatVariant variant) {
    if (variant == ChatVariant::hybrid && !reasoning.empty()) pieces.push_back({"<think>\n", true});
    if (variant == ChatVariant::thinking || (variant == ChatVariant::hybrid && !reasoning.empty())) {
        pieces.push_back({reasoning, false});
        pieces.push_back({"\n</think>\n\n", true});
    }
    pieces.push_back({content, false});
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

Thinking thinking_of(const Service& service, const ChatTask& task) {
    const ChatVariant variant = service.model.chat;
    Thinking thinking;
    if (!may_think(variant)) return thinking;
    thinking.budget = task.thinking_budget ? task.thinking_budget : service.options.reasoning_budget;
    const bool wanted = task.think.value_or(service.options.think.value_or(true));
    thinking.open = variant == ChatVariant::thinking;
    // A hybrid model has the template's own way not to think; one that always thinks closes it at once.
    thinking.possible = variant == ChatVariant::hybrid && wanted && thinking.budget != 0u;
    if (thinking.open && task.think == false) thinking.budget = 0;
    return thinking;
}

} // namespace

void require_fits(const Service& service, size_t prompt_tokens, const char* param) {
    const uint32_t context = service.scheduler.context_size();
    if (prompt_tokens <= context) return;
    throw ApiError(400, "invalid_request_error",
                   fmt::format("This model's maximum context length is {} tokens. However, your {} resulted in {} tokens. Please "
                               "reduce the length of the {}.",
                               context, param, prompt_tokens, param),
                   param, "context_length_exceeded");
}

ChatPrompt chat_prompt(const Service& service, const ChatTask& task) {
    const ChatVariant variant = service.model.chat;
    ChatPrompt prompt{{}, thinking_of(service, task), false};
    Json messages = task.messages;
    std::string content, reasoning;
    if (ends_open(messages)) {
        const Json last = messages.back();
        if (last.contains("tool_calls") && !last["tool_calls"].empty())
            bad_request("messages",
                        "the last message calls tools, but no result follows: add a message of the role \"tool\" for each");
        rendered([&] { return render_chat(Json::array({last}), nullptr, {variant}); }); // for its error
        content = text_member(last, "content"), reasoning = text_member(last, "reasoning_content");
        messages.erase(messages.size() - 1);
        prompt.continues = !content.empty() || !reasoning.empty();
    }
    const bool open_thinking = prompt.thinking.possible && !prompt.continues;
    const ChatOptions options{variant, true, open_thinking || !reasoning.empty()};
    prompt.ids = rendered([&] {
        std::vector<Piece> pieces = render_chat(messages, task.tools, options);
        if (prompt.continues) append_open_answer(pieces, reasoning, content, variant);
        return service.model.tokenizer.encode(pieces);
    });
    if (prompt.continues) prompt.thinking = {};
    return prompt;
}

std::vector<uint32_t> answered_prompt(const Service& service, const ChatTask& task, const ParsedAnswer& answer) {
    Json message = {{"role", "assistant"}, {"content", answer.content}};
    for (const ParsedAnswer::Call& call : answer.calls)
        message["tool_calls"].push_back(
            {{"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    Json messages = task.messages;
    messages.push_back(std::move(message));
    // The template treats the last message otherwise: another follows, which is cut off again.
    messages.push_back({{"role", answer.calls.empty() ? "user" : "tool"}, {"content", ""}});
    std::vector<Piece> pieces = render_chat(messages, task.tools, {service.model.chat, false, true});
    std::string& end = pieces.back().text;
    end.erase(std::min(end.rfind(is_llama(service.model.chat) ? "<|start_header_id|>" : "<|im_start|>"), end.size()));
    return service.model.tokenizer.encode(pieces);
}

} // namespace tq::server
