// POST /v1/rerank: Jina's shape, as llama.cpp has it, which is Cohere's v2, too; or that of Hugging Face's
// text-embeddings-inference, if the documents are "texts". A document's score is how probable "yes" is, of "yes" and "no",
// after Qwen3-Reranker's prompt.
#include "tools/server/answer_writer.h"
#include "tools/server/handlers.h"
#include "tools/server/ignored_fields.h"
#include "tools/server/json_fields.h"
#include "tools/server/prompt.h"
#include "tools/server/prompt_values.h"
#include <algorithm>
#include <cmath>
#include <numeric>

namespace tq::server {
namespace {

constexpr const char* default_instruction = "Given a web search query, retrieve relevant passages that answer the query";

struct RerankTask {
    std::string instruction, query;
    std::vector<std::string> documents;
    const char* name = "documents"; // of their field
    size_t top_n;
    bool return_documents = false;
    bool is_tei = false;     // text-embeddings-inference's shape
    bool raw_scores = false; // logits, not probabilities
};

// Each document's prompt repeats the query and the instruction, so that a short body may ask for much.
void require_prompts_in_memory(const RerankTask& task, uint64_t max) {
    uint64_t bytes = task.documents.size() * (task.query.size() + task.instruction.size());
    for (const std::string& document : task.documents) bytes += document.size();
    if (bytes > max)
        bad_request(
            task.name,
            "\"{}\" has {} texts, whose prompts have {} bytes with the query and the instruction in each, but may have {}: "
            "send fewer at once",
            task.name, task.documents.size(), bytes, max);
}

RerankTask read_rerank(const Service& service, const Json& body) {
    RerankTask task;
    task.instruction = text_field(body, "instruction").value_or(default_instruction);
    task.query = text_field(body, "query").value_or("");
    if (task.query.empty()) bad_request("query", "\"query\" is missing or empty");
    task.is_tei = !member(body, "documents") && member(body, "texts");
    if (task.is_tei) task.name = "texts";
    const auto document_field = [&](size_t i) { return fmt::format("{}[{}]", task.name, i); };
    const Json* documents = array_field(body, task.name, service.options.limits.batch_inputs);
    if (!documents || documents->empty()) bad_request("documents", "\"documents\" is missing or empty: a list of texts");
    for (size_t i = 0; i < documents->size(); i++) {
        const Json& document = (*documents)[i];
        const auto text = document.is_object()   ? text_field(document, "text", document_field(i))
                          : document.is_string() ? std::optional(document.get<std::string>())
                                                 : std::nullopt;
        if (!text) bad_request(document_field(i), "\"{}\" must be a text, or an object with a \"text\"", document_field(i));
        task.documents.push_back(*text);
    }
    const auto top_n = integer_field(body, "top_n", 1, INT32_MAX);
    task.top_n = std::min(task.documents.size(), top_n ? size_t(*top_n) : SIZE_MAX);
    task.return_documents = bool_field(body, task.is_tei ? "return_text" : "return_documents").value_or(false);
    task.raw_scores = bool_field(body, "raw_scores").value_or(false);
    require_prompts_in_memory(task, service.options.limits.body_bytes);
    return task;
}

// The prompt of Qwen3-Reranker's model card. What the client sent is text: no special tokens are found in it.
std::vector<uint32_t> rerank_prompt(const Service& service, const RerankTask& task, size_t i) {
    const Piece pieces[] = {
        {"<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
         "Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: ",
         true},
        {task.instruction},
        {"\n<Query>: ", true},
        {task.query},
        {"\n<Document>: ", true},
        {task.documents[i]},
        {"<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", true}};
    const auto turn = begin_encoding(service, pieces, fmt::format("{}[{}]", task.name, i));
    return service.model.tokenizer.encode(pieces);
}

std::vector<std::vector<uint32_t>> rerank_prompts(const Service& service, const RerankTask& task) {
    std::vector<std::vector<uint32_t>> prompts;
    try {
        for (size_t i = 0; i < task.documents.size(); i++) prompts.push_back(rerank_prompt(service, task, i));
    } catch (const ApiError&) {
        throw;
    } catch (const Error& error) { // the vocabulary lacks what the prompt is made of
        bad_request("model", "{} cannot rerank ({}): load a model such as Qwen3-Reranker", service.model.name, error.what());
    }
    return prompts;
}

// The tokens whose logits are compared: the first of "yes" and of "no".
std::vector<uint32_t> answer_ids(const Model& model) {
    const uint32_t yes = model.tokenizer.encode("yes").at(0), no = model.tokenizer.encode("no").at(0);
    if (yes == no) bad_request("model", "{} cannot rerank: its tokens of \"yes\" and \"no\" begin alike", model.name);
    return {yes, no};
}

void require_reranker(const Model& model) {
    const Pooling pooling = pooling_of(model.file);
    if (pooling != Pooling::rank && pooling != Pooling::unsaid)
        bad_request("model",
                    "{} cannot rerank: its file asks for pooling by \"{}\", as models for embeddings do. Load a model such as "
                    "Qwen3-Reranker",
                    model.name, pooling_name(pooling));
}

// Returns the logit of yes less that of no. values: these logits, or a state from which the classifier makes them.
// Results are sorted by this difference, and not by the probability 1 / (1 + exp(-difference)): that is 1 from a difference of 37
// on, so that the best documents would be equal, and raw scores infinite.
double margin_of(std::span<const float> values, std::span<const float> classifier) {
    double logits[2];
    for (size_t i = 0; i < 2; i++)
        logits[i] = classifier.empty()
                        ? values[i]
                        : std::inner_product(values.begin(), values.end(), classifier.begin() + i * values.size(), 0.0);
    const double margin = logits[0] - logits[1];
    if (!std::isfinite(margin))
        throw ApiError(500, "server_error", "the model computed a score that is not finite: its file may be damaged");
    return margin;
}

// The results in descending order of their scores; documents of equal scores keep the order of the request.
Json ranked_results(const RerankTask& task, const std::vector<double>& margins) {
    std::vector<size_t> order(margins.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return margins[a] > margins[b]; });
    Json results = Json::array();
    for (const size_t i : std::span(order).first(task.top_n)) {
        const double score = task.raw_scores ? margins[i] : 1 / (1 + std::exp(-margins[i]));
        Json result{{"index", i}, {task.is_tei ? "score" : "relevance_score", score}};
        if (task.return_documents && task.is_tei) result["text"] = task.documents[i];
        if (task.return_documents && !task.is_tei) result["document"] = {{"text", task.documents[i]}};
        results.push_back(std::move(result));
    }
    return results;
}

} // namespace

HttpReply rerank(Service& service, const HttpRequest& request) {
    const RerankTask task = read_body(service, request, [&](const Json& body) {
        require_reranker(service.model);
        return read_rerank(service, body);
    });
    const auto& weights = service.model.weights.classifier; // else the logits of two tokens
    const auto classifier = weights ? to_floats(*weights) : std::vector<float>();
    const auto prompts = rerank_prompts(service, task);
    const auto scored = classifier.empty() ? answer_ids(service.model) : std::vector<uint32_t>();
    const auto field = [&](size_t i) { return fmt::format("{}[{}]", task.name, i); };
    const PromptValues results = run_prompts(service, request, prompts, scored, field);
    std::vector<double> margins;
    for (const auto& values : results.values) margins.push_back(margin_of(values, classifier));
    if (task.is_tei) return {.body = ranked_results(task, margins).dump()};
    const Json reply{{"id", random_id("rerank-")},
                     {"model", service.model_name()},
                     {"object", "list"},
                     {"usage", {{"prompt_tokens", results.prompt_tokens}, {"total_tokens", results.prompt_tokens}}},
                     {"results", ranked_results(task, margins)}};
    return {.body = reply.dump()};
}

} // namespace tq::server
