// tq-run serve: answers HTTP requests with a model, many at once. The port is open before the model is loaded, and /health says
// so (503), because a load balancer or `launch` wants to know that somebody is there. Objects are made in the order of their use:
// Server (sockets), Backend (engine, drafts, scheduler, service), routes. They end in the reverse order, the handlers first
// (StopAtEnd).
// Ctrl-C or SIGTERM begins a drain: new requests get 503, running requests are answered, and replies that clients read slowly
// have a minute. A second signal ends the process at once.
#include "base/interrupt.h"
#include "model/cache.h"
#include "model/files/calibration.h"
#include "model/files/formats/open.h"
#include "model/files/kv_file.h"
#include "model/forward.h"
#include "model/memory_plan.h"
#include "tools/server/handlers.h"
#include "tools/server/prompt_values.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/choose_device.h"
#include "tools/tq-run/engine/engine.h"
#include "tools/tq-run/engine/prefill.h"
#include "tools/tq-run/engine/ranks.h"
#include "tools/tq-run/engine/setup.h"
#include "tools/tq-run/serve/arguments.h"
#include <algorithm>
#include <ctime>
#include <thread>

namespace tq {
namespace {

using serving::Scheduler;

constexpr uint64_t preempted_bytes = uint64_t(2) << 30; // of host memory at most, and no more than --cache-ram
constexpr double pool_share = 0.9;                      // of the memory, beyond what one request needs

// Chooses how many requests run at once, their length and the size of the cache so that they fit into the memory. In this order:
// the context of one request, as long as fits alone unless -c says it; the slots, fewer than 4 only if not even one context fits
// beside their fixed memory (windows, states); the pool of pages, as many tokens as fit into 90 % of the memory, at most a whole
// context for each slot. Slots share the pool, so four slots need not have four contexts.
void size_cache(Setup& setup, const ServeArguments& arguments) {
    ForwardOptions& options = setup.options;
    options.speculative = true; // tokens that the device samples ahead have the same bits as others
    // More slots and pages must not push layers off the device, which are slow elsewhere.
    const bool alone = !setup.ranks && !setup.split();
    const auto with = [&](uint32_t context, uint32_t slots, uint32_t tokens) {
        ForwardOptions changed = options;
        changed.context_size = context;
        changed.slots = slots;
        changed.cache_tokens = tokens;
        return alone ? setup.plan_alone(changed) : setup.plan(changed);
    };
    if (!arguments.model.context_size) {
        const uint32_t max = std::min(setup.model.config.max_position_embeddings, serve_context);
        options.context_size = std::max(options.context_size, largest_context(max, [&](uint32_t n) { return with(n, 1, n); }));
    }
    const uint32_t context = options.context_size;
    options.slots = arguments.slots();
    const bool whole = with(context, 1, context).fits(); // the weights have room, which more slots and pages leave them
    const auto shared = [&](uint32_t tokens, double share) {
        MemoryPlan plan = with(context, options.slots, tokens);
        plan.available = uint64_t(double(plan.available) * share);
        if (whole) plan.mapped = 0;
        return plan;
    };
    while (!arguments.parallel && options.slots > 1 && !shared(context, 1).runs()) options.slots--;
    const uint64_t all = std::min<uint64_t>(uint64_t(options.slots) * context, UINT32_MAX / 2);
    const uint32_t tokens = largest_context(uint32_t(all), [&](uint32_t n) { return shared(n, pool_share); });
    options.cache_tokens = std::max(tokens, context);
}

server::ServiceOptions service_options(const ServeArguments& a, const Engine& engine, const server::PrefillOptions& prefill) {
    const Model& model = engine.model;
    server::ServiceOptions options;
    options.alias = a.alias;
    options.sampling = a.sampling.options(recommended_sampling(model.file, thinks_by_default(model.chat)));
    options.max_tokens = a.sampling.max_tokens();
    options.system = a.system;
    if (a.think || a.no_think) options.think = a.think;
    options.effort = a.effort.effort();
    if (a.reasoning_budget >= 0) options.reasoning_budget = uint32_t(a.reasoning_budget);
    options.embeddings = a.embeddings || server::pooling_of(model.file) == server::Pooling::last;
    options.device_name = engine.device_name;
    options.build = build_description();
    options.prefill = prefill;
    options.log = [](const std::string& line) { write_error(line + "\n"); };
    options.started_unix_s = uint64_t(std::time(nullptr));
    return options;
}

Scheduler::Options scheduler_options(const ServeArguments& a, const Engine& engine, const Speculator* drafts) {
    Scheduler::Options options;
    options.queue = a.queue;
    options.is_end = [&tokenizer = engine.model.tokenizer](uint32_t id) { return tokenizer.is_end_of_generation(id); };
    options.excluded = engine.unsampled(false);
    options.excluded_ends = engine.unsampled(true);
    if (a.reuse_answers) options.reuse = serving::Reuse::all;
    options.memory_bytes = std::min(preempted_bytes, uint64_t(a.prefix.memory_bytes.value_or(int64_t(preempted_bytes))));
    options.warn = [](const std::string& warning) { write_error(fmt::format("tq-run: {}\n", warning)); };
    options.speculation = drafts ? drafts->speculation.get() : nullptr;
    return options;
}

// A loaded model that answers requests.
// The members are in the order in which they need each other, and are destroyed in the reverse: the service before the scheduler
// that it asks, the scheduler before the engine that it runs.
class Backend {
  public:
    Backend(const ServeArguments& arguments, Setup setup, Console& console)
        : arguments_(arguments), console_(console), options_(setup.options), engine_(start_engine(std::move(setup), console)),
          drafts_(start_speculation(arguments.speculation, *engine_, 0, console)), kv_(kv_description(*engine_)),
          prefill_(prefill_options(arguments.prefix, *engine_)),
          scheduler_(
              parts(), [this] { return reopen(); }, scheduler_options(arguments, *engine_, drafts_.get())),
          service_(engine_->model, scheduler_, service_options(arguments, *engine_, prefill_)) {}

