// A scheduler with a small model: checks for every implementation of Forward.
#pragma once
#include "model/engine/serving/scheduler.h"
#include "model/engine/speculation/mtp.h"
#include "model/engine/speculation/ngram.h"
#include "model/engine/speculation/speculation.h"
#include "model/prefix/cache.h"
#include "tests/support/sanitized.h"
#include "tests/support/small_model.h"
#include "tests/support/spans.h"
#include <atomic>
#include <map>
#include <thread>
#include <tuple>

namespace tq {

constexpr uint32_t scheduler_context = 700;

// Passes that lose the device: after `passes` passes, `times` times one after the other.
struct Losses {
    std::atomic<int> passes = 0, times = 0;
};

// Runs another Forward, and is lost when it is told: in a pass, after its results.
class LosableForward final : public Forward {
  public:
    LosableForward(std::unique_ptr<Forward> forward, std::shared_ptr<Losses> losses)
        : forward_(std::move(forward)), losses_(std::move(losses)) {}

    using Forward::run;
    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override {
        if (!is_lost()) return forward_->run(spans, each, progress);
        forward_->run(spans, each, progress);
        fail(lost);
    }
    std::vector<uint32_t> run_sampled(uint32_t slot, uint32_t id, uint32_t n, const DeviceSampling& sampling) override {
        if (is_lost()) fail(lost);
        return forward_->run_sampled(slot, id, n, sampling);
    }
    std::vector<Ids> draft(std::span<const DraftStart> starts, uint32_t n, DraftIds ids, const DraftLogits& each) override {
        return forward_->draft(starts, n, ids, each);
    }
    const ForwardFacts& facts() const override { return forward_->facts(); }
    Cache& cache() override { return forward_->cache(); }

  private:
    static constexpr const char* lost = "the GPU stopped answering";

    bool is_lost() const {
        if (losses_->times <= 0 || losses_->passes-- > 0) return false;
        losses_->times--;
        return true;
    }

    const std::unique_ptr<Forward> forward_;
    const std::shared_ptr<Losses> losses_;
};

// The source of drafts, whether they pay or not.
enum class Drafts { none, lookup, head, lookup_and_head };

struct SchedulerSetup {
    KvOptions kv{KvType::tq4, KvType::tq4};
    uint32_t slots = 4, pages = 0, queue = 256, batch = 32;
    bool deterministic = false, prefix = true;
    uint64_t memory_pages = 100; // of preempted requests
    Drafts drafts = Drafts::none;
    serving::Reuse reuse = serving::Reuse::cold;
    std::function<bool(uint32_t)> is_end = [](uint32_t id) { return id == 5; };
    SharedPages::Options shared{}; // a store for the prefix cache
    std::filesystem::path disk{};  // of the prefix cache; empty: one of its own
};

class SchedulerUnderTest {
  public:
    SchedulerUnderTest(const auto& model, MakeForward make, const SchedulerSetup& setup)
        : config_(model.config), make_(std::move(make)), setup_(setup) {
        serving::Scheduler::Options options;
        options.queue = setup.queue;
        options.is_end = setup.is_end;
        options.reuse = setup.reuse;
        options.excluded.resize(config_.vocab_size);
        options.excluded_ends = options.excluded;
        options.excluded_ends[5] = true;
        if (setup.drafts != Drafts::none) {
            speculation_ = std::make_unique<Speculation>(drafters(setup.drafts),
                                                         SpeculationOptions{.draft_max = draft_max, .adaptive = false});
            options.speculation = speculation_.get();
        }
        serving::Scheduler::Model first = open();
        options.memory_bytes = setup.memory_pages * first.forward->cache().page_layout().bytes(page_tokens);
        scheduler_ = std::make_unique<serving::Scheduler>(
            std::move(first), [this] { return open(); }, options);
    }

    serving::Scheduler& operator*() { return *scheduler_; }
    serving::Scheduler* operator->() { return scheduler_.get(); }
    void lose_after(int passes, int times = 1) {
        losses_->passes = passes;
        losses_->times = times;
    }
    uint32_t opened() const { return opened_; }

    // The state when nothing runs any more.
    serving::Status rest() {
        REQUIRE(scheduler_->drain(std::chrono::seconds(60)));
        return scheduler_->status();
    }

  private:
    static constexpr uint32_t draft_max = 5;

    static std::vector<std::unique_ptr<Drafter>> drafters(Drafts drafts) {
        std::vector<std::unique_ptr<Drafter>> out;
        if (drafts != Drafts::head) out.push_back(std::make_unique<NgramDrafter>());
        if (drafts != Drafts::lookup) out.push_back(std::make_unique<MtpDrafter>());
        return out;
    }
    serving::Scheduler::Model open() {
        opened_++;
        ForwardOptions options{.kv = setup_.kv, .context_size = scheduler_context, .slots = setup_.slots};
        options.cache_tokens = setup_.pages * page_tokens;
        options.threads = 2;
        options.batch_size = setup_.batch;
        options.deterministic = setup_.deterministic;
        options.speculative = true;
        if (setup_.drafts != Drafts::none && config_.recurrent) options.pending = draft_max;
        serving::Scheduler::Model model{std::make_unique<LosableForward>(make_(options), losses_), nullptr};
        if (!setup_.prefix) return model;
        const CacheOwner owner{config_, setup_.kv, "a fingerprint", "a model", model.forward->computation()};
        PrefixCache::Options prefix{.memory_bytes = uint64_t(1) << 30};
        prefix.disk = {setup_.disk.empty() ? directory_.path() / "prefix" : setup_.disk, 1 << 30};
        prefix.shared = setup_.shared;
        model.prefix = std::make_unique<PrefixCache>(*model.forward, owner_texts(owner), prefix);
        return model;
    }

