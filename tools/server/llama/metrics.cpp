// GET /metrics for Prometheus: llama.cpp's names, the names by which the Kubernetes inference gateway knows vLLM, and our own.
#include "model/cache.h"
#include "tools/server/handlers.h"

namespace tq::server {
namespace {

// Builds Prometheus's text format (version 0.0.4). A family is described once by HELP and TYPE, and its samples must follow at
// once: so add_shared() writes the sample place="shared" first, right behind the family that add_own() has begun.
class MetricsText {
  public:
    void counter(const char* name, const char* help, double value) { single(name, help, "counter", value); }
    void gauge(const char* name, const char* help, double value) { single(name, help, "gauge", value); }
    void family(const char* name, const char* help, const char* type) {
        text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    }
    void sample(const char* name, const std::string& labels, double value) {
        text_ += fmt::format("{}{} {}\n", name, labels, value);
    }

    std::string text() && { return std::move(text_); }

  private:
    void single(const char* name, const char* help, const char* type, double value) {
        family(name, help, type);
        sample(name, "", value);
    }
    std::string text_;
};

std::string model_label(const std::string& name) {
    std::string escaped;
    for (const char c : name) {
        if (c == '\\' || c == '"') escaped += '\\';
        escaped += c == '\n' ? ' ' : c;
    }
    return fmt::format("{{model_name=\"{}\"}}", escaped);
}

double per_second(uint64_t tokens, uint64_t ns) { return ns == 0 ? 0 : double(tokens) * 1e9 / double(ns); }

void add_llama_cpp(MetricsText& out, const serving::Status& s, double used) {
    out.counter("llamacpp:prompt_tokens_total", "Tokens of prompts that were run.", double(s.prompt_tokens));
    out.counter("llamacpp:prompt_seconds_total", "Time of passes with a part of a prompt.", double(s.prompt_ns) * 1e-9);
    out.counter("llamacpp:tokens_predicted_total", "Tokens of answers.", double(s.decoded_tokens));
    out.counter("llamacpp:tokens_predicted_seconds_total", "Time of passes with answers only.", double(s.decode_ns) * 1e-9);
    out.counter("llamacpp:n_decode_total", "Passes of the model.", double(s.passes));
    out.gauge("llamacpp:prompt_tokens_seconds", "Tokens of prompts per second, on average.",
              per_second(s.prompt_tokens, s.prompt_ns));
    out.gauge("llamacpp:predicted_tokens_seconds", "Tokens of answers per second, on average.",
              per_second(s.decoded_tokens, s.decode_ns));
    out.gauge("llamacpp:kv_cache_usage_ratio", "Share of the cache that requests have.", used);
    out.gauge("llamacpp:requests_processing", "Requests that are being answered.", s.running);
    out.gauge("llamacpp:requests_deferred", "Requests that wait.", s.waiting);
}

// vLLM's gauges have the model's name as a label, which the gateway asks for. Backslashes and quotes in a label are escaped.
void add_vllm(MetricsText& out, const serving::Status& s, double used, const std::string& label) {
    const auto gauge = [&](const char* name, const char* help, double value) {
        out.family(name, help, "gauge");
        out.sample(name, label, value);
    };
    gauge("vllm:num_requests_running", "Requests that are being answered.", s.running);
    gauge("vllm:num_requests_waiting", "Requests that wait.", s.waiting);
    gauge("vllm:kv_cache_usage_perc", "Share of the cache that requests have, from 0 to 1.", used);
    gauge("vllm:gpu_cache_usage_perc", "The same, by its former name.", used);
    out.family("vllm:cache_config_info", "The cache's pages.", "gauge");
    out.sample("vllm:cache_config_info", fmt::format("{{block_size=\"{}\",num_gpu_blocks=\"{}\"}}", page_tokens, s.pages), 1);
}

// A counter of several parts, told apart by a label.
void add_parts(MetricsText& out, const char* name, const char* help, const char* label,
               std::initializer_list<std::pair<const char*, uint64_t>> parts) {
    out.family(name, help, "counter");
    for (const auto& [part, count] : parts) out.sample(name, fmt::format("{{{}=\"{}\"}}", label, part), double(count));
}

void add_shared(MetricsText& out, const SharedPageStatistics& s, uint64_t tokens) {
    out.sample("tqrun_found_tokens_total", "{place=\"shared\"}", double(tokens));
    add_parts(out, "tqrun_shared_reads_total", "Pages that the shared prefix cache was asked for, and what came.", "result",
              {{"found", s.found}, {"missed", s.missed}, {"late", s.late}, {"failed", s.failed}, {"rejected", s.rejected}});
    add_parts(out, "tqrun_shared_writes_total", "Pages for the shared prefix cache, and whether it has them now.", "result",
              {{"written", s.written}, {"not_written", s.not_written}});
    add_parts(out, "tqrun_shared_bytes_total", "Bytes of these pages.", "direction",
              {{"read", s.read_bytes}, {"written", s.written_bytes}});
    out.family("tqrun_shared_paused", "1 while the shared prefix cache is left alone after a failure.", "gauge");
    out.sample("tqrun_shared_paused", "{direction=\"read\"}", s.reads_paused ? 1 : 0);
    out.sample("tqrun_shared_paused", "{direction=\"written\"}", s.writes_paused ? 1 : 0);
}

void add_remote(MetricsText& out, const RemotePageStatistics& s) {
    add_parts(out, "tqrun_remote_pages_total", "Pages that another machine was asked to compute, and whether they came.",
              "result", {{"found", s.found}, {"missing", s.missing}});
    add_parts(out, "tqrun_remote_prompts_total",
              "Prompts that another machine was asked for, or would not pay for, and what failed.", "what",
              {{"asked", s.asked}, {"skipped", s.skipped}, {"late", s.late}, {"failed", s.failed}, {"rejected", s.rejected}});
    out.counter("tqrun_remote_bytes_total", "Bytes of these pages.", double(s.read_bytes));
    out.gauge("tqrun_remote_paused", "1 while the other machine is left alone after a failure.", s.paused ? 1 : 0);
}

// Counters only grow while the process lives, gauges are of this moment, and all are of one snapshot of the scheduler. Places
// without a store or another machine have no samples, rather than zeros: a zero would say that one is there and finds nothing.
void add_own(MetricsText& out, const serving::Status& s, const serving::Scheduler& scheduler) {
    out.family("tqrun_pages", "Pages of the cache: of requests, spare ones of the prefix cache, free ones.", "gauge");
    out.sample("tqrun_pages", "{state=\"used\"}", double(s.pages) - s.free_pages - s.spare_pages);
    out.sample("tqrun_pages", "{state=\"spare\"}", s.spare_pages);
    out.sample("tqrun_pages", "{state=\"free\"}", s.free_pages);
    out.gauge("tqrun_cache_bytes_per_token", "Bytes of one token in the cache.", double(scheduler.kv_bytes_per_token()));
    out.counter("tqrun_cached_tokens_total", "Tokens of prompts that were found in the prefix cache.", double(s.cached_tokens));
    out.family("tqrun_found_tokens_total", "Tokens that the prefix cache found, by place.", "counter");
    out.sample("tqrun_found_tokens_total", "{place=\"device\"}", double(s.found.device_tokens));
    out.sample("tqrun_found_tokens_total", "{place=\"memory\"}", double(s.found.memory_tokens));
    out.sample("tqrun_found_tokens_total", "{place=\"disk\"}", double(s.found.disk_tokens));
    if (s.found.remote) out.sample("tqrun_found_tokens_total", "{place=\"machine\"}", double(s.found.remote_tokens));
    if (s.found.shared) add_shared(out, *s.found.shared, s.found.shared_tokens);
    if (s.found.remote) add_remote(out, *s.found.remote);
    add_parts(
        out, "tqrun_found_states_total", "States with which beginnings of prompts were found, by place.", "place",
        {{"memory", s.found.memory_states_found}, {"disk", s.found.disk_states_found}, {"shared", s.found.shared_states_found}});
    out.gauge("tqrun_prefix_states", "States in the prefix cache's host memory.", double(s.found.memory_states));
    out.gauge("tqrun_prefix_memory_bytes", "Host memory of the prefix cache.", double(s.found.memory_bytes));
    add_parts(out, "tqrun_requests_total", "Requests, and how some ended.", "what",
              {{"submitted", s.requests}, {"rejected", s.rejected}, {"cancelled", s.cancelled}, {"failed", s.failed}});
    out.counter("tqrun_drafted_tokens_total", "Drafted tokens that were verified.", double(s.drafted_tokens));
    out.counter("tqrun_accepted_tokens_total", "Of these, the ones that were right.", double(s.accepted_tokens));
    out.counter("tqrun_preemptions_total", "Requests that gave way to others for a while.", double(s.preempted));
    out.counter("tqrun_device_losses_total", "Losses of the device.", double(s.device_losses));
}

} // namespace

HttpReply metrics(Service& service, const HttpRequest&) {
    const serving::Status s = service.scheduler.status();
    const double used = s.pages == 0 ? 0 : (double(s.pages) - s.free_pages - s.spare_pages) / s.pages;
    MetricsText out;
    add_llama_cpp(out, s, used);
    add_vllm(out, s, used, model_label(service.model_name()));
    add_own(out, s, service.scheduler);
    return {.body = std::move(out).text(), .type = "text/plain; version=0.0.4; charset=utf-8"};
}

} // namespace tq::server
