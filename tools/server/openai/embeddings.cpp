// POST /v1/embeddings: OpenAI's shape. The vector of a text is the state of its last token after the last norm, of length 1.
// A model of embeddings expects its end token behind each input, because the state of that token is the vector (embedding_end).
// Ollama's two endpoints and llama.cpp's are here as well: they differ in the names of fields and in what surrounds the vectors.
// No special tokens are found in texts, but in those of llama.cpp's form, as in its other endpoints: these are raw prompts.
#include "base/printable.h"
#include "tools/server/handlers.h"
#include "tools/server/ignored_fields.h"
#include "tools/server/json_fields.h"
#include "tools/server/prompt.h"
#include "tools/server/prompt_values.h"
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <fmt/ranges.h>

namespace tq::server {
namespace {

struct EmbeddingsTask {
    std::vector<std::vector<uint32_t>> prompts;
    bool one = false; // the input is not a list of inputs
    uint32_t dimensions;
    int64_t norm = 2; // embd_normalize
    bool base64 = false, special = false;
    const char* name = "input"; // of the field

    std::string field(size_t i) const { return one ? name : fmt::format("{}[{}]", name, i); }
};

void require_last_token(const Model& model) {
    const Pooling pooling = pooling_of(model.file);
    if (pooling != Pooling::last && pooling != Pooling::unsaid)
        bad_request("model",
                    "{} makes no embeddings here: its file asks for pooling by \"{}\", and this server takes the last token's "
                    "state. Load a model such as Qwen3-Embedding{}",
                    model.name, pooling_name(pooling), pooling == Pooling::rank ? "; this one answers POST /v1/rerank" : "");
}

// Returns the id that texts must end with, if any: the file's end token if it says so; if it says nothing and the file is a
// Qwen3-Embedding, the id that this model needs.
std::optional<uint32_t> embedding_end(const Model& model) {
    constexpr const char* key = "tokenizer.ggml.add_eos_token";
    if (model.file.find(key)) return model.file.boolean(key, false) ? model.tokenizer.end_id() : std::nullopt;
    const bool embeds = pooling_of(model.file) == Pooling::last || lowercase(model.name).find("embedding") != std::string::npos;
    return embeds ? model.tokenizer.special("<|endoftext|>") : std::nullopt;
}

std::vector<uint32_t> read_embedding_input(const Service& service, const Json& input, const std::string& field, bool special) {
    if (input.is_array() ? input.empty() : input == "") bad_request(field, "\"{}\" is empty", field);
    std::vector<uint32_t> ids = prompt_ids(service, input, field, special);
    if (ids.empty())
        bad_request(field, "\"{}\" has no character that the model's vocabulary knows", field); // Bpe leaves out such bytes
    const auto end = embedding_end(service.model);
    if (end && ids.back() != *end) ids.push_back(*end);
    return ids;
}

void read_embedding_inputs(EmbeddingsTask& task, const Service& service, const Json& body) {
    const Json* input = member(body, task.name);
    if (!input) bad_request(task.name, "\"{}\" is missing: a text, a list of texts, or of lists of token ids", task.name);
    task.one = is_one_prompt(*input);
    if (task.one) {
        task.prompts.push_back(read_embedding_input(service, *input, task.name, task.special));
        return;
    }
    array_field(body, task.name, service.options.limits.batch_inputs);
    for (size_t i = 0; i < input->size(); i++)
        task.prompts.push_back(read_embedding_input(service, (*input)[i], task.field(i), task.special));
}

// All fields but the inputs.
EmbeddingsTask read_embeddings(const Service& service, const Json& body) {
    EmbeddingsTask task;
    const uint32_t max = service.model.config.hidden_size;
    task.dimensions = uint32_t(integer_field(body, "dimensions", 1, max).value_or(max));
    const std::string format = text_field(body, "encoding_format").value_or("float");
    if (format != "float" && format != "base64")
        bad_request("encoding_format", "\"encoding_format\" must be \"float\" or \"base64\"");
    task.base64 = format == "base64";
    task.norm = integer_field(body, "embd_normalize", -1, 100).value_or(task.norm);
    return task;
}

// Returns the first `dimensions` numbers, divided by their norm as "embd_normalize" says: -1: none, 0: so that the largest number
// is that of an int16, 1: the sum of absolute values, 2: the length, p: the p-norm.
// Models of this kind are trained so that the first numbers of a vector are a good shorter vector (Matryoshka); it must be
// normalised again.
std::vector<float> embedding_vector(std::span<const float> state, const EmbeddingsTask& task) {
    const std::span<const float> values = state.first(task.dimensions);
    double largest = 0, sum = 0;
    for (const float value : values) largest = std::max(largest, std::abs(double(value)));
    if (!(largest > 0)) throw ApiError(500, "server_error", "the model computed a state of zeros: its file may be damaged");
    const double kind = double(task.norm), scale = kind == 2 ? 1 : largest; // so that no power is too large
    if (kind > 0)
        for (const float value : values) sum += kind == 2 ? double(value) * value : std::pow(std::abs(value) / scale, kind);
    const double norm = kind < 0 ? 1 : kind == 0 ? largest / 32760 : kind == 2 ? std::sqrt(sum) : scale * std::pow(sum, 1 / kind);
    std::vector<float> out;
    for (const float value : values) out.push_back(float(value / norm));
    return out;
}

// The fp32 numbers, lowest byte first, in RFC 4648's alphabet.
std::string base64_of(std::span<const float> values) {
    constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes, out;
    for (const float value : values)
        for (uint32_t shift = 0; shift < 32; shift += 8) bytes += char(std::bit_cast<uint32_t>(value) >> shift);
    for (size_t at = 0; at < bytes.size(); at += 3) {
        const size_t count = std::min<size_t>(3, bytes.size() - at);
        uint32_t bits = 0;
        for (size_t i = 0; i < 3; i++) bits = bits << 8 | (i < count ? uint8_t(bytes[at + i]) : 0);
        for (size_t i = 0; i < 4; i++) out += i <= count ? alphabet[bits >> (18 - 6 * i) & 63] : '=';
    }
    return out;
}

// Written by hand: the shortest text of a float is half as long as that of the double that it becomes in a JSON value.
std::string embeddings_body(const Service& service, const EmbeddingsTask& task, const PromptValues& results) {
    std::string body = R"({"object":"list","data":[)";
    for (size_t i = 0; i < results.values.size(); i++) {
        const std::vector<float> vector = embedding_vector(results.values[i], task);
        body += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":)", i == 0 ? "" : ",", i);
        body += task.base64 ? fmt::format(R"("{}","encoding_format":"base64"}})", base64_of(vector))
                            : fmt::format("[{}]}}", fmt::join(vector, ","));
    }
    return body + fmt::format(R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                              Json(service.model_name()).dump(), results.prompt_tokens, results.prompt_tokens);
}

} // namespace

