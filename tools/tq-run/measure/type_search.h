// The measurements behind tq-run mix: what each cache type costs on each side of each layer, and the mixes that follow from it.
#pragma once
#include "tools/check/quality/cache_cost.h"
#include "tools/check/quality/mix.h"
#include "tools/tq-run/cli/time_left.h"
#include "tools/tq-run/engine/setup.h"
#include "tools/tq-run/engine/shared_model.h"
#include "tools/tq-run/measure/measured_text.h"
#include "tools/tq-run/measure/shard.h"
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tq {

struct TypeSearchOptions {
    std::string file; // text to measure on; empty: the built-in one
    ShardArguments shard;
    std::vector<KvType> types;
    uint32_t chunks = 2, chunk_tokens = 512;
};

// Reads the measurements in the log, and makes the missing ones.
class TypeSearch {
  public:
    static constexpr KvType base_type = KvType::f16; // of all sides but the one that is measured

    TypeSearch(const TypeSearchOptions& options, Setup& setup, Console& console); // throws Error

    uint64_t bytes(const KvOptions& kv) const { return kv_bytes_per_token(setup_.model.config, kv); } // per token
    // Throws Error if the smallest cache of the types has more than `budget` bytes per token, or the largest has fewer.
    void check(uint64_t budget) const;
    bool measure_probes(); // false if it was stopped
    int measure_shard();   // of the probes; returns the exit status
    // Returns the summaries in the order given, measured on chunks that no probe has used, if the text has any left. Empty if
    // it was stopped.
    std::vector<quality::Summary> measure_caches(const std::vector<KvOptions>& caches);

    std::optional<KvOptions> best_mix(uint64_t budget) const; // nothing if none has at most `budget` bytes per token
    // Returns caches without a mix: the best pair of types for all layers, and the largest single type.
    std::vector<KvOptions> rivals(uint64_t budget) const;
    const quality::Sensitivities& sensitivities() const { return sensitivities_; }
    const MeasuredText& text() const { return text_; }
    // Returns the message for a search that was stopped: how far it came, and how to continue.
    std::string where_stopped() const;
    std::string text_description() const;

  private:
    nlohmann::json identity(const TypeSearchOptions& options) const;
    KvOptions uniform(KvTypes types) const;
    size_t caches_at_once() const;
    std::optional<quality::Summary> logged(const KvOptions& kv) const;
    quality::CacheCosts& costs(size_t first_chunk);
    bool measure(std::span<const quality::Probe> probes); // measures the missing ones; false if it was stopped
    // Shows the status of `caches` more caches, after `before` of `total`.
    quality::KeepGoing watched(const std::string& status, const quality::Chunks& chunks, const TimeLeft& left, size_t before,
                               size_t caches, size_t total);
    void read_log();
    void note(const quality::Probe& probe, const quality::Estimate& kl); // in the log
    void note(const KvOptions& kv, const quality::Summary& summary);

    Setup& setup_;
    Console& console_;
    const uint32_t chunks_, chunk_tokens_;
    const ShardArguments shard_;
    const MeasuredText text_;
    const KvOptions base_;
    quality::Sensitivities sensitivities_;
    const std::vector<quality::Probe> probes_; // all, whether they are in the log or not
    ShardLog log_;
    std::unique_ptr<SharedModel> model_;                          // loaded when the first measurement needs it
    std::optional<std::pair<size_t, quality::CacheCosts>> costs_; // on the chunks from one on
};

} // namespace tq
