// The flags of `serve`, and what they mean for the HTTP server. A server that other machines reach asks for a key, or must be
// told that anybody may use it (--allow-public), so that nobody opens one by mistake. HTTP threads are as many as requests may
// wait and run at once, and some more: so it is the scheduler that refuses a request (429, with a time to wait), and not a
// socket. --seed and --ignore-eos are refused, because they belong to each request; flags of llama-server for what is always on
// are accepted and hidden.
#include "tools/tq-run/serve/arguments.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/json.h"
#include "tools/server/page.h"
#include <algorithm>
#include <filesystem>

namespace tq {
namespace {

constexpr uint64_t max_key_file_bytes = 1 << 20;

std::string key_of_line(std::string_view line) {
    constexpr std::string_view spaces = " \t\r";
    const size_t first = line.find_first_not_of(spaces);
    return first == line.npos ? "" : std::string(line.substr(first, line.find_last_not_of(spaces) - first + 1));
}

void add_network_flags(ArgumentParser& command, ServeArguments& a) {
    ArgumentParser group = command.group("Server");
    add_option(group, "--host", a.host, "ADDRESS", "address to listen on; default: 127.0.0.1, which only this machine reaches");
    add_option(group, "--port", a.port, "N", "port to listen on; 0: the system chooses; default: 8080").check(number(0, 65535));
    add_option(group, "--api-key", a.api_keys, "KEY",
               "key that requests must bring, or several with commas; may be repeated; default: none")
        .take_all()
        .delimiter(',');
    add_option(group, "--api-key-file", a.api_key_file, "FILE", "file with such keys, one a line");
    add_flag(group, "--allow-public", a.allow_public, "listen on an address that other machines reach without asking for a key");
    add_flag(group, "--shared-cache", a.shared_cache,
             "all keys share the prefix cache; who has one can tell what others have asked");
    add_flag(group, "--public-metrics", a.public_metrics, "/metrics needs no key");
    add_option(group, "--cors-origin", a.cors_origins, "ORIGIN",
               "site whose pages may use the server, such as https://chat.example.com, or *; default: none")
        .take_all()
        .delimiter(',');
    add_option(group, "--ssl-cert-file", a.certificate_file, "FILE", "certificate in PEM format: serve HTTPS");
    add_option(group, "--ssl-key-file", a.key_file, "FILE", "its private key in PEM format");
    add_option(group, "--queue", a.queue, "N", "requests that may wait; more are told to try again (429); default: 256")
        .check(number(0, 4096));
    add_option(group, "--timeout", a.timeout_s, "N", "seconds that a client may stall; default: 30").check(number(1, 3600));
    add_flag(group, "--no-webui", a.no_page, "no page at /");
}

} // namespace

// A file without a key is an error: whoever names one wants the server to ask for keys, and without any it would ask nobody.
std::vector<std::string> ServeArguments::keys() const {
    std::vector<std::string> keys = api_keys;
    if (!api_key_file.empty()) {
        const std::string text = read_text_file(utf8_path(api_key_file), max_key_file_bytes);
        std::string_view rest = text;
        const size_t before = keys.size();
        while (!rest.empty()) {
            const std::string_view line = rest.substr(0, rest.find('\n'));
            rest.remove_prefix(std::min(line.size() + 1, rest.size()));
            if (const std::string key = key_of_line(line); !key.empty()) keys.push_back(key);
        }
        if (keys.size() == before) throw UsageError(fmt::format("--api-key-file: {} has no key", printable(api_key_file)));
    }
    for (const std::string& key : keys)
        if (key.empty()) throw UsageError("--api-key is empty: leave it out for a server that asks for none");
    return keys;
}

void add_flags(ArgumentParser& command, ServeArguments& a) {
    ArgumentParser server = command.group("Server");
    ArgumentParser sampling = command.group("Sampling");
    add_network_flags(command, a);
    add_option(server, "--parallel", a.parallel, "N",
               "slots (-np): requests that are answered at once; default: 4, fewer in little memory")
        .check(number(1, 256));
    add_flag(
        server, "--reuse-answers", a.reuse_answers,
        "a conversation goes on without running its last answer again; the next one may then depend, in the last bits of its "
        "probabilities, on how that was computed");
    add_option(server, "-a,--alias", a.alias, "NAME", "name of the model in the API; default: its own");
    add_flag(server, "--embeddings", a.embeddings, "the model makes embeddings; default: what its file says");
    auto think = add_flag(sampling, "--think", a.think,
                          "let a model think where a request says nothing; default: as its chat template does");
    add_flag(sampling, "--no-think", a.no_think, "do not let it think where a request says nothing").excludes(think);
    add_flags(command, a.effort);
    add_option(
        server, "--system-prompt", a.system, "TEXT",
        "system prompt of conversations that have none; '': none; default: what the model's chat template has, if anything")
        .may_be_empty();
    add_option(sampling, "--reasoning-budget", a.reasoning_budget, "N",
               "tokens of thinking where a request says nothing; default: -1 (no limit)")
        .check(number(-1, 1e9));
    for (const char* name : {"--metrics", "--slots", "--props", "--reranking,--rerank", "--webui"})
        add_flag(command, name, a.always_on).group("");
    add_flags(command, a.prefix);
    add_flags(command, a.sampling);
    add_flags(command, a.speculation);
    add_flags(command, a.model);
    command.get_option("--ctx-size")
        .description(fmt::format("context of one request in tokens, such as 8192 or 32k; 0: the model's maximum; default: that "
                                 "maximum, at most {}, and what fits",
                                 serve_context));
    add_flags(command, a.console);
    hide_flags(command, {"--seed", "--ignore-eos", "--profile"});
}

// A server that other machines reach must have a key, or the word of its owner that anybody may use it. There are more threads
// than requests may wait, so the scheduler is what refuses, with a 429 that says so.
server::ServerOptions server_options(const ServeArguments& a) {
    if (a.sampling.seed >= 0 || a.sampling.ignore_end)
        throw UsageError("--seed and --ignore-eos are for each request to say: \"seed\" and \"ignore_eos\" in its body");
    if (a.model.profile) throw UsageError("--profile is of tq-run generate and bench");
    server::ServerOptions options;
    options.api_keys = a.keys();
    if (a.certificate_file.empty() != a.key_file.empty())
        throw UsageError("--ssl-cert-file and --ssl-key-file belong together: give both or neither");
    if (options.api_keys.empty() && !a.allow_public && !server::is_loopback(a.host))
        throw UsageError(fmt::format("other machines reach {}, and no key is asked for: give one with --api-key or "
                                     "--api-key-file, or say --allow-public if anybody may use this server",
                                     printable(a.host)));
    options.http.host = a.host;
    options.http.port = uint16_t(a.port);
    options.http.certificate_file = a.certificate_file;
    options.http.key_file = a.key_file;
    options.http.threads = a.queue + a.slots() + 32; // the scheduler refuses before threads run out
    options.http.connections = 2 * options.http.threads + 1024;
    options.http.stall_timeout = std::chrono::seconds(a.timeout_s);
    options.shared_cache = a.shared_cache;
    options.public_metrics = a.public_metrics;
    options.cors_origins = a.cors_origins;
    for (std::string& origin : options.cors_origins) {
        origin = lowercase(origin);
        if (origin.ends_with('/')) origin.pop_back();
    }
    if (!a.no_page) options.page = server::page_reply;
    options.log_health = a.console.verbose;
    options.log = [](const std::string& line) { write_error(line + "\n"); };
    return options;
}

} // namespace tq
