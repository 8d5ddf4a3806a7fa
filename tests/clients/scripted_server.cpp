// scripted_server [FLAGS]: the server as it ships over the scripted model, for tests with real clients. Says where it listens in
// its first line, and ends with its standard input.
#include "base/printable.h"
#include "model/prefix/cache.h"
#include "model/prefix/owner.h"
#include "tests/clients/scripts.h"
#include "tools/server/handlers.h"
#include "tools/server/page.h"
#include "tools/server/server.h"
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>

namespace tq::test {
namespace {

struct Arguments {
    uint32_t slots = 4, context = 4096, queue = 64, delay_ms = 0;
    std::string variant = "hybrid", api_key, alias, record;
    bool embeddings = false;
};

std::vector<std::string> variant_names() {
    std::vector<std::string> names;
    for (const auto& [name, variant] : chat_variant_names) names.emplace_back(name);
    return names;
}

serving::Scheduler::Model open_model(const Model& model, const Arguments& arguments) {
    ScriptedOptions options;
    options.context_size = arguments.context;
    options.slots = arguments.slots;
    options.delay = std::chrono::milliseconds(arguments.delay_ms);
    auto forward = std::make_unique<ScriptedForward>(model, client_script(model), options);
    const CacheOwner owner{model.config, forward->kv(), model.name, model.name, forward->computation()};
    auto prefix = std::make_unique<PrefixCache>(*forward, owner_texts(owner), PrefixCache::Options{});
    return {std::move(forward), std::move(prefix)};
}

serving::Scheduler::Options scheduler_options(const Model& model, const Arguments& arguments) {
    serving::Scheduler::Options options;
    options.queue = arguments.queue;
    options.is_end = [&model](uint32_t id) { return model.tokenizer.is_end_of_generation(id); };
    options.excluded = options.excluded_ends = unsampled_ids(model.tokenizer, model.config.vocab_size);
    for (uint32_t id = 0; id < model.config.vocab_size; id++)
        if (options.is_end(id)) options.excluded_ends[id] = true;
    return options;
}

// Keeps the body of each request as DIRECTORY/N.json.
void record(const std::string& directory, const server::HttpRequest& request) {
    static std::atomic<uint32_t> number = 0;
    if (directory.empty()) return;
    std::string name = request.path;
    std::ranges::replace(name, '/', '-');
    std::ofstream file(fmt::format("{}/{:03}-{}{}.json", directory, ++number, request.method, name), std::ios::binary);
    file << request.body;
}

std::vector<server::Endpoint> recorded_routes(server::Service& service, const std::string& directory) {
    std::vector<server::Endpoint> all = server::routes(service);
    for (server::Endpoint& route : all)
        route.handle = [directory, handle = std::move(route.handle)](const server::HttpRequest& request) {
            record(directory, request);
            return handle(request);
        };
    return all;
}

int serve(const Arguments& arguments) {
    const Model model = make_scripted_model(find_chat_variant(arguments.variant).value());
    serving::Scheduler scheduler(
        open_model(model, arguments), [&] { return open_model(model, arguments); }, scheduler_options(model, arguments));
    server::ServiceOptions options;
    options.alias = arguments.alias;
    options.embeddings = arguments.embeddings;
    options.device_name = "a script";
    server::Service service(model, scheduler, std::move(options));

    server::ServerOptions http;
    if (!arguments.api_key.empty()) http.api_keys = {arguments.api_key};
    if (!arguments.record.empty()) http.log = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
    http.page = server::page_reply;
    server::Server server(std::move(http));
    server.ready(recorded_routes(service, arguments.record));
    std::printf("listening at http://127.0.0.1:%u\n", server.port());
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    server.stop();
    return 0;
}

} // namespace
} // namespace tq::test

int main(int count, char** values) {
    tq::test::Arguments arguments;
    CLI::App app("The server over a scripted model.");
    app.add_option("--slots", arguments.slots);
    app.add_option("--context", arguments.context);
    app.add_option("--queue", arguments.queue);
    app.add_option("--delay-ms", arguments.delay_ms, "of each pass of the model");
    app.add_option("--variant", arguments.variant)->check(CLI::IsMember(tq::test::variant_names()));
    app.add_option("--api-key", arguments.api_key);
    app.add_option("--alias", arguments.alias, "the model's name");
    app.add_option("--record", arguments.record, "directory for the bodies of all requests");
    app.add_flag("--embeddings", arguments.embeddings);
    CLI11_PARSE(app, count, values);
    try {
        return tq::test::serve(arguments);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "scripted_server: %s\n", error.what());
        return 1;
    }
}
