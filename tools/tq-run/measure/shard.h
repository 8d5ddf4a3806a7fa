// Measurements of independent parts that several processes share (--shard): each measures every n-th part into a log of its own,
// and the command without --shard goes on from all of these logs.
#pragma once
#include "tools/check/quality/run_log.h"
#include "tools/tq-run/cli/arguments.h"

namespace tq {

// Shard `number` of `count`: the parts number - 1, number - 1 + count, ...; 1 of 1 has all.
struct Shard {
    uint32_t number = 1, count = 1;

    bool is_all() const { return count == 1; }
    size_t part(size_t i) const { return number - 1 + i * count; } // the number of its part `i`
    size_t size(size_t parts) const { return parts < number ? 0 : (parts - number) / count + 1; }
};

struct ShardArguments {
    std::string log, text; // --log and --shard; empty: not given

    Shard shard() const; // "auto" is that of this process, which mpirun or srun started
    // Says that a shard has measured its `done` of `parts` parts, and how to go on. Returns the exit status.
    int end_shard(size_t done, size_t parts) const;
    // The same without --shard; says nothing if all is measured. `what`: the parts' name, "chunks".
    int end_all(size_t done, size_t parts, const char* what) const;
};

// The log of a shard, or of the whole measurement; the latter has also the parts in the logs of shards.
class ShardLog {
  public:
    // `ordered`: part i of the log is the measurement's part shard().part(i). Otherwise a part says itself what it is, and the
    // parts of all shards are taken at once. Without --log nothing is kept. Throws Error.
    ShardLog(const ShardArguments& arguments, const nlohmann::json& what, bool ordered);

    const std::vector<nlohmann::json>& parts() const { return log_.parts(); }
    void add(nlohmann::json part); // with the ordered parts that follow it and that shards have measured. Throws Error

  private:
    void take_next();

    quality::RunLog log_;
    const bool ordered_;
    std::vector<std::pair<Shard, std::vector<nlohmann::json>>> shards_; // their parts
};

// Adds --log, with `help`, and --shard.
void add_flags(ArgumentParser& command, ShardArguments& arguments, const char* help);

} // namespace tq
