#include "base/ensure.h"
#include "base/error.h"
#include "model/gpu/block_pace.h"
#include "model/gpu/forward.h"
#include "model/gpu/recordings.h"
#include "model/gpu/tuning_fields.h"
#include "model/gpu/tuning_file.h"
#include <algorithm>
#include <chrono>
#include <cmath>

namespace tq {
namespace {

using namespace gpu;

std::shared_ptr<const DeviceWeights> load(Device& device, const Tuning& tuning, const Weights& weights, uint32_t threads,
                                          const LoadProgress& on_load) {
    ThreadPool pool(threads);
    return std::make_shared<const DeviceWeights>(upload_weights(device, pool, weights, tuning.weight_interleave, on_load));
}

// What is left of a span.
struct Rest {
    const Span& span;
    size_t number;
    uint32_t start, done = 0;

    uint32_t left() const { return uint32_t(span.ids.size()) - done; }
    uint32_t position() const { return start + done; }
    // Returns whether the logits or the state of id `i` are wanted.
    bool wants(uint32_t i) const {
        return span.logits == Span::Logits::all || (span.logits != Span::Logits::none && i + 1 == span.ids.size());
    }
    bool wants_hidden() const { return span.logits == Span::Logits::hidden; }
};

// The kernels of a block give a token the same bits wherever the block begins and ends, those of a short block do not: its
// attention is split.
BlockKernels block_kernels_of(const ForwardOptions& o, const Tuning& tuning) {
    if (o.deterministic) return {};
    if (tuning.short_block >= o.batch_size) return {.block = o.batch_size};
    return {.block = o.batch_size, .many = std::max(tuning.short_block, max_separate_rows(o)) + 1};
}

// One run(): its spans, cut into passes. A span is cut into slices of a block (BlockKernels::slice); one of few ids runs as
// separate rows, with those of other spans. So the kernels that compute a row depend on its span alone.
class SpanRun {
  public:
    SpanRun(Recordings& recordings, Cache& cache, BlockPace& pace, const ForwardOptions& options, const Tuning& tuning,
            std::span<const Span> spans, const SpanLogits& each, const Progress& progress)
        : recordings_(recordings), cache_(cache), pace_(pace), options_(options), kernels_(block_kernels_of(options, tuning)),
          short_block_(tuning.short_block), each_(each), progress_(progress) {
        for (const Span& span : spans) {
            rests_.push_back({span, rests_.size(), cache.position(span.slot)});
            total_ += uint32_t(span.ids.size());
        }
    }

    // Returns false where it was stopped.
    bool run() {
        while (done_ < total_)
            if (!(run_separate() || run_block()) || !keep_going()) return false;
        return true;
    }
    std::span<const Rest> rests() const { return rests_; }

  private:
    // The ids of a span in a pass.
    struct Slice {
        Rest* rest;
        uint32_t ids, first_row;
    };
    struct Wanted {
        Slice slice;
        uint32_t row, id; // of the pass, of the span
    };

    bool keep_going() const { return !progress_ || progress_(done_, total_); }
    uint32_t slice_of(const Rest& rest) const {
        return kernels_.block == 0 ? std::min(options_.batch_size, rest.left()) : kernels_.slice(rest.left());
    }
    bool is_separate(const Rest& rest) const {
        return rest.left() > 0 && (options_.deterministic || slice_of(rest) <= max_separate_rows(options_));
    }
    void add(Rest& rest, uint32_t ids, bool separate);
    size_t head_rows(std::span<const Wanted> wanted, bool separate) const;
    void deliver(std::span<const Wanted> wanted, bool computed, bool separate);
    std::vector<Wanted> take();
    bool run_separate();
    bool run_block();
    bool run_block_of_one(Rest& rest, uint32_t ids);
    std::vector<Rest*> blocks_together();