    const Config& config_;
    const MakeForward make_;
    const SchedulerSetup setup_;
    const test::TemporaryDirectory directory_;
    std::unique_ptr<Speculation> speculation_;
    const std::shared_ptr<Losses> losses_ = std::make_shared<Losses>();
    std::atomic<uint32_t> opened_ = 0;
    std::unique_ptr<serving::Scheduler> scheduler_;
};

struct StreamAnswer {
    Ids ids;
    serving::Update last;
};

inline StreamAnswer collect(serving::Stream& stream) {
    StreamAnswer out;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(10); // a software driver under sanitizers
    do {
        REQUIRE(std::chrono::steady_clock::now() < deadline);
        out.last = stream.wait(std::chrono::milliseconds(200));
        for (const serving::Token& token : out.last.tokens) out.ids.push_back(token.id);
    } while (!out.last.done);
    return out;
}

inline serving::Request request_of(Ids prompt, uint32_t max_tokens, uint64_t seed = 0, float temperature = 0) {
    serving::Request request;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    request.sampling.temperature = temperature;
    request.sampling.seed = seed;
    return request;
}

inline serving::Request copy_of(const serving::Request& request) {
    serving::Request copy = request_of(request.prompt, request.max_tokens, request.sampling.seed, request.sampling.temperature);
    copy.tenant = request.tenant;
    copy.marks = request.marks;
    return copy;
}

// Returns requests that share beginnings, some sampled, some longer than a page; with long_answers shorter ones, whose answers
// are longer than a page.
inline std::vector<serving::Request> mixed_requests(uint32_t count, bool long_answers) {
    std::mt19937 random(3);
    const Ids common = random_ids(random, 600);
    std::vector<serving::Request> all;
    for (uint32_t i = 0; i < count; i++) {
        Ids prompt(common.begin(), common.begin() + random() % (long_answers ? 40 : 580));
        const Ids own = random_ids(random, 1 + uint32_t(random() % 60));
        prompt.insert(prompt.end(), own.begin(), own.end());
        all.push_back(request_of(std::move(prompt), (long_answers ? 300 : 1) + uint32_t(random() % (long_answers ? 290 : 40)), i,
                                 i % 2 ? 0.8f : 0));
    }
    return all;
}

// A model, and what it answers to each of mixed_requests() alone, which is run once for each kind of cache.
template <typename Model> class ModelAlone {
  public:
    ModelAlone(const Model& model, MakeForward make) : model(model), make(std::move(make)) {}

    const Model& model;
    const MakeForward make;

    std::span<const Ids> answers(SchedulerSetup setup, const std::vector<serving::Request>& requests, bool long_answers) {
        setup.slots = 1, setup.pages = 0, setup.prefix = false, setup.drafts = Drafts::none;
        std::vector<Ids>& known = answers_[{describe(setup.kv), setup.deterministic, long_answers}];
        while (known.size() < requests.size()) {
            SchedulerUnderTest alone(model, make, setup);
            known.push_back(collect(*alone->submit(copy_of(requests[known.size()]))).ids);
        }
        return known;
    }

  private:
    std::map<std::tuple<std::string, bool, bool>, std::vector<Ids>> answers_;
};

// All at once, on fewer pages than they need, with a device that is lost, and with drafts, they are answered as each alone.
inline void check_scheduler(auto& alone, const SchedulerSetup& setup, uint32_t count, bool loses) {
    if (test::sanitized) count = std::min(count, setup.pages != 0 ? 10u : 6u); // ten preempt one another
    const auto requests = mixed_requests(count, setup.pages != 0);
    const auto expected = alone.answers(setup, requests, setup.pages != 0);
    SchedulerUnderTest scheduler(alone.model, alone.make, setup);
    if (loses) scheduler.lose_after(25);
    std::vector<std::shared_ptr<serving::Stream>> streams;
    for (const auto& request : requests) streams.push_back(scheduler->submit(copy_of(request)));
    for (uint32_t i = 0; i < count; i++) {
        CAPTURE(i);
        const StreamAnswer answer = collect(*streams[i]);
        CHECK(answer.last.finish != serving::Finish::failed);
        CHECK(answer.last.error == "");
        CHECK(answer.ids == expected[i]);
        CHECK(answer.last.timings.cached_tokens + answer.last.timings.prompt_tokens == requests[i].prompt.size());
    }
    const serving::Status status = scheduler.rest();
    CHECK(status.running == 0);
    CHECK(status.waiting == 0);
    CHECK(status.requests == count);
    CHECK(status.failed == 0);
    CHECK(status.device_losses == (loses ? 1 : 0));
    CHECK(scheduler.opened() == (loses ? 2 : 1));
    CHECK((setup.pages == 0 || status.preempted > 0));
    CHECK((setup.drafts == Drafts::none || setup.drafts == Drafts::lookup || status.drafted_tokens > 0));
    if (setup.prefix) CHECK(status.free_pages + status.spare_pages == status.pages);
}

} // namespace tq
