// Cuts spans into passes. A span is a chunk of one sequence. It is cut into slices of at most a block (-b), and each slice runs
// in one of two ways:
// - Separate rows: a slice of few ids (PassLimits::separate_slice), and every slice of a span with drafts, or if the options
//   are deterministic. Each row has the kernels of a single token, so it has the bits that it has alone. Rows of several spans
//   share a pass, which reads the weights once.
// - A block: any longer slice, with the kernels of blocks. Slices of several spans share a block if each is longer than a short
//   block.
// So the kernels of a row depend on its own span alone, never on the other spans of the run: this makes an answer independent of
// other requests. A longer span never ends in a short slice: if its rest would be short, the slice before gives some of its rows
// (BlockKernels::slice). A device that must stay responsive runs a slice in several passes (Stage::next_rows), with the kernels
// of the whole slice. If a run stops or throws, the rows of the current pass count for nothing, and are cut.
#include "model/span_run.h"
#include "base/ensure.h"
#include "base/statistics.h"
#include <algorithm>

namespace tq {
namespace {

// A span; `done` of its ids have been run.
struct SpanRest {
    const Span& span;
    size_t number;
    uint32_t start, done = 0;

    uint32_t left() const { return uint32_t(span.ids.size()) - done; }
    uint32_t position() const { return start + done; }
    // Returns whether the logits or the state of id `i` are wanted.
    bool wants(uint32_t i) const {
        return span.logits == Span::Logits::all || (span.logits != Span::Logits::none && i + 1 == span.ids.size());
    }
    bool has_drafts() const { return span.certain < span.ids.size(); }
    bool wants_hidden() const { return span.logits == Span::Logits::hidden; }
};

// A call of run(): its spans, cut into passes.
class SpanRun {
  public:
    SpanRun(Stage& stage, const PassLimits& limits, HalfRange halves, Cache& cache, std::span<const Span> spans,
            const SpanLogits& each, const Progress& progress)
        : stage_(stage), limits_(limits), halves_(halves), cache_(cache), each_(each), progress_(progress) {
        for (const Span& span : spans) {
            rests_.push_back({span, rests_.size(), cache.position(span.slot)});
            total_ += uint32_t(span.ids.size());
        }
    }

    // Returns false if it was stopped.
    bool run() try {
        while (done_ < total_) {
            if (!run_separate()) run_block();
            if (stopped_ || !keep_going()) return false;
        }
        return true;
    } catch (...) {
        stop();
        throw;
    }

  private:
    // The ids of a span in a pass.
    struct Slice {
        SpanRest* rest;
        uint32_t ids, first_row;
    };
    struct RequestedRow {
        Slice slice;
        uint32_t row, id; // of the pass, of the span
    };

    bool keep_going() const { return !progress_ || progress_(done_, total_); }
    bool is_separate(const SpanRest& rest) const {
        return rest.left() > 0 &&
               (limits_.deterministic || rest.has_drafts() || limits_.slice(rest.left()) <= limits_.separate_slice);
    }
    void add(SpanRest& rest, uint32_t ids, bool separate);
    size_t head_rows(std::span<const RequestedRow> requested, bool separate) const;
    std::span<const float> compute(std::span<const RequestedRow> requested, bool separate);
    void pass_on(std::span<const RequestedRow> requested, std::span<const float> values);
    void deliver(std::span<const RequestedRow> requested, bool separate);
    std::vector<RequestedRow> take();
    void stop();
    bool run_separate();
    void run_block();
    void run_block_of_one(SpanRest& rest, uint32_t ids);
    std::vector<SpanRest*> blocks_together();

