#include "tools/tq-run/lab/shard.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/ranks/mpi_transport.h"
#include "tools/tq-run/console.h"
#include <algorithm>

namespace tq {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The logs of shards beside `log`, such as LOG.2of4, in the order of their names.
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

struct Shards {
    std::vector<std::pair<Shard, std::vector<json>>> all;

    // The part with this number; null if no shard has measured it.
    const json* find(size_t number) const {
        for (const auto& [shard, parts] : all) {
            const size_t i = number / shard.count;
            if (shard.part(i) == number && i < parts.size()) return &parts[i];
        }
        return nullptr;
    }
};

} // namespace

Shard ShardArguments::shard() const {
    if (text.empty()) return {};
    const auto [number, count] =
        parse_shard(text == "auto" ? fmt::format("{}/{}", launched_number() + 1, launched_processes()) : text);
    return {number, count};
}

quality::RunLog ShardArguments::open(const json& what, bool ordered) const {
    const Shard own = shard();
    if (!own.is_all()) return {utf8_path(fmt::format("{}.{}of{}", log, own.number, own.count)), what};
    quality::RunLog out(utf8_path(log), what);
    Shards shards;
    if (!log.empty())
        for (const auto& [shard, path] : logs_of_shards(utf8_path(log)))
            shards.all.emplace_back(shard, quality::RunLog(path, what).parts());
    if (ordered) {
        while (const json* next = shards.find(out.parts().size())) out.add(*next);
        return out;
    }
    for (const auto& [shard, parts] : shards.all)
        for (const json& part : parts)
            if (std::ranges::find(out.parts(), part) == out.parts().end()) out.add(part);
    return out;
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

void add_flags(ArgumentParser& command, ShardArguments& a, const char* help) {
    auto log = command.add_option("--log", a.log, help).option_text("FILE");
    command
        .add_option("--shard", a.text,
                    "measure only part I of N, such as 2/3, into FILE.IofN beside --log FILE; auto: by the number of the process "
                    "that mpirun or srun started")
        .option_text("I/N")
        .needs(log)
        .values("auto")
        .check(parsed_by([](const std::string& given) {
            if (given != "auto") parse_shard(given);
        }));
}

} // namespace tq
