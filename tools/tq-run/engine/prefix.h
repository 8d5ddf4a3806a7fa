// The prefix cache of commands that run prompts: its flags, and its opening for an engine.
#pragma once
#include "tools/tq-run/cli/argument_parser.h"
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace tq {

class Console;
class PrefixCache;
struct Engine;

struct PrefixArguments {
    std::optional<int64_t> memory_bytes, disk_bytes;       // empty: not given
    std::string directory;                                 // empty: the user's
    std::string shared, shared_namespace, shared_key_file; // empty: not given
    int64_t shared_ttl_s = 7 * 86400;                      // 0: pages stay
    std::string prefill_from, prefill_key_file;            // empty: not given

    std::filesystem::path path() const;
    uint64_t
    max_disk_bytes() const; // the flag's, else that of the environment variable TQ_CACHE_DISK, else a tenth of the free space
};

void add_flags(ArgumentParser& command, PrefixArguments& arguments);
// The pages' last tier: the flag's address, else that of the environment variable TQ_CACHE_SHARED. Empty: none. Throws Error.
std::string shared_address(const PrefixArguments& arguments);
void add_directory_flag(ArgumentParser& command, PrefixArguments& arguments);

// Opens the prefix cache; with `verbose` it says what that has. The engine must outlive it. Throws LoadStopped on Ctrl-C while a
// model is read for its fingerprint.
std::shared_ptr<PrefixCache> open_prefix_cache(const PrefixArguments& arguments, const Engine& engine, Console& console,
                                               bool verbose);

// Prints its warnings, and with `verbose` what was found where.
void report(PrefixCache* prefix, bool verbose);

} // namespace tq
