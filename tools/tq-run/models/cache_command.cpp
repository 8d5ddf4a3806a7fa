// tq-run cache: what the prefix cache keeps on the disk, its check, and its deletion. It loads no model. All it knows is in the
// directory: one folder for each owner, named by the owner's hash, with owner.json for people and a file for each page or state.
// Other processes may add and delete files meanwhile, so a file that is gone is never an error.
// verify reads each file as a run would, checksum included, and compares its head with its name and folder; what it finds wrong
// it leaves, since the run that comes to it deletes it. prune deletes what was used least recently, with the same code that keeps
// the limit.
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/readable_directory.h"
#include "model/files/formats/json.h"
#include "model/prefix/page_directory.h"
#include "model/prefix/page_file.h"
#include "model/prefix/page_signature.h"
#include "tools/tq-run/cli/progress.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/cli/time_left.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/prefix.h"
#include <chrono>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

namespace fs = std::filesystem;

struct CacheArguments {
    PrefixArguments prefix;
    ConsoleArguments console;
    bool json = false;
    std::optional<int64_t> max_bytes; // of prune; empty: none is left
};

fs::path directory_of(const CacheArguments& arguments) {
    if (const fs::path path = arguments.prefix.path(); !path.empty()) {
        directory_is_there(path); // else it would be said to be empty
        return path;
    }
    fail("there is no cache directory: set the environment variable TQ_CACHE_DIR, or give --cache-dir");
}

// The texts of owner.json; empty ones if it is missing or damaged.
std::string text_of_owner(const fs::path& directory, const StoredOwner& owner, const char* key) {
    try {
        const nlohmann::json json = read_json_file(directory / owner.name / "owner.json", 1 << 20);
        return json.is_object() && json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
    } catch (const Error&) {
        return "";
    }
}

uint64_t tokens_of(const StoredOwner& owner) {
    uint64_t tokens = 0;
    for (const StoredPage& page : owner.pages)
        if (page.entry.kind == RecordKind::page) tokens += page.entry.tokens;
    return tokens;
}

int64_t seconds_since_use(const StoredOwner& owner) {
    fs::file_time_type latest = fs::file_time_type::min();
    for (const StoredPage& page : owner.pages) latest = std::max(latest, page.used);
    return std::chrono::duration_cast<std::chrono::seconds>(fs::file_time_type::clock::now() - latest).count();
}

std::string shorten(const std::string& text) { return printable(text, 60); }

nlohmann::ordered_json as_json(const fs::path& directory, const StoredOwner& owner) {
    return {{"owner", owner.name},
            {"model", text_of_owner(directory, owner, "model")},
            {"types", text_of_owner(directory, owner, "types")},
            {"computation", text_of_owner(directory, owner, "computation")},
            {"pages", owner.count(RecordKind::page)},
            {"states", owner.count(RecordKind::state)},
            {"tokens", tokens_of(owner)},
            {"bytes", owner.bytes()},
            {"seconds_since_use", seconds_since_use(owner)}};
}

// The types of the first layer, and whether others differ.
std::string short_types(const std::string& types) {
    const std::string first = types.substr(0, types.find(' '));
    for (size_t at = 0; at < types.size(); at = types.find(' ', at) == types.npos ? types.size() : types.find(' ', at) + 1)
        if (types.substr(at, types.find(' ', at) - at) != first) return first + " and others";
    return first;
}

int list_pages(const CacheArguments& arguments) {
    const fs::path directory = directory_of(arguments);
    const std::vector<StoredOwner> owners = stored_pages(directory);
    if (arguments.json) {
        auto all = nlohmann::ordered_json::array();
        for (const StoredOwner& owner : owners)
            if (!owner.pages.empty()) all.push_back(as_json(directory, owner));
        write_output(all.dump(1) + "\n");
        return 0;
    }
    std::vector<std::vector<std::string>> rows{{"model", "types", "pages", "tokens", "states", "size", "used before"}};
    for (const StoredOwner& owner : owners)
        if (!owner.pages.empty())
            rows.push_back({shorten(text_of_owner(directory, owner, "model")),
                            shorten(short_types(text_of_owner(directory, owner, "types"))),
                            std::to_string(owner.count(RecordKind::page)), std::to_string(tokens_of(owner)),
                            std::to_string(owner.count(RecordKind::state)), size_text(owner.bytes()),
                            duration_text(seconds_since_use(owner))});
    write_text(rows.size() == 1 ? fmt::format("{} has no pages\n", printable(utf8_text(directory), 300))
                                : markdown(rows, 2, text_columns()));
    return 0;
}

