// A model whose layers are on several ranks: the bits of one process, ranks that disagree, and ranks that end.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/cpu/stage.h"
#include "model/ranks/local_transport.h"
#include "model/ranks/rank_group.h"
#include "model/stages/split_forward.h"
#include "tests/support/spans.h"
#include <thread>

using namespace tq;

namespace {

RankFacts facts_of(const std::string& device) {
    return {"here", device, uint64_t(1) << 30, 32, {{"model", "small"}, {"version", "1"}}};
}

// Ranks 1 and up as threads of this process, with the CPU each.
class Workers {
  public:
    Workers(LocalRanks& ranks, const Config& config, const Weights& weights, const std::vector<RankFacts>& facts) {
        for (uint32_t rank = 1; rank < ranks.size(); rank++)
            threads_.emplace_back([&ranks, &config, &weights, rank, own = facts.empty() ? facts_of("CPU") : facts[rank]] {
                const auto transport = ranks.transport(rank);
                join(*transport, own);
                const RankModel model{config,
                                      [&](const Cache& cache, const ForwardOptions& options) {
                                          ForwardOptions here = options;
                                          here.threads = 1;
                                          return make_cpu_stage(config, weights, cache, here);
                                      },
                                      [&](const ForwardOptions& options) {
                                          return plan_cpu_memory(config, held_weights(weights, options.held), options);
                                      }};
                try {
                    host_stages(*transport, model);
                } catch (const RankLost&) { // it was ended
                }
            });
    }
    ~Workers() {
        for (std::thread& thread : threads_) thread.join();
    }

  private:
    std::vector<std::thread> threads_;
};

// A job, whose rank 0 is this thread.
struct Job {
    const Config& config;
    const Weights& weights;
    LocalRanks ranks;
    Workers workers;
    const std::unique_ptr<Transport> transport;
    RankGroup group;

    Job(const Config& config, const Weights& weights, uint32_t size, const std::vector<RankFacts>& facts = {})
        : config(config), weights(weights), ranks(size), workers(ranks, config, weights, facts), transport(ranks.transport(0)),
          group(*transport, facts_of("CPU")) {}

    MakeStage own() const {
        return
            [this](const Cache& cache, const ForwardOptions& options) { return make_cpu_stage(config, weights, cache, options); };
    }
    std::unique_ptr<Forward> make(const Split& split, const ForwardOptions& options) {
        return group.make_forward(config, weights, options, split, own());
    }
};

// The same split in one process.
std::unique_ptr<Forward> make_here(const Config& config, const Weights& weights, const Split& split,
                                   const ForwardOptions& options) {
    const std::vector<MakeStage> make(split.devices(), [&](const Cache& cache, const ForwardOptions& part) {
        return make_cpu_stage(config, weights, cache, part);
    });
    return make_split_forward(config, weights, options, split, make);
}

const std::vector<std::vector<uint32_t>> divisions{{1, 1}, {0, 2}, {2, 0}, {1, 0, 1}, {0, 1, 1}};

} // namespace

TEST_CASE("on several ranks every token has the bits of one process, in blocks and one by one") {
    const SmallModel model;
    for (const auto& layers : divisions)
        for (const bool deterministic : {false, true}) {
            CAPTURE(layers.size());
            CAPTURE(layers[0]);
            CAPTURE(deterministic);
            Job job(model.config, model.weights, uint32_t(layers.size()));
            ForwardOptions options = options_of({KvType::tq4, KvType::tq3}, 2);
            options.deterministic = deterministic;
            const Split split = split_of_ranks(layers);
            const auto remote = job.make(split, options), here = make_here(model.config, model.weights, split, options),
                       whole = make_cpu_forward(model.config, model.weights, options);
            std::mt19937 random(11);
            const Ids prompt = random_ids(random, 500), more = random_ids(random, 20);
            const std::vector<float> wanted = run_one(*whole, 1, prompt);
            CHECK(run_one(*here, 1, prompt) == wanted);
            CHECK(run_one(*remote, 1, prompt) == wanted);
            CHECK(same_stored(remote->cache(), 1, whole->cache(), 1));
            for (const uint32_t id : more) REQUIRE(run_one(*remote, 1, {id}) == run_one(*whole, 1, {id}));
            const Span all{0, prompt, Span::Logits::all};
            CHECK(run(*remote, {&all, 1}) == run(*whole, {&all, 1}));
        }
}

TEST_CASE("sequences in company, forked, restored, repeated and embedded on several ranks") {
    const SmallModel model;
    for (const auto& layers : {std::vector<uint32_t>{1, 1}, {0, 1, 1}}) {
        Job job(model.config, model.weights, uint32_t(layers.size()));
        const Split split = split_of_ranks(layers);
        const MakeForward make = [&](const ForwardOptions& options) { return job.make(split, options); };
        if (layers.size() == 2) check_company(make, {with_window(KvType::tq4, KvType::tq3t, 40)});
        check_fork(make, {{KvType::tq4, KvType::tq4}});
        check_deterministic(make, {{KvType::tq4, KvType::tq4}});
        check_hidden(make, 3);
        check_restored(make);
        check_repeat(make);
        check_nonfinite(make);
    }
}