static PromptValues run_embeddings(Service& service, const HttpRequest& request, const EmbeddingsTask& task) {
    return run_prompts(service, request, task.prompts, {}, [&](size_t i) { return task.field(i); });
}

// llama.cpp's form: a list of vectors for each text, which for a pooled state has one.
static std::string llama_embeddings_body(const EmbeddingsTask& task, const PromptValues& results) {
    std::string list;
    for (size_t i = 0; i < results.values.size(); i++)
        list += fmt::format(R"({}{{"index":{},"embedding":[[{}]]}})", i == 0 ? "" : ",", i,
                            fmt::join(embedding_vector(results.values[i], task), ","));
    return "[" + list + "]";
}

// As in llama.cpp, "content" instead of "input" asks for its own form, where a text may name special tokens.
static HttpReply answer_embeddings(Service& service, const HttpRequest& request, bool of_llama) {
    const EmbeddingsTask task = read_body(service, request, [&](const Json& body) {
        require_last_token(service.model);
        EmbeddingsTask read = read_embeddings(service, body);
        const bool has_input = member(body, "input");
        of_llama |= !has_input && member(body, "content");
        read.special = of_llama;
        if (of_llama && !has_input) read.name = "content";
        read_embedding_inputs(read, service, body);
        return read;
    });
    const PromptValues results = run_embeddings(service, request, task);
    return {.body = of_llama ? llama_embeddings_body(task, results) : embeddings_body(service, task, results)};
}

HttpReply embeddings(Service& service, const HttpRequest& request) { return answer_embeddings(service, request, false); }

HttpReply embedding(Service& service, const HttpRequest& request) { return answer_embeddings(service, request, true); }

// Ollama's two endpoints: /api/embed for one or several texts, and its older /api/embeddings for one.
HttpReply ollama_embed(Service& service, const HttpRequest& request) {
    const auto began = std::chrono::steady_clock::now();
    const EmbeddingsTask task = read_body(service, request, [&](const Json& body) {
        require_last_token(service.model);
        EmbeddingsTask read = read_embeddings(service, body);
        read_embedding_inputs(read, service, body);
        return read;
    });
    const PromptValues results = run_embeddings(service, request, task);
    std::string vectors;
    for (const auto& state : results.values)
        vectors += fmt::format("{}[{}]", vectors.empty() ? "" : ",", fmt::join(embedding_vector(state, task), ","));
    const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - began);
    return {.body =
                fmt::format(R"({{"model":{},"embeddings":[{}],"total_duration":{},"load_duration":0,"prompt_eval_count":{}}})",
                            Json(service.model_name()).dump(), vectors, time.count(), results.prompt_tokens)};
}

HttpReply ollama_embeddings(Service& service, const HttpRequest& request) {
    const EmbeddingsTask task = read_body(service, request, [&](const Json& body) {
        require_last_token(service.model);
        const auto prompt = text_field(body, "prompt");
        if (!prompt) bad_request("prompt", "\"prompt\" is missing: a text");
        EmbeddingsTask read{.dimensions = service.model.config.hidden_size, .name = "prompt"};
        read_embedding_inputs(read, service, body);
        return read;
    });
    const PromptValues results = run_embeddings(service, request, task);
    return {.body = fmt::format(R"({{"embedding":[{}]}})", fmt::join(embedding_vector(results.values.at(0), task), ","))};
}

} // namespace tq::server
