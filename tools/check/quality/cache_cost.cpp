// The cost of caches on chunks of a text: all of them and the reference run over a chunk together, and the second half of its
// tokens counts. Timed adds up the seconds of each Forward, and can give it its ids one by one, to compare a run in blocks with a
// run token by token (of_blocks).
#include "tools/check/quality/cache_cost.h"
#include "base/ensure.h"
#include "base/stopwatch.h"
#include <algorithm>

namespace tq::quality {

// A Forward with a clock; it takes the ids of a span one by one if that is requested.
class CacheCosts::Timed final : public Forward {
  public:
    explicit Timed(Forward& forward, bool one_by_one = false)
        : forward_(forward), facts_(without_sampling(forward.facts())), one_by_one_(one_by_one) {}

    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override {
        const Stopwatch stopwatch;
        const bool done = one_by_one_ ? run_singly(spans[0], each, progress) : forward_.run(spans, each, progress);
        seconds += stopwatch.seconds();
        return done;
    }
    const ForwardFacts& facts() const override { return facts_; }
    Cache& cache() override { return forward_.cache(); }

    double seconds = 0;

  private:
    bool run_singly(const Span& span, const SpanLogits& each, const Progress& progress) {
        const auto total = uint32_t(span.ids.size());
        for (uint32_t i = 0; i < total; i++) {
            each(0, i, forward_.run(span.ids.subspan(i, 1)));
            if (progress && !progress(i + 1, total)) return false;
        }
        return true;
    }

    Forward& forward_;
    const ForwardFacts facts_;
    const bool one_by_one_;
};

Chunks cut(std::span<const uint32_t> ids, uint32_t tokens, size_t first, size_t count) {
    const size_t whole = ids.size() / tokens, from = std::min(first, whole), to = from + std::min(count, whole - from);
    return {{ids.begin() + std::ptrdiff_t(from * tokens), ids.begin() + std::ptrdiff_t(to * tokens)}, tokens};
}

CacheCosts::CacheCosts(MakeForward make, const KvOptions& reference, Chunks chunks)
    : make_(std::move(make)), reference_(reference), chunks_(std::move(chunks)) {
    ENSURE(chunks_.tokens >= 4 && chunks_.count() > 0, "{} ids in chunks of {}", chunks_.ids.size(), chunks_.tokens);
}

std::vector<CacheCost> CacheCosts::compare_all(std::span<Timed> measured, Timed& reference, const KeepGoing& keep_going) const {
    std::vector<Forward*> forwards;
    for (Timed& forward : measured) forwards.push_back(&forward);
    std::vector<std::vector<Divergence>> counted(measured.size());
    for (size_t chunk = 0; chunk < chunks_.count(); chunk++) {
        const auto here = [&](uint32_t done) { return !keep_going || keep_going(uint32_t(chunk * chunks_.tokens) + done); };
        const auto tokens = compare(forwards, reference, chunks_.at(chunk), here);
        if (tokens.empty()) return {};
        for (size_t i = 0; i < measured.size(); i++)
            counted[i].insert(counted[i].end(), tokens[i].begin() + chunks_.tokens / 2, tokens[i].end());
    }
    std::vector<CacheCost> out;
    for (size_t i = 0; i < measured.size(); i++) out.push_back({summarise(counted[i]), measured[i].seconds, reference.seconds});
    return out;
}

std::vector<CacheCost> CacheCosts::measure(std::span<const KvOptions> caches, const KeepGoing& keep_going) {
    if (!reference_forward_) reference_forward_ = make_(reference_);
    std::vector<std::unique_ptr<Forward>> forwards;
    std::vector<Timed> measured;
    for (const KvOptions& kv : caches) measured.emplace_back(*forwards.emplace_back(make_(kv)));
    Timed reference(*reference_forward_);
    return compare_all(measured, reference, keep_going);
}

std::optional<CacheCost> CacheCosts::of_blocks(const KeepGoing& keep_going) {
    if (!reference_forward_) reference_forward_ = make_(reference_);
    const auto forward = make_(reference_);
    std::array measured{Timed(*forward)};
    Timed reference(*reference_forward_, true);
    const std::vector<CacheCost> costs = compare_all(measured, reference, keep_going);
    return costs.empty() ? std::nullopt : std::optional(costs[0]);
}

} // namespace tq::quality