int show_totals(const CacheArguments& arguments) {
    const fs::path directory = directory_of(arguments);
    uint64_t bytes = 0, pages = 0, tokens = 0, states = 0;
    for (const StoredOwner& owner : stored_pages(directory)) {
        bytes += owner.bytes();
        pages += owner.count(RecordKind::page);
        states += owner.count(RecordKind::state);
        tokens += tokens_of(owner);
    }
    const uint64_t max = arguments.prefix.max_disk_bytes();
    if (arguments.json) {
        const nlohmann::ordered_json json{{"directory", utf8_text(directory)},
                                          {"pages", pages},
                                          {"tokens", tokens},
                                          {"states", states},
                                          {"bytes", bytes},
                                          {"max_bytes", max}};
        write_output(json.dump(1) + "\n");
        return 0;
    }
    write_text(fmt::format("directory  {}\npages      {} of {} tokens\nstates     {}\nsize       {} of at most {}\n",
                           printable(utf8_text(directory), 300), pages, tokens, states, size_text(bytes), size_text(max)));
    return 0;
}

// Returns why a page's file cannot be used; nothing if it can, or is gone. The content's length is that of the owner's types.
std::optional<std::string> damage(const fs::path& path, const StoredOwner& owner, const StoredPage& page, uint64_t& bytes) {
    const PageEntry& entry = page.entry;
    std::error_code gone;
    if (fs::file_size(path, gone) > max_page_bytes && !gone) return "it has more bytes than any page";
    const auto whole = read_bytes(path, max_page_bytes);
    if (!whole) return std::nullopt;
    bytes += whole->size();
    try {
        const auto all = without_signature(std::span(*whole)); // of a directory that is shared
        const PageHead head = read_page_head(all);
        if (head.kind != entry.kind || head.owner.hex() != owner.name || head.parent != entry.parent || head.name != entry.name)
            fail("it is another page");
        page_content(all, head, all.size() - page_head_size(head.tokens()));
    } catch (const Error& error) {
        return error.what();
    }
    return std::nullopt;
}

// Reads every byte of the cache. Damage is only reported: the next run that reads a damaged page deletes it.
int verify_pages(const CacheArguments& arguments) {
    const fs::path directory = directory_of(arguments);
    uint64_t pages = 0, bytes = 0;
    auto damaged = nlohmann::ordered_json::array();
    const std::vector<StoredOwner> owners = stored_pages(directory);
    uint64_t all = 0;
    for (const StoredOwner& owner : owners) all += owner.pages.size();
    Console console = arguments.console.console();
    WorkStatus status(console, "pages");
    for (const StoredOwner& owner : owners)
        for (const StoredPage& page : owner.pages) {
            const fs::path path = directory / owner.name / page.entry.file_name();
            status.update("verifying", pages++, all);
            const auto why = damage(path, owner, page, bytes);
            if (!why) continue;
            damaged.push_back({{"file", utf8_text(path)}, {"reason", *why}});
            console.clear_status();
            if (!arguments.json) write_text(fmt::format("{}: {}\n", printable(utf8_text(path), 300), *why));
        }
    console.clear_status();
    if (arguments.json) {
        write_output(nlohmann::ordered_json{{"pages", pages}, {"bytes", bytes}, {"damaged", damaged}}.dump(1) + "\n");
    } else {
        write_text(fmt::format("{} pages, {}: {} damaged{}\n", pages, size_text(bytes), damaged.size(),
                               damaged.empty() ? "" : "; a run that comes to one deletes it"));
    }
    return damaged.empty() ? 0 : 1;
}

int prune_directory(const CacheArguments& arguments) {
    const fs::path directory = directory_of(arguments);
    uint64_t before = 0;
    for (const StoredOwner& owner : stored_pages(directory)) before += owner.bytes();
    const uint64_t left = prune_pages(directory, uint64_t(arguments.max_bytes.value_or(0)));
    if (arguments.json)
        write_output(nlohmann::ordered_json{{"deleted_bytes", before - left}, {"bytes", left}}.dump(1) + "\n");
    else
        write_text(fmt::format("{} deleted, {} left\n", size_text(before - left), size_text(left)));
    return 0;
}

} // namespace

void add_cache(ArgumentParser& app, Action& action) {
    ArgumentParser cache = app.add_command("cache", "Show, check and delete the prefix cache on the disk");
    cache.require_command();
    const auto flags = [](ArgumentParser& command, CacheArguments& a) {
        add_directory_flag(command, a.prefix);
        add_flag(command, "--json", a.json, "print JSON");
        add_flags(command, a.console);
    };
    const auto prune_flags = [=](ArgumentParser& command, CacheArguments& a) {
        add_option(command, "--cache-disk", a.max_bytes, "MB", "keep as many MiB of what was used last; default: 0")
            .transform(memory_size());
        flags(command, a);
    };
    add_command<CacheArguments>(cache, action, "list", "List models and caches with their pages", flags, list_pages);
    add_command<CacheArguments>(cache, action, "stat", "Show its directory, size and limit", flags, show_totals);
    add_command<CacheArguments>(cache, action, "verify", "Read every page and compare its checksum", flags, verify_pages);
    add_command<CacheArguments>(cache, action, "prune", "Delete pages, those used least recently first", prune_flags,
                                prune_directory);
}

} // namespace tq
