// The measurements behind tq-run tune: what each cache type costs on each side of each layer, and the mixes that follow from it.
#pragma once
#include "tools/quality/cache_cost.h"
#include "tools/quality/mix.h"
#include "tools/quality/run_log.h"
#include "tools/tq-run/lab/measured_text.h"
#include "tools/tq-run/ranks.h"
#include "tools/tq-run/shared_model.h"
#include "tools/tq-run/time_left.h"
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tq {

struct TypeSearchOptions {
    std::string file, log; // text to measure on, empty: the built-in one; log of measurements, empty: none
    std::vector<KvType> types;
    uint32_t chunks = 2, chunk_tokens = 512;
};

// Reads the measurements in the log, and makes the missing ones, of which ranks measure several at the same time.
class TypeSearch {
  public:
    static constexpr KvType base_type = KvType::f16; // of all sides but the one that is measured

    // Compares with the other ranks what they must have in common. Throws Error.
    TypeSearch(const TypeSearchOptions& options, Setup& setup, Console& console, MeasurementRanks& ranks);
    // On the other ranks: measures what the first one asks for, until the job ends.
    void serve();

    uint64_t bytes(const KvOptions& kv) const { return kv_bytes_per_token(setup_.model.config, kv); } // per token
    // Throws Error where the smallest cache of the types has more than `budget` bytes per token, or the largest has fewer.
    void check(uint64_t budget) const;
    bool measure_probes(); // false where it was stopped
    // Returns the summaries in the order given, measured on chunks that no probe has used where the text has such; none where it
    // was stopped.
    std::vector<quality::Summary> measure_caches(const std::vector<KvOptions>& caches);

    std::optional<KvOptions> best_mix(uint64_t budget) const; // nothing where none has at most `budget` bytes per token
    // Returns caches without a mix: the best pair of types for all layers, and the largest single type.
    std::vector<KvOptions> rivals(uint64_t budget) const;
    const quality::Sensitivities& sensitivities() const { return sensitivities_; }
    const MeasuredText& text() const { return text_; }
    // Returns the message for a search that was stopped: how far it came, and how to continue.
    std::string where_stopped() const;
    std::string text_description() const;

  private:
    // Makes the progress of a measurement of so many caches, after others of the same part.
    using Watch = std::function<quality::KeepGoing(const quality::Chunks& chunks, size_t before, size_t caches)>;

    nlohmann::json identity(const TypeSearchOptions& options) const;
    nlohmann::json agreed_identity(const TypeSearchOptions& options);
    KvOptions uniform(KvType type) const;
    size_t caches_at_once() const;
    std::optional<quality::Summary> logged(const KvOptions& kv) const;
    quality::CacheCosts& costs(size_t first_chunk);
    void write_order(MessageWriter& order, size_t first_chunk, std::span<const KvOptions> caches) const;
    std::vector<KvOptions> read_caches(MessageReader& order) const;
    std::optional<std::vector<std::byte>> measure(MessageReader& order, const Watch& watch);
    // Shows the status of `caches` more caches, after `before` of `total`.
    quality::KeepGoing watched(const std::string& status, const quality::Chunks& chunks, const TimeLeft& left, size_t before,
                               size_t caches, size_t total);
    void read_log();
    void note(const quality::Probe& probe, const quality::Estimate& kl); // in the log
    void note(const KvOptions& kv, const quality::Summary& summary);

    Setup& setup_;
    Console& console_;
    MeasurementRanks& ranks_;
    const uint32_t chunks_, chunk_tokens_;
    const std::string log_path_;
    const MeasuredText text_;
    const KvOptions base_;
    quality::Sensitivities sensitivities_;
    quality::RunLog log_;
    std::unique_ptr<SharedModel> model_;                          // loaded when the first measurement needs it
    std::optional<std::pair<size_t, quality::CacheCosts>> costs_; // on the chunks from one on
};

} // namespace tq
