// A model that is served on the CPU, and its handlers called without HTTP.
#pragma once
#include "model/cpu/forward.h"
#include "model/prefix/cache.h"
#include "model/prefix/owner.h"
#include "tools/server/api_error.h"
#include "tools/server/handlers.h"
#include <doctest/doctest.h>
#include <functional>
#include <nlohmann/json.hpp>

namespace tq::test {

using ServedJson = nlohmann::ordered_json;

struct ServedSetup {
    uint32_t slots = 4, context = 512, queue = 256;
    server::ServiceOptions options = {};
    std::function<std::unique_ptr<Forward>(std::unique_ptr<Forward>)> wrap = {}; // puts another Forward around it
};

// `model` outlives it. The cache is f32.
class ServedModel {
  public:
    explicit ServedModel(const Model& model, const ServedSetup& setup = {})
        : scheduler_(
              open(model, setup), [&model, setup] { return open(model, setup); }, options_of(model, setup)),
          service_(model, scheduler_, setup.options) {}

    server::Service& service() { return service_; }
    serving::Scheduler& scheduler() { return scheduler_; }

    using Handle = server::HttpReply (*)(server::Service&, const server::HttpRequest&);
    server::HttpReply post(Handle handle, std::string body, std::function<bool()> disconnected = {}) {
        server::HttpRequest request;
        request.method = "POST";
        request.body = std::move(body);
        request.disconnected = std::move(disconnected);
        try {
            return handle(service_, request);
        } catch (const server::ApiError& error) {
            return server::error_reply(error, server::Envelope::openai);
        }
    }
    // The answer to a good request.
    ServedJson answer(Handle handle, const ServedJson& body) {
        const server::HttpReply reply = post(handle, body.dump());
        CAPTURE(reply.body);
        REQUIRE(reply.status == 200);
        return ServedJson::parse(reply.body);
    }
    // The answer to a bad request: a 400.
    ServedJson refusal(Handle handle, const std::string& body) {
        CAPTURE(body);
        const server::HttpReply reply = post(handle, body);
        CAPTURE(reply.body);
        REQUIRE(reply.status == 400);
        const ServedJson error = ServedJson::parse(reply.body).at("error");
        CHECK(error.at("type") == "invalid_request_error");
        CHECK(error.at("message").get<std::string>().size() > 15);
        return error;
    }

  private:
    static serving::Scheduler::Model open(const Model& model, const ServedSetup& setup) {
        auto forward = make_cpu_forward(
            model.config, model.weights,
            {.kv = {.k = KvType::f32, .v = KvType::f32}, .context_size = setup.context, .slots = setup.slots, .threads = 1});
        if (setup.wrap) forward = setup.wrap(std::move(forward));
        const CacheOwner owner{model.config, forward->kv(), "a fingerprint", model.name, forward->computation()};
        auto prefix = std::make_unique<PrefixCache>(*forward, owner_texts(owner), PrefixCache::Options{.memory_bytes = 1 << 24});
        return {std::move(forward), std::move(prefix)};
    }
    static serving::Scheduler::Options options_of(const Model& model, const ServedSetup& setup) {
        serving::Scheduler::Options options;
        options.queue = setup.queue;
        options.is_end = [&model](uint32_t id) { return model.tokenizer.is_end_of_generation(id); };
        options.excluded.resize(model.config.vocab_size);
        options.excluded_ends = options.excluded;
        return options;
    }

    serving::Scheduler scheduler_;
    server::Service service_;
};

} // namespace tq::test
