// llama.cpp's own endpoints for texts and tokens, slots and properties: /props, /slots, /tokenize, /detokenize,
// /apply-template, and vLLM's /tokenizer_info. Nothing here runs the model. Fields have the names of llama-server and vLLM,
// since tools read them by name. Our own fields are added (kv_cache, pages, checkpoints, ...).
#include "base/path_text.h"
#include "model/forward.h"
#include "model/kv/options.h"
#include "tools/server/chat_parts.h"
#include "tools/server/handlers.h"
#include "tools/server/json_fields.h"
#include "tools/server/openai/messages.h"
#include "tools/server/openai/reply.h"
#include "tools/server/prompt.h"

namespace tq::server {
namespace {

uint64_t f16_bytes_per_token(const Service& service) {
    return kv_bytes_per_token(service.model.config, KvOptions{KvType::f16, KvType::f16});
}

// The defaults of a request under llama.cpp's names, with its -1 for what has no limit here.
Json sampling_params(const Service& service) {
    const SamplerOptions& o = service.options.sampling;
    const int64_t max = service.options.max_tokens == UINT32_MAX ? -1 : int64_t(service.options.max_tokens);
    return {{"n_predict", max},
            {"max_tokens", max},
            {"seed", -1},
            {"temperature", o.temperature},
            {"top_k", o.top_k},
            {"top_p", o.top_p},
            {"min_p", o.min_p},
            {"repeat_penalty", o.repeat_penalty},
            {"repeat_last_n", o.repeat_last_n == UINT32_MAX ? int64_t(-1) : int64_t(o.repeat_last_n)},
            {"presence_penalty", o.presence_penalty},
            {"frequency_penalty", o.frequency_penalty},
            {"stop", Json::array()},
            {"stream", false}};
}

// Their defaults differ: with "content" no BOS token is put before the text unless it is asked for, with "prompt" one is.
// llama.cpp's "content", or vLLM's "prompt" or "messages".
std::vector<uint32_t> tokenized(Service& service, const Json& body) {
    if (member(body, "messages")) return chat_prompt(service, read_chat_task(service, body)).ids;
    const auto content = text_field(body, "content"), prompt = text_field(body, "prompt");
    if (!content && !prompt) bad_request("content", "content is missing: it is the text to be cut into tokens");
    const char* special = content ? "add_special" : "add_special_tokens";
    const bool adds = bool_field(body, special).value_or(!content);
    const bool parses = bool_field(body, "parse_special").value_or(true);
    const std::string& text = content ? *content : *prompt;
    const Tokenizer& tokenizer = service.model.tokenizer;
    const auto turn = begin_counting(service, text.size(), content ? "content" : "prompt");
    return adds ? tokenizer.prompt(text, parses) : tokenizer.encode(text, parses);
}

// A token's text, or its bytes if they are no whole characters.
Json piece_json(std::string_view bytes) {
    Utf8Stream stream;
    if (const std::string text = stream.push(bytes) + stream.flush(); text == bytes) return text;
    Json values = Json::array();
    for (const char byte : bytes) values.push_back(uint8_t(byte));
    return values;
}

// Sends the tokens in parts, as text: the values of JSON would take many times the memory of the ids.
void send_tokens(const Service& service, const std::vector<uint32_t>& ids, bool with_pieces, const Send& send) {
    constexpr size_t part_bytes = 64 << 10;
    std::string part = R"({"tokens":[)";
    for (size_t i = 0; i < ids.size(); ++i) {
        if (i > 0) part += ',';
        part += with_pieces ? dump_text({{"id", ids[i]}, {"piece", piece_json(service.model.tokenizer.bytes(ids[i]))}})
                            : std::to_string(ids[i]);
        if (part.size() < part_bytes) continue;
        if (!send(part)) return;
        part.clear();
    }
    send.last(part + fmt::format(R"(],"count":{},"max_model_len":{}}})", ids.size(), service.scheduler.context_size()));
}

} // namespace

HttpReply props(Service& service, const HttpRequest&) {
    const auto& scheduler = service.scheduler;
    const ModelFile& file = service.model.file;
    return json_reply(
        {{"default_generation_settings",
          {{"id", 0}, {"n_ctx", scheduler.context_size()}, {"is_processing", false}, {"params", sampling_params(service)}}},
         {"total_slots", scheduler.slots()},
         {"n_ctx", scheduler.context_size()},
         {"context", scheduler.context_size()},
         {"model_alias", service.model_name()},
         {"model_path", utf8_text(file.path().filename())},
         {"modalities", {{"vision", false}, {"audio", false}}},
         {"chat_template", std::string(file.text("tokenizer.chat_template", ""))},
         {"thinks_by_default", ChatOptions{.variant = service.model.chat, .enable_thinking = service.options.think}.thinks()},
         {"build_info", service.options.build},
         {"device", service.options.device_name},
         {"kv_cache", describe(scheduler.kv())},
         {"kv_bytes_per_token", scheduler.kv_bytes_per_token()},
         {"f16_bytes_per_token", f16_bytes_per_token(service)}});
}

// Takes a single snapshot of the scheduler (status()), so that all slots are of one moment.
HttpReply slots(Service& service, const HttpRequest&) {
    const serving::Status status = service.scheduler.status();
    const uint64_t own = service.scheduler.kv_bytes_per_token(), f16 = f16_bytes_per_token(service);
    Json all = Json::array();
    for (const serving::SlotStatus& slot : status.slots)
        all.push_back({{"id", all.size()},
                       {"id_task", slot.busy ? int64_t(slot.request) : -1},
                       {"n_ctx", service.scheduler.context_size()},
                       {"is_processing", slot.busy},
                       {"n_prompt_tokens", slot.cached_tokens + slot.prompt_tokens},
                       {"n_prompt_tokens_cache", slot.cached_tokens},
                       {"n_decoded", slot.decoded_tokens},
                       {"next_token", Json::array({{{"n_decoded", slot.decoded_tokens}, {"has_next_token", slot.busy}}})},
                       {"n_tokens", slot.tokens},
                       {"pages", slot.pages},
                       {"checkpoints", slot.checkpoints},
                       {"cache_bytes", slot.tokens * own},
                       {"f16_cache_bytes", slot.tokens * f16}});
    return json_reply(all);
}

// A long list is a stream, so that no more of it is in memory than the client takes.
HttpReply tokenize(Service& service, const HttpRequest& request) {
    constexpr size_t max_whole = 4096; // tokens
    const Json body = parse_body(request.body, service.options.limits);
    const bool with_pieces = bool_field(body, "with_pieces").value_or(false);
    std::vector<uint32_t> ids = tokenized(service, body);
    HttpReply reply;
    if (ids.size() > max_whole) {
        reply.stream = [&service, ids = std::move(ids), with_pieces](const Send& send) {
            send_tokens(service, ids, with_pieces, send);
        };
        return reply;
    }
    send_tokens(service, ids, with_pieces, Send([&](std::string_view part, bool) { return reply.body += part, true; }));
    return reply;
}

HttpReply tokenizer_info(Service& service, const HttpRequest&) {
    const ModelFile& file = service.model.file;
    const Tokenizer& tokenizer = service.model.tokenizer;
    const auto literal = [&](std::optional<uint32_t> id) { return id ? Json(std::string(tokenizer.bytes(*id))) : Json(); };
    const std::vector<uint32_t> begin = tokenizer.prompt("");
    const auto end = tokenizer.end_id();
    return json_reply({{"tokenizer_class", std::string(file.text("tokenizer.ggml.model", ""))},
                       {"bos_token", begin.empty() ? Json() : literal(begin.front())},
                       {"eos_token", literal(end ? end : tokenizer.special("<|im_end|>"))},
                       {"pad_token", literal(tokenizer.padding_id())},
                       {"model_max_length", service.scheduler.context_size()},
                       {"chat_template", std::string(file.text("tokenizer.chat_template", ""))}});
}

// A character may be divided among tokens, so the bytes go through one Utf8Stream. Bytes that are no UTF-8 become U+FFFD, since
// JSON cannot hold them.
HttpReply detokenize(Service& service, const HttpRequest& request) {
    const Json body = parse_body(request.body, service.options.limits);
    const Json* const tokens = array_field(body, "tokens", SIZE_MAX);
    if (!tokens) bad_request("tokens", "tokens is missing: it is a list of token ids");
    const Tokenizer& tokenizer = service.model.tokenizer;
    Utf8Stream stream;
    std::string text;
    const uint64_t max = service.options.limits.counted_bytes;
    for (const uint32_t id : read_ids(service, *tokens, "tokens")) {
        text += stream.push(tokenizer.bytes(id));
        if (text.size() > max) bad_request("tokens", "\"tokens\" are those of a text of more than {} bytes: divide them", max);
    }
    text += stream.flush();
    return json_reply({{"content", text}, {"prompt", text}});
}

HttpReply apply_template(Service& service, const HttpRequest& request) {
    const Json body = parse_body(request.body, service.options.limits);
    const ChatPrompt prompt = chat_prompt(service, read_chat_task(service, body));
    return json_reply({{"prompt", service.model.tokenizer.decode(prompt.ids, false)}});
}

} // namespace tq::server