    Stage& stage_;
    const PassLimits& limits_;
    const HalfRange halves_;
    Cache& cache_;
    const SpanLogits& each_;
    const Progress& progress_;
    std::vector<SpanRest> rests_;
    uint32_t total_ = 0, done_ = 0;
    bool stopped_ = false;
    PassRows rows_; // of the next pass
    std::vector<Slice> slices_;
};

void SpanRun::add(SpanRest& rest, uint32_t ids, bool separate) {
    const uint32_t slot = rest.span.slot;
    slices_.push_back({&rest, ids, rows_.count()});
    rows_.add(slot, rest.position(), rest.span.ids.subspan(rest.done, ids), cache_.window(slot).begin, separate,
              {cache_.settled(slot), settled_after(rest.span, rest.start)});
}

// Counts the slices that have been run, and begins the next pass. Returns the rows whose logits or states are wanted.
std::vector<SpanRun::RequestedRow> SpanRun::take() {
    std::vector<RequestedRow> requested;
    for (const Slice& slice : slices_) {
        for (uint32_t i = 0; i < slice.ids; i++)
            if (slice.rest->wants(slice.rest->done + i)) requested.push_back({slice, slice.first_row + i, slice.rest->done + i});
        cache_.advance(slice.rest->span.slot, slice.ids, settled_after(slice.rest->span, slice.rest->start));
        slice.rest->done += slice.ids;
        done_ += slice.ids;
    }
    slices_.clear();
    rows_ = {};
    return requested;
}

// A pass was stopped: the vectors that it stored count for nothing.
void SpanRun::stop() {
    stopped_ = true;
    for (const Slice& slice : slices_)
        cache_.cut(slice.rest->span.slot, slice.rest->position(), slice.rest->position() + slice.ids);
}

// Returns whether the logits of a row are computed as those of a row alone: those of separate rows, and of a block's last row.
static bool is_alone(const SpanRest& rest, bool separate) { return separate || rest.span.logits != Span::Logits::all; }

// Returns how many of these rows the head runs on at once: the longest beginning that it treats alike.
size_t SpanRun::head_rows(std::span<const RequestedRow> requested, bool separate) const {
    const SpanRest& first = *requested[0].slice.rest;
    const bool hidden = first.wants_hidden(), alone = is_alone(first, separate);
    const size_t max = hidden ? limits_.max_hidden_rows : alone ? limits_.max_separate_rows : limits_.max_head_rows;
    const auto alike = [&](const RequestedRow& one) {
        return one.slice.rest->wants_hidden() == hidden && is_alone(*one.slice.rest, separate) == alone;
    };
    return std::min(max, size_t(std::ranges::find_if_not(requested, alike) - requested.begin()));
}

// Returns the logits or states of these rows of the last pass, which the head treats alike.
std::span<const float> SpanRun::compute(std::span<const RequestedRow> requested, bool separate) {
    std::vector<uint32_t> rows;
    for (const RequestedRow& one : requested) rows.push_back(one.row);
    const SpanRest& first = *requested[0].slice.rest;
    return first.wants_hidden() ? stage_.run_last_norm(rows, {}) : stage_.run_head(rows, {}, is_alone(first, separate));
}

void SpanRun::pass_on(std::span<const RequestedRow> requested, std::span<const float> values) {
    require_finite(values);
    const size_t cols = values.size() / requested.size();
    for (size_t i = 0; i < requested.size(); i++)
        each_(requested[i].slice.rest->number, requested[i].id, values.subspan(i * cols, cols));
}

// Computes the wanted logits or states of the rows of a pass, a few rows at a time, and passes them on.
void SpanRun::deliver(std::span<const RequestedRow> requested, bool separate) {
    for (size_t count; !requested.empty(); requested = requested.subspan(count)) {
        count = head_rows(requested, separate);
        pass_on(requested.first(count), compute(requested.first(count), separate));
    }
}

// Runs a pass of separate rows, of all spans whose next slice is short. Returns false if there are none.
bool SpanRun::run_separate() {
    for (SpanRest& rest : rests_) {
        const uint32_t room = limits_.separate_room - rows_.count();
        if (is_separate(rest) && room > 0) add(rest, std::min(room, rest.left()), true);
    }
    if (slices_.empty()) return false;
    // The head runs in the same submission if it has the same rows.
    bool with_head = true;
    for (const Slice& slice : slices_)
        for (uint32_t i = 0; i < slice.ids; i++)
            with_head = with_head && slice.rest->wants(slice.rest->done + i) && !slice.rest->wants_hidden();
    std::span<const float> logits;
    if (!stage_.run_separate(halves_, rows_, {}, with_head ? &logits : nullptr, [&] { return keep_going(); })) {
        stop();
        return true;
    }
    const std::vector<RequestedRow> requested = take();
    with_head ? pass_on(requested, logits) : deliver(requested, true);
    return true;
}

// Returns the spans whose next slices share a block. Each slice is longer than a short block, so it runs with the kernels of
// blocks.
std::vector<SpanRest*> SpanRun::blocks_together() {
    std::vector<SpanRest*> out;
    uint32_t rows = 0, position = 0;
    for (SpanRest& rest : rests_) {
        const uint32_t ids = limits_.slice(rest.left());
        if (ids == 0 || ids <= limits_.short_block || rows + ids > limits_.batch_size || out.size() == limits_.max_block_spans)
            continue;
        out.push_back(&rest);
        rows += ids;
        position = std::max(position, rest.position());
    }
    if (out.size() < 2 || stage_.next_rows(position, rows) < rows) out.clear();
    return out;
}

void SpanRun::run_block() {
    const std::vector<SpanRest*> together = blocks_together();
    if (together.empty()) {
        SpanRest& rest = *std::ranges::find_if(rests_, [](const SpanRest& r) { return r.left() > 0; });
        return run_block_of_one(rest, limits_.slice(rest.left()));
    }
    for (SpanRest* rest : together) add(*rest, limits_.slice(rest->left()), false);
    if (!stage_.run_block(halves_, rows_, rows_.count(), {}, [&] { return keep_going(); })) return stop();
    deliver(take(), false);
}

// Runs a slice in as many passes as the device needs to stay responsive. Their kernels are those of the whole slice, so that
// results do not depend on the speed of earlier blocks, except for the rounding of a short block, whose attention is split.
void SpanRun::run_block_of_one(SpanRest& rest, uint32_t ids) {
    for (uint32_t left = ids, count; left > 0; left -= count) {
        count = stage_.next_rows(rest.position(), left);
        add(rest, count, false);
        if (!stage_.run_block(halves_, rows_, ids, {}, [&] { return keep_going(); })) return stop();
        deliver(take(), false);
        if (left > count && !keep_going()) stopped_ = true;
        if (stopped_) return;
    }
}

} // namespace

bool run_spans(Stage& stage, const PassLimits& limits, HalfRange halves, Cache& cache, std::span<const Span> spans,
               const SpanLogits& each, const Progress& progress) {
    const std::vector<Cache::Need> starts = begin_run(cache, spans);
    try {
        return SpanRun(stage, limits, halves, cache, spans, each, progress).run();
    } catch (const NonFinite&) {
        report_nonfinite(cache, starts);
    }
}

uint32_t settled_after(const Span& span, uint32_t start) {
    return span.certain < span.ids.size() ? start + span.certain : UINT32_MAX;
}

std::vector<Cache::Need> begin_run(Cache& cache, std::span<const Span> spans) {
    ENSURE(!spans.empty(), "no spans");
    std::vector<Cache::Need> needs, starts;
    std::vector<bool> occurs(cache.shape().slots);
    for (const Span& span : spans) {
        ENSURE(!span.ids.empty() && span.slot < occurs.size() && !occurs[span.slot], "{} ids for slot {}", span.ids.size(),
               span.slot);
        occurs[span.slot] = true;
        needs.push_back({span.slot, uint32_t(span.ids.size())});
        starts.push_back({span.slot, cache.position(span.slot)});
        const size_t drafts = span.ids.size() - std::min<size_t>(span.certain, span.ids.size());
        ENSURE(drafts == 0 || !cache.shape().recurrent || (span.certain <= 1 && drafts <= cache.shape().pending),
               "{} drafts after {} ids", drafts, span.certain);
    }
    cache.reserve(needs);
    return starts;
}

void report_nonfinite(Cache& cache, std::span<const Cache::Need> starts) {
    std::optional<std::string> where;
    try {
        for (const auto& [slot, start] : starts)
            if (!where) where = cache.find_nonfinite(slot);
    } catch (const OutOfMemory&) { // the error is reported without it
    }
    for (const auto& [slot, start] : starts) cache.cut(slot, start);
    fail_nonfinite(where);
}

void require_finite(std::span<const float> values) {
    if (!all_finite(values)) fail_nonfinite(std::nullopt);
}

std::span<const float> Stage::run_draft(const PassRows& rows, DraftIds) {
    ENSURE(false, "{} rows: there is no head for drafts", rows.count());
    return {};
}

std::vector<uint32_t> Stage::run_ahead(const PassRows&, uint32_t n, const DeviceSampling&, std::optional<DraftIds>) {
    ENSURE(false, "{} tokens: sampling is not offered", n);
    return {};
}

} // namespace tq