    server::Service& service() { return service_; }
    Scheduler& scheduler() { return scheduler_; }
    std::string banner() const;

  private:
    Scheduler::Model parts() {
        auto prefix = open_prefix_cache(arguments_.prefix, *engine_, console_, arguments_.console.verbose);
        return {std::move(engine_->forward), std::move(prefix)};
    }
    Scheduler::Model reopen() {
        restart_engine(*engine_, options_);
        return parts();
    }

    const ServeArguments& arguments_;
    Console& console_;
    const ForwardOptions options_;
    const std::unique_ptr<Engine> engine_;
    const std::unique_ptr<Speculator> drafts_; // none: null
    const std::string kv_;
    const server::PrefillOptions prefill_;
    Scheduler scheduler_;
    server::Service service_;
};

std::string Backend::banner() const {
    const uint64_t tokens = uint64_t(options_.pages()) * page_tokens;
    const std::string bytes = size_text(tokens * scheduler_.kv_bytes_per_token());
    std::string text =
        fmt::format("{}\nmodel     {}\ndevice    {}\n", build_description(), service_.model_name(), engine_->device_name);
    text += fmt::format("slots     {}, each of up to {} tokens\n", scheduler_.slots(), scheduler_.context_size());
    text += fmt::format("cache     {} tokens for all slots together, {}: {}\n", tokens, bytes, kv_);
    if (drafts_) text += fmt::format("drafts    {}\n", drafts_->description);
    if (arguments_.console.verbose) text += load_description(*engine_) + "\n";
    return text;
}

std::string url_of(const ServeArguments& a, uint16_t port) {
    const bool is_any = a.host == "0.0.0.0" || a.host == "::";
    const bool is_v6 = !is_any && a.host.find(':') != std::string::npos;
    const std::string host = is_any ? "localhost" : is_v6 ? fmt::format("[{}]", a.host) : a.host;
    return fmt::format("{}://{}:{}", a.certificate_file.empty() ? "http" : "https", host, port);
}

std::string describe_access(const ServeArguments& a) {
    const size_t keys = a.keys().size();
    const std::string who = server::is_loopback(a.host) ? "only this machine reaches it" : "other machines reach it";
    if (keys == 0) return fmt::format("{}, without an API key", who);
    return fmt::format("{}, with {}{}", who, keys == 1 ? "the API key" : fmt::format("one of {} API keys", keys),
                       a.shared_cache ? "; all share the prefix cache" : "");
}

// Answers what has begun, and nothing more.
void drain(server::Server& server, Scheduler& scheduler) {
    write_error("tq-run: no more requests are taken, and those that run are answered; once more ends at once\n");
    server.begin_drain(10);
    while (!scheduler.drain(std::chrono::milliseconds(500))) {
    }
    server.wait_until_idle(std::chrono::seconds(60)); // clients may read long replies slowly
}

// Handlers end before what they use.
struct StopAtEnd {
    server::Server& server;
    ~StopAtEnd() { server.stop(); }
};

// Throws Error if a file cannot be read, before anybody is told that the server listens.
void check_files(const ServeArguments& arguments, Console& console) {
    const ModelArguments& model = arguments.model;
    if (model.synthetic.empty() && model.model.repository.empty()) open_model_file(find_model(model.model, console));
    if (!arguments.speculation.model.empty()) open_model_file(utf8_path(arguments.speculation.model));
    if (is_kv_file(model.kv.preset)) read_kv_file(utf8_path(model.kv.preset));
    if (!model.kv.conditioning.empty()) require_file(parse_key_conditioning(model.kv.conditioning));
}

int run(const ServeArguments& arguments) {
    if (const auto status = run_as_rank(arguments.model)) return *status;
    Console console = arguments.console.console();
    arguments.speculation.check();
    check_files(arguments, console);
    catch_interrupts();
    catch_termination();
    server::Server server(server_options(arguments));
    const std::string url = url_of(arguments, server.port());
    write_error(fmt::format("tq-run: listening at {}, and loading the model\n", url));
    Setup setup = set_up(arguments.model, console, WithoutGpu::cpu, arguments.speculation.drafting());
    setup.model.tokenizer.require_text();
    size_cache(setup, arguments);
    Backend backend(arguments, std::move(setup), console);
    const StopAtEnd stop{server};
    server.ready(server::routes(backend.service()));
    write_error(fmt::format("{}access    {}\nopen {}\n", backend.banner(), describe_access(arguments), url));
    while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    drain(server, backend.scheduler());
    return 0;
}

} // namespace

void add_serve(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, ServeArguments& a) { add_flags(command, a); };
    add_command<ServeArguments>(
        app, action, "serve", "Serve a model: APIs of OpenAI, Anthropic, llama.cpp and Ollama, and a page for chats", flags, run);
}

} // namespace tq
