#include "tools/tq-run/prefix.h"
#include "base/environment.h"
#include "base/executable.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/system_memory.h"
#include "model/files/fingerprint.h"
#include "tools/tq-run/plan.h"
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

} // namespace

std::filesystem::path PrefixArguments::path() const { return directory.empty() ? prefix_directory() : utf8_path(directory); }

uint64_t PrefixArguments::max_disk_bytes() const {
    if (path().empty()) return 0;
    if (disk_bytes) return uint64_t(*disk_bytes);
    const auto text = environment_variable("TQ_CACHE_DISK");
    if (!text) return default_disk_bytes(path());
    const auto mib = parse_number(*text);
    if (!mib || *mib < 0 || *mib > 1e12) fail("TQ_CACHE_DISK is {}, but it must be a number of MiB", printable(*text));
    return uint64_t(*mib * (1 << 20));
}

void add_directory_flag(ArgumentParser& command, PrefixArguments& a) {
    command.add_option("--cache-dir", a.directory, "directory of the prefix cache; default: tq-run/prefix in the user's cache")
        .option_text("DIR")
        .group("KV cache");
}

void add_flags(ArgumentParser& command, PrefixArguments& a) {
    command
        .add_option("--cache-ram", a.memory_bytes,
                    "maximum host memory for the prefix cache, in MiB; default: 8192, at most an eighth of the memory; 0: none")
        .option_text("MB")
        .transform(memory_size())
        .group("KV cache");
    command
        .add_option("--cache-disk", a.disk_bytes,
                    "maximum of the prefix cache on the disk, in MiB; default: a tenth of the free space; 0: none")
        .option_text("MB")
        .transform(memory_size())
        .group("KV cache");
    add_directory_flag(command, a);
}

std::unique_ptr<PrefixCache> open_prefix_cache(const PrefixArguments& arguments, const Engine& engine, Console& console,
                                               bool verbose) {
    const Forward& forward = *engine.forward;
    const auto say = [&](const std::string& text) {
        if (verbose) write_error(fmt::format("prefix cache: {}\n", text));
    };
    if (forward.cache().shape().window_tokens != 0) {
        say("none, as the cache has a full-precision window (--kv-window)");
        return nullptr;
    }
    const Model& model = engine.model;
    PrefixCache::Options options;
    options.memory_bytes =
        arguments.memory_bytes ? uint64_t(*arguments.memory_bytes) : std::min(default_memory_bytes, physical_memory_bytes() / 8);
    const uint64_t disk = model.weights.files.empty() ? 0 : arguments.max_disk_bytes(); // made weights have no identity
    if (disk > 0) options.disk = {arguments.path(), disk};
    std::string identity = disk > 0 ? file_fingerprint(model.config, model.weights) : "of this process";
    if (identity.empty()) identity = fingerprint(model, console);
    say(fmt::format("host memory {}, disk {}", size_text(options.memory_bytes), disk_text(arguments, disk)));
    const CacheOwner owner{model.config, forward.kv(), identity, model.name, program() + ", " + forward.computation()};
    return std::make_unique<PrefixCache>(*engine.forward, owner_texts(owner), options);
}

void report(PrefixCache* prefix, bool verbose) {
    if (!prefix) return;
    for (const std::string& warning : prefix->take_warnings()) write_error(fmt::format("tq-run: {}\n", warning));
    if (!verbose) return;
    const PrefixCache::Statistics s = prefix->statistics();
    write_error(fmt::format("prefix cache: {} tokens found on the device, {} in host memory, {} on the disk\n", s.device_tokens,
                            s.memory_tokens, s.disk_tokens));
}

} // namespace tq
