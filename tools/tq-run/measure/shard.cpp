// A long measurement in parts. Shard I of N measures every Nth part, from its own on, into LOG.IofN; the command without --shard
// then takes the parts of all shards that are there into LOG and measures what is missing. An ordered log needs part k before
// part k + 1 (take_next); an unordered one takes them as they are. A log of other arguments (`what`) is refused, so shards of
// different runs cannot be mixed.
#include "tools/tq-run/measure/shard.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/stages/ranks/mpi_transport.h"
#include "tools/tq-run/cli/console.h"
#include <algorithm>

namespace tq {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Returns the logs of shards beside `log` (LOG.2of4), in the order of their names.
std::vector<std::pair<Shard, fs::path>> logs_of_shards(const fs::path& log) {
    const std::string prefix = utf8_text(log.filename()) + ".";
    std::vector<std::pair<Shard, fs::path>> out;
    std::error_code error;
    for (const fs::directory_entry& entry :
         fs::directory_iterator(log.has_parent_path() ? log.parent_path() : utf8_path("."), error)) {
        std::string name = utf8_text(entry.path().filename());
        const size_t of = name.rfind("of");
        if (!name.starts_with(prefix) || of == std::string::npos || of < prefix.size()) continue;
        try {
            const auto [number, count] = parse_shard(name.replace(of, 2, "/").substr(prefix.size()));
            out.push_back({{number, count}, entry.path()});
        } catch (const Error&) { // another file
        }
    }
    std::ranges::sort(out, {}, [](const auto& one) { return std::pair(one.first.count, one.first.number); });
    return out;
}

fs::path path_of(const ShardArguments& arguments) {
    const Shard own = arguments.shard();
    return utf8_path(own.is_all() ? arguments.log : fmt::format("{}.{}of{}", arguments.log, own.number, own.count));
}

} // namespace

Shard ShardArguments::shard() const {
    if (text.empty()) return {};
    const auto [number, count] =
        parse_shard(text == "auto" ? fmt::format("{}/{}", launched_rank() + 1, launched_processes()) : text);
    return {number, count};
}

ShardLog::ShardLog(const ShardArguments& arguments, const json& what, bool ordered)
    : log_(path_of(arguments), what), ordered_(ordered) {
    if (arguments.log.empty() || !arguments.shard().is_all()) return;
    for (const auto& [shard, path] : logs_of_shards(utf8_path(arguments.log)))
        shards_.emplace_back(shard, quality::RunLog(path, what).parts());
    if (ordered_) take_next();
    for (const auto& [shard, parts] : shards_)
        for (const json& part : parts)
            if (!ordered_ && std::ranges::find(log_.parts(), part) == log_.parts().end()) log_.add(part);
}

void ShardLog::add(json part) {
    log_.add(std::move(part));
    if (ordered_) take_next();
}

// Part k of all is part k / N of shard k % N + 1. The next part is taken from any shard that has it, also of different N. If no
// shard has it, the caller measures this one part and asks again (add).
void ShardLog::take_next() {
    const auto measured = [&](const auto& one) { // whether that shard has the next part
        const size_t next = log_.parts().size(), i = next / one.first.count;
        return one.first.part(i) == next && i < one.second.size();
    };
    for (auto has = shards_.end(); (has = std::ranges::find_if(shards_, measured)) != shards_.end();)
        log_.add(has->second[log_.parts().size() / has->first.count]);
}

int ShardArguments::end_shard(size_t done, size_t parts) const {
    const Shard own = shard();
    const bool complete = done == own.size(parts);
    write_error(fmt::format("tq-run: shard {} of {} has measured {} of its {} parts; {}\n", own.number, own.count, done,
                            own.size(parts),
                            complete ? "after all shards, the same command without --shard goes on with what they have measured"
                                     : "the same command continues from there"));
    return complete ? 0 : 130;
}

int ShardArguments::end_all(size_t done, size_t parts, const char* what) const {
    if (done == parts) return 0;
    write_error(fmt::format("tq-run: stopped after {} of {} {}; {}\n", done, parts, what,
                            log.empty() ? "with --log FILE the same command could continue from there"
                                        : "the same command continues from there"));
    return 130;
}

void add_flags(ArgumentParser& command, ShardArguments& a, const char* help) {
    auto log = add_option(command, "--log", a.log, "FILE", help);
    add_option(command, "--shard", a.text, "I/N",
               "measure only part I of N, such as 2/3, into FILE.IofN beside --log FILE; auto: by the number of the process that "
               "mpirun or srun started")
        .needs(log)
        .values("auto")
        .check(parsed_by([](const std::string& given) {
            if (given != "auto") parse_shard(given);
        }));
}

} // namespace tq