    Recordings& recordings_;
    Cache& cache_;
    BlockPace& pace_;
    const ForwardOptions& options_;
    const BlockKernels kernels_;
    const uint32_t short_block_;
    const SpanLogits& each_;
    const Progress& progress_;
    std::vector<Rest> rests_;
    uint32_t total_ = 0, done_ = 0;
    PassRows rows_; // of the next pass
    std::vector<Slice> slices_;
};

void SpanRun::add(Rest& rest, uint32_t ids, bool separate) {
    const uint32_t slot = rest.span.slot;
    slices_.push_back({&rest, ids, rows_.count()});
    rows_.add(slot, rest.position(), rest.span.ids.subspan(rest.done, ids), cache_.window(slot).begin, separate);
}

// Counts the slices that have been run; returns the rows of which something is wanted, and begins the next pass.
std::vector<SpanRun::Wanted> SpanRun::take() {
    std::vector<Wanted> wanted;
    for (const Slice& slice : slices_) {
        for (uint32_t i = 0; i < slice.ids; i++)
            if (slice.rest->wants(slice.rest->done + i)) wanted.push_back({slice, slice.first_row + i, slice.rest->done + i});
        cache_.advance(slice.rest->span.slot, slice.ids);
        slice.rest->done += slice.ids;
        done_ += slice.ids;
    }
    slices_.clear();
    rows_ = {};
    return wanted;
}

// Returns how many of these rows the head runs on at once: the first ones, all for logits or all for states.
size_t SpanRun::head_rows(std::span<const Wanted> wanted, bool separate) const {
    const bool hidden = wanted[0].slice.rest->wants_hidden();
    const size_t most = hidden     ? recordings_.max_hidden_rows()
                        : separate ? max_separate_rows(options_)
                                   : Recordings::max_head_rows;
    const auto same = [&](const Wanted& one) { return one.slice.rest->wants_hidden() == hidden; };
    return std::min(most, size_t(std::ranges::find_if_not(wanted, same) - wanted.begin()));
}

// Computes these rows' logits and states, unless they are, and passes them on. separate: with the bits of each alone.
void SpanRun::deliver(std::span<const Wanted> wanted, bool computed, bool separate) {
    for (size_t first = 0; first < wanted.size();) {
        const std::span rest = wanted.subspan(first), now = computed ? rest : rest.first(head_rows(rest, separate));
        std::vector<uint32_t> rows;
        for (const Wanted& one : now) rows.push_back(one.row);
        if (!computed && now[0].slice.rest->wants_hidden())
            recordings_.run_last_norm(rows);
        else if (!computed)
            recordings_.run_head(rows, separate);
        for (size_t i = 0; i < now.size(); i++) {
            const auto values = recordings_.computed(computed ? now[i].row : uint32_t(i));
            if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) fail_nonfinite(std::nullopt);
            each_(now[i].slice.rest->number, now[i].id, values);
        }
        first += now.size();
    }
}

// Runs a pass of separate rows, those of all spans that come to them. Returns false where there are none.
bool SpanRun::run_separate() {
    for (Rest& rest : rests_) {
        const uint32_t room = max_separate_rows(options_) - rows_.count();
        if (is_separate(rest) && room > 0) add(rest, std::min(room, rest.left()), true);
    }
    if (slices_.empty()) return false;
    // The head runs in the same submission where it has the same rows.
    bool with_head = true;
    for (const Slice& slice : slices_)
        for (uint32_t i = 0; i < slice.ids; i++)
            with_head = with_head && slice.rest->wants(slice.rest->done + i) && !slice.rest->wants_hidden();
    recordings_.run_separate(rows_, with_head);
    deliver(take(), with_head, true);
    return true;
}

// Returns the spans whose next slices fill a block together, longer than a short one: so each runs with the kernels of blocks.
std::vector<Rest*> SpanRun::blocks_together() {
    std::vector<Rest*> out;
    uint32_t rows = 0, position = 0;
    for (Rest& rest : rests_) {
        const uint32_t ids = slice_of(rest);
        if (ids <= short_block_ || is_separate(rest) || rows + ids > options_.batch_size ||
            out.size() == max_block_spans(options_))
            continue;
        out.push_back(&rest);
        rows += ids;
        position = std::max(position, rest.position());
    }
    if (out.size() < 2 || pace_.next(position, rows) < rows) out.clear();
    return out;
}

bool SpanRun::run_block() {
    const std::vector<Rest*> together = blocks_together();
    if (together.empty()) {
        Rest& rest = *std::ranges::find_if(rests_, [](const Rest& r) { return r.left() > 0; });
        return run_block_of_one(rest, slice_of(rest));
    }
    for (Rest* rest : together) add(*rest, slice_of(*rest), false);
    if (!recordings_.run_block(rows_, rows_.count(), [&] { return keep_going(); })) {
        for (const Slice& slice : slices_)
            cache_.truncate(slice.rest->span.slot, slice.rest->position(), slice.rest->position() + slice.ids);
        return false;
    }
    deliver(take(), false, true);
    return true;
}

// Runs a slice in as many passes as the device needs to stay responsive. Their kernels are those of the whole slice, so that
// results do not depend on the speed of earlier blocks, except for the rounding of a short block, whose attention is split.
bool SpanRun::run_block_of_one(Rest& rest, uint32_t ids) {
    for (uint32_t left = ids, count; left > 0; left -= count) {
        count = pace_.next(rest.position(), left);
        const uint32_t position = rest.position();
        add(rest, count, false);
        const auto start = std::chrono::steady_clock::now();
        if (!recordings_.run_block(rows_, ids, [&] { return keep_going(); })) {
            cache_.truncate(rest.span.slot, position, position + count);
            return false;
        }
        pace_.ran(position, count, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        deliver(take(), false, rest.span.logits != Span::Logits::all);
        if (left > count && !keep_going()) return false;
    }
    return true;
}

class GpuForward final : public Forward {
  public:
    GpuForward(Device& device, const Config& config, std::shared_ptr<const DeviceWeights> weights, const ForwardOptions& options,
               const Tuning& tuning, std::optional<double> layer_seconds)
        : device_(device), config_(config), options_(options), tuning_(tuning_for_rows(tuning, options)),
          pace_(device.capabilities().type, config, tuning,
                layer_seconds.value_or(max_layer_seconds(device.capabilities().type))),
          weights_(std::move(weights)), vectors_(make_vectors(device, config, options_)),
          cache_(device, vectors_, shape(config, options_)),
          recordings_(device, config_, *weights_, options_, tuning_, vectors_, cache_) {}

    using Forward::run;
    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override;

    uint32_t max_sampled() const override { return recordings_.samples() ? SAMPLING_STEPS : 0; }
    std::vector<uint32_t> run_sampled(uint32_t id, uint32_t n, const DeviceSampling& sampling) override;

    void record_again() override { recordings_.forget(); }

    uint32_t max_separate_rows() const override { return gpu::max_separate_rows(options_); }
    Cache& cache() override { return cache_; }
    const KvOptions& kv() const override { return options_.kv; }
    uint64_t kv_bytes_per_token() const override { return tq::kv_bytes_per_token(config_, options_.kv); }
    BlockKernels block_kernels() const override { return block_kernels_of(options_, tuning_); }
    std::string computation() const override;

  private:
    // A folded norm is rounded otherwise: rows that must have the bits that they have alone do without.
    static Tuning tuning_for_rows(Tuning tuning, const ForwardOptions& o) {
        tuning.fold_norms = tuning.fold_norms && o.slots == 1 && !o.deterministic && !o.speculative;
        return tuning;
    }
    static Cache::Shape shape(const Config& config, const ForwardOptions& o) {
        const bool has_window = o.kv.layers_with_window(config.num_hidden_layers) != 0;
        return {o.slots, o.pages(), o.context_size, has_window ? o.kv.window : 0};
    }
    static KvCache make_vectors(Device& device, const Config& config, const ForwardOptions& options);
    [[noreturn]] void report_nonfinite(std::span<const Cache::Need> starts);

    Device& device_;
    const Config config_;
    const ForwardOptions options_;
    const Tuning tuning_;
    BlockPace pace_;
    const std::shared_ptr<const DeviceWeights> weights_;
    const KvCache vectors_;
    DeviceCache cache_;
    Recordings recordings_;
};

// A driver that reads the cache by texel buffers does so up to a size of them.
std::string GpuForward::computation() const {
    const Capabilities& c = device_.capabilities();
    std::string text =
        fmt::format("{} {:x}:{:x}, {} {} {:x}, subgroups of {}, {}", c.name, c.vendor_id, c.device_id, c.driver_name,
                    c.driver_info, c.driver_version, tuning_.subgroup, describe(tuning_, tuning_fields()));
    text += options_.deterministic ? ", separate rows" : fmt::format(", blocks of {}", options_.batch_size);
    text += fmt::format(", facts {} {} {} {} {} {} {}x{}x{}", tuning_.shared_bytes, tuning_.max_workgroup, tuning_.float16,
                        tuning_.int8_dot, tuning_.matrix_subgroup, tuning_.fold_norms, tuning_.matrix.m, tuning_.matrix.n,
                        tuning_.matrix.k);
    if (tuning_.texel_buffers) text += fmt::format(", texel buffers, {} pages", vectors_.pages);
    return text;
}

KvCache GpuForward::make_vectors(Device& device, const Config& config, const ForwardOptions& options) {
    KvCache out(device, config, options.kv, options.pages());
    const uint32_t window = shape(config, options).window_tokens;
    if (window != 0) out.keep_window(device, options.slots, window, options.batch_size);
    return out;
}

bool GpuForward::run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) {
    std::vector<Cache::Need> needs, starts;
    for (const Span& span : spans) {
        ENSURE(!span.ids.empty(), "span of slot {}", span.slot);
        needs.push_back({span.slot, uint32_t(span.ids.size())});
        starts.push_back({span.slot, cache_.position(span.slot)});
    }
    cache_.reserve(needs);
    SpanRun passes(recordings_, cache_, pace_, options_, tuning_, spans, each, progress);
    try {
        return passes.run();
    } catch (const NonFinite&) {
        report_nonfinite(starts);
    }
}

std::vector<uint32_t> GpuForward::run_sampled(uint32_t id, uint32_t n, const DeviceSampling& sampling) {
    const uint32_t start = cache_.position(0);
    ENSURE(n > 0 && n <= SAMPLING_STEPS && n <= options_.context_size - start, "{} tokens at {}", n, start);
    ENSURE(config_.vocab_size <= max_sampling_logits, "{} logits", config_.vocab_size);
    cache_.reserve(0, n);
    PassRows row;
    row.add(0, start, {&id, 1}, cache_.window(0).begin, true);
    std::vector<uint32_t> ids = recordings_.run_ahead(row, n, sampling);
    cache_.advance(0, n);
    cache_.truncate(0, start + std::max(uint32_t(ids.size()), 1u));
    if (ids.empty()) report_nonfinite(std::array{Cache::Need{0, start}});
    return ids;
}

// Returns to the positions where the run began, after a look for the first stored vector that is not finite.
void GpuForward::report_nonfinite(std::span<const Cache::Need> starts) {
    std::optional<std::string> where;
    try {
        for (const auto& [slot, start] : starts)
            if (!where && (where = vectors_.find_nonfinite(device_, cache_.table(slot), cache_.position(slot))) &&
                options_.slots > 1)
                *where += fmt::format(" of slot {}", slot);
    } catch (const OutOfMemory&) { // finding the vector needs memory; report the error without it
    }
    for (const auto& [slot, start] : starts) cache_.truncate(slot, start);
    fail_nonfinite(where);
}

// Returns the options with a cache of as many pages as fit into the device's memory, where those of the context do not.
ForwardOptions with_cache_that_fits(const Device& device, const Config& config, const Weights& weights, ForwardOptions options) {
    MemoryPlan plan = plan_memory(device, config, weights, options);
    if (!plan.fits()) {
        const uint64_t over = plan.total() - plan.available, page = cache_bytes(config, options.kv, 1);
        const uint32_t pages = options.pages(), fewest = std::min(pages, fewest_pages);
        options.cache_tokens = std::max(pages - uint32_t(std::min<uint64_t>(pages, over / page + 1)), fewest) * page_tokens;
        plan = plan_memory(device, config, weights, options);
    }
    if (!plan.fits())
        fail("{}: {}. Choose smaller cache types with -ctk and -ctv (now {}) or a smaller model", device.capabilities().name,
             describe(plan), describe(options.kv));
    return options;
}

} // namespace

std::unique_ptr<Forward> make_gpu_forward(Device& device, const Config& config, const Weights& weights,
                                          const ForwardOptions& options, const LoadProgress& on_load) {
    const Tuning tuning = tuning_for(device.capabilities());
    require_batch(device.capabilities(), config, tuning, with_batch_size(options, tuning));
    const ForwardOptions full = with_cache_that_fits(device, config, weights, with_batch_size(options, tuning));
    require_bindable(device.capabilities(), config, full.kv, full.pages());
    return std::make_unique<GpuForward>(device, config, load(device, tuning, weights, full.threads, on_load), full, tuning,
                                        std::nullopt);
}

std::unique_ptr<Forward> make_gpu_forward(Device& device, const Config& config, std::shared_ptr<const DeviceWeights> weights,
                                          const ForwardOptions& options, const Tuning& tuning,
                                          std::optional<double> layer_seconds) {
    const ForwardOptions full = with_batch_size(options, tuning);
    require_batch(device.capabilities(), config, tuning, full);
    require_bindable(device.capabilities(), config, full.kv, full.pages());
    return std::make_unique<GpuForward>(device, config, std::move(weights), full, tuning, layer_seconds);
}

} // namespace tq
