// The flags of tq-run serve.
#pragma once
#include "tools/server/server.h"
#include "tools/tq-run/cli/arguments.h"
#include "tools/tq-run/engine/prefix.h"
#include "tools/tq-run/engine/speculation.h"

namespace tq {

constexpr uint32_t serve_context = 32768; // an agent's instructions, tools and files

struct ServeArguments {
    ConsoleArguments console;
    ModelArguments model;
    SamplingArguments sampling;
    PrefixArguments prefix;
    SpeculationArguments speculation;
    std::optional<uint32_t> parallel;
    uint32_t queue = 256, timeout_s = 30, port = 8080;
    std::string host = "127.0.0.1", api_key_file, certificate_file, key_file, alias;
    std::vector<std::string> api_keys, cors_origins;
    bool allow_public = false, shared_cache = false, public_metrics = false, no_page = false, embeddings = false;
    bool reuse_answers = false;
    bool think = false, no_think = false;
    EffortArguments effort;
    std::optional<std::string> system;
    int64_t reasoning_budget = -1;
    bool always_on = false; // --metrics and others

    uint32_t slots() const { return parallel.value_or(4); }
    // Returns the keys of the flags and the file. Throws UsageError for an empty key, Error for an unreadable file.
    std::vector<std::string> keys() const;
};

void add_flags(ArgumentParser& command, ServeArguments& arguments);

// Returns the options that the server needs before a model is there. Throws UsageError if flags contradict each other.
server::ServerOptions server_options(const ServeArguments& arguments);

} // namespace tq
