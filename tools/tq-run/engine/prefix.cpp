// The prefix cache's flags, and who owns its pages. A page may be reused only if the same bytes would be computed, so the
// owner names all that they depend on: the model, the cache's options, and the program with its device (program(),
// Forward::computation). What identifies the model depends on who reads the pages: other machines have other files, so a shared
// or remote cache needs the fingerprint of the contents, which takes a read of the file; a cache on the disk needs the file's
// identity (file_fingerprint); one in memory none.
// Shared pages leave the computation out of their owner unless --deterministic promised equal bits; pages that another machine
// may have computed are filed under an owner of their own (mix).
#include "tools/tq-run/engine/prefix.h"
#include "base/environment.h"
#include "base/executable.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/system_memory.h"
#include "model/files/fingerprint.h"
#include "model/prefix/cache.h"
#include "model/prefix/cold.h"
#include "model/prefix/store/directory_store.h"
#include "model/prefix/store/hmac.h"
#include "model/prefix/store/redis_store.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/cli/arguments.h"
#include "tools/tq-run/cli/console.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/engine/engine.h"
#include "tools/tq-run/engine/prefill.h"
#include "tools/tq-run/engine/prefix_pages.h"
#include <algorithm>

namespace tq {
namespace {

constexpr uint64_t default_memory_bytes = uint64_t(8192) << 20; // as in llama.cpp, but at most an eighth of the machine's

// Names the program by its commit; one of changed sources by its file, too.
std::string program() {
    const std::string commit = build_commit();
    std::error_code error;
    const std::filesystem::path file = executable_path();
    if (!commit.ends_with("-dirty") && commit != "unknown") return build_description();
    return fmt::format("{} of {} bytes, {}", build_description(), std::filesystem::file_size(file, error),
                       std::filesystem::last_write_time(file, error).time_since_epoch().count());
}

std::string disk_text(const PrefixArguments& arguments, uint64_t bytes) {
    return bytes == 0 ? "none" : fmt::format("{} in {}", size_text(bytes), printable(utf8_text(arguments.path()), 200));
}

// Says why there is no cache on the disk, if nobody has asked for none.
void say_no_disk(const PrefixArguments& arguments) {
    if (arguments.path().empty() || arguments.disk_bytes || environment_variable("TQ_CACHE_DISK")) return;
    write_error(fmt::format("tq-run: there is no prefix cache on the disk: {} has no free space, or cannot be made (--cache-dir "
                            "names another directory, --cache-disk 0 goes without)\n",
                            printable(utf8_text(arguments.path()), 200)));
}

// Opens no connection yet. The owner's texts then name whom the pages are shared with.
SharedPages::Options share(const PrefixArguments& arguments, const Engine& engine, OwnerTexts& owner) {
    const StoreAddress address = parse_store_address(shared_address(arguments));
    SharedPages::Options options;
    const PageKey key = page_key(arguments);
    options.sign = key.sign;
    // Separate rows (--deterministic) are a promise of equal bits: their pages are shared with machines that compute these alone.
    if (engine.forward->block_kernels().block != 0) owner["computation"] = "any device";
    owner["shared"] = fmt::format("namespace '{}', key {}", arguments.shared_namespace, key.name);
    options.place = address.text();
    const std::chrono::seconds ttl(arguments.shared_ttl_s);
    if (address.redis) {
        require_redis();
        options.open = [redis = *address.redis, name = owner_name(owner), ttl] { return open_redis_store(redis, name, ttl); };
    } else {
        options.open = [directory = address.directory, owner, ttl] { return open_directory_store(directory, owner, ttl); };
    }
    return options;
}

// Pages that another machine has computed are never taken for this machine's own, on the disk either. A store that is shared has
// any machine's anyway, and its pages are the same with --prefill-from as without.
void mix(OwnerTexts& owner, const Forward& forward) {
    if (owner.contains("shared")) return;
    if (forward.block_kernels().block != 0) owner["computation"] = "any device";
    owner["prefill"] = "from another machine";
}

std::string shared_text(const SharedPages::Options& options, const OwnerTexts& owner) {
    if (!options.open) return "";
    return fmt::format(", shared {} ({}; bits of {})", options.place, owner.at("shared"),
                       owner.at("computation") == "any device" ? "any device" : "devices like this one");
}

} // namespace

// The name is a signature of a fixed text, so that it tells keys apart and nothing of the key. It is in the owner's texts:
// machines with different keys do not even look at each other's pages.
PageKey page_key(const PrefixArguments& arguments) {
    PageKey key;
    if (arguments.shared_key_file.empty()) return key;
    key.sign = hmac_signer(read_page_key(utf8_path(arguments.shared_key_file)));
    constexpr std::string_view subject = "the name of this key";
    const PageSignature name = key.sign(std::as_bytes(std::span(subject)));
    key.name.clear();
    for (const std::byte byte : std::span(name).first(8)) key.name += fmt::format("{:02x}", uint32_t(byte));
    return key;
}

OwnerTexts prefix_owner(const Engine& engine, const std::string& fingerprint) {
    const Forward& forward = *engine.forward;
    return prefix_owner_texts(
        {engine.model.config, forward.kv(), fingerprint, engine.model.name, program() + ", " + forward.computation()});
}

std::string shared_address(const PrefixArguments& arguments) {
    return arguments.shared.empty() ? environment_variable("TQ_CACHE_SHARED").value_or("") : arguments.shared;
}

std::filesystem::path PrefixArguments::path() const { return directory.empty() ? prefix_directory() : utf8_path(directory); }

// The flag, then the environment's variable, then a share of what is free. 0 switches the disk off.
uint64_t PrefixArguments::max_disk_bytes() const {
    if (path().empty()) return 0;
    if (disk_bytes) return uint64_t(*disk_bytes);
    const auto text = environment_variable("TQ_CACHE_DISK");
    if (!text) return default_disk_bytes(path());
    const auto mib = flag_number(*text);
    if (!mib || *mib < 0 || *mib > 1e12) fail("TQ_CACHE_DISK is {}, but it must be a number of MiB", printable(*text));
    return uint64_t(*mib * (1 << 20));
}

void add_directory_flag(ArgumentParser& command, PrefixArguments& a) {
    ArgumentParser group = command.group("KV cache");
    add_option(group, "--cache-dir", a.directory, "DIR",
               "directory of the prefix cache; default: tq-run/prefix in the user's cache");
}

// A check of a name that means the same everywhere: letters, digits and some signs.
static std::string simple_name(std::string& text) {
    const bool simple = text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == text.npos;
    return simple && text.size() <= 64 ? "" : "a namespace has up to 64 letters, digits, points, underscores and hyphens";
}

static void add_shared_flags(ArgumentParser& command, PrefixArguments& a) {
    ArgumentParser group = command.group("KV cache");
    add_option(group, "--cache-shared", a.shared, "WHERE",
               "share the prefix cache with other machines: in a directory, or in Redis, whose address is redis://HOST, or "
               "redis://:PASSWORD@HOST:PORT/DB")
        .check(parsed_by([](const std::string& text) {
            if (parse_store_address(text).redis) require_redis();
        }));
    add_option(group, "--cache-shared-ttl", a.shared_ttl_s, "S",
               "seconds after which a shared page expires that nobody used; default: 604800 (a week); 0: never")
        .check(number(0, 1e9));
    add_option(group, "--cache-shared-namespace", a.shared_namespace, "NAME",
               "share pages only with those who give the same name")
        .check(simple_name);
    add_option(group, "--cache-shared-key", a.shared_key_file, "FILE",
               "sign shared pages with the key in this file, and take only pages that it has signed");
}

void add_flags(ArgumentParser& command, PrefixArguments& a) {
    ArgumentParser group = command.group("KV cache");
    add_option(group, "--cache-ram", a.memory_bytes, "MB",
               "maximum host memory for the prefix cache, in MiB; default: 8192, at most an eighth of the memory; 0: none but "
               "two states of each slot where the cache has a window or the model recurrent layers")
        .transform(memory_size());
    add_option(group, "--cache-disk", a.disk_bytes, "MB",
               "maximum of the prefix cache on the disk, in MiB; default: a tenth of the free space; 0: none")
        .transform(memory_size());
    add_directory_flag(command, a);
    add_shared_flags(command, a);
    add_prefill_flags(command, a);
}

// The order of the last steps matters. remote_options() takes the owner's texts as they are, since the other machine compares
// them with its own. share() adds to the texts, and mix() leaves the texts of a shared store alone.
std::shared_ptr<PrefixCache> open_prefix_cache(const PrefixArguments& arguments, const Engine& engine, Console& console,
                                               bool verbose) {
    const Forward& forward = *engine.forward;
    const auto say = [&](const std::string& text) {
        if (verbose) write_error(fmt::format("prefix cache: {}\n", text));
    };
    const Model& model = engine.model;
    PrefixCache::Options options;
    options.memory_bytes =
        arguments.memory_bytes ? uint64_t(*arguments.memory_bytes) : std::min(default_memory_bytes, physical_memory_bytes() / 8);
    const uint64_t disk = model.weights.files.empty() ? 0 : arguments.max_disk_bytes(); // made weights have no identity
    if (disk > 0) options.disk = {arguments.path(), disk};
    if (disk == 0 && !model.weights.files.empty()) say_no_disk(arguments);
    const bool is_shared = !model.weights.files.empty() && !shared_address(arguments).empty();
    const bool has_states = forward.cache().shape().has_beside(); // which pages from another machine lack
    if (has_states && !prefill_address(arguments).empty())
        write_error(fmt::format("tq-run: --prefill-from is not used, since pages from another machine lack {}\n",
                                forward.cache().shape().recurrent
                                    ? "the states of this model's recurrent layers"
                                    : "what the window holds: -ctk tq4 -ctv tq4, there and here, does without one"));
    const bool is_remote = !has_states && !model.weights.files.empty() && !prefill_address(arguments).empty();
    std::string identity = is_shared || is_remote ? ""
                           : disk > 0             ? file_fingerprint(model.config, model.weights)
                                                  : "of this process";
    if (identity.empty()) identity = fingerprint(model, console); // other machines have other files
    OwnerTexts texts = prefix_owner(engine, identity);
    if (is_remote) options.remote = remote_options(arguments, engine, texts);
    if (is_shared) options.shared = share(arguments, engine, texts);
    if (is_remote) mix(texts, forward);
    say(fmt::format("host memory {}, disk {}{}{}", size_text(options.memory_bytes), disk_text(arguments, disk),
                    shared_text(options.shared, texts), is_remote ? ", prompts run by " + options.remote.place : ""));
    return std::make_unique<PrefixCache>(*engine.forward, texts, options);
}

void report(PrefixCache* prefix, bool verbose) {
    if (!prefix) return;
    for (const std::string& warning : prefix->take_warnings()) write_error(fmt::format("tq-run: {}\n", warning));
    if (!verbose) return;
    const PrefixCache::Statistics s = prefix->statistics();
    const std::string shared = s.shared ? fmt::format(", {} in the shared one", s.shared_tokens) : "";
    const std::string remote = s.remote ? fmt::format(", {} by another machine", s.remote_tokens) : "";
    write_error(fmt::format("prefix cache: {} tokens found on the device, {} in host memory, {} on the disk{}{}\n",
                            s.device_tokens, s.memory_tokens, s.disk_tokens, shared, remote));
    if (s.memory_states_found + s.disk_states_found > 0)
        write_error(fmt::format("prefix cache: states found: {} in host memory, {} on the disk\n", s.memory_states_found,
                                s.disk_states_found));
}

} // namespace tq
