// A model whose memory runs short at any point of a run goes on elsewhere as if nothing had happened.
#include "model/cpu/forward.h"
#include "model/stages/placed_forward.h"
#include "tests/support/spans.h"

using namespace tq;

namespace {

// A model whose memory runs short in the `countdown`th call of a run's progress or of what takes its logits.
class ShortOfMemory final : public Forward {
  public:
    ShortOfMemory(std::unique_ptr<Forward> model, uint32_t& countdown)
        : model_(std::move(model)), countdown_(countdown), facts_(model_->facts()) {
        facts_.max_sampled = 4;
    }

    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override {
        return model_->run(
            spans,
            [&](size_t span, uint32_t i, std::span<const float> logits) {
                count();
                each(span, i, logits);
            },
            [&](uint32_t done, uint32_t total) {
                if (done < total) count(); // else nothing is left to run, and the logits are to stay
                return !progress || progress(done, total);
            });
    }
    std::vector<uint32_t> run_sampled(uint32_t, uint32_t, uint32_t, const DeviceSampling&) override {
        throw OutOfMemory("short");
    }
    const ForwardFacts& facts() const override { return facts_; }
    Cache& cache() override { return model_->cache(); }

  private:
    void count() {
        if (countdown_ > 0 && --countdown_ == 0) throw OutOfMemory("short");
    }
    std::unique_ptr<Forward> model_;
    uint32_t& countdown_;
    ForwardFacts facts_;
};

template <class F> Remake with_less(const F& make) { return {make, {}}; }

ForwardOptions deterministic_options(uint32_t window = 0) {
    ForwardOptions options = options_of(with_window(KvType::tq4, KvType::tq4, window), 3);
    options.deterministic = true;
    return options;
}

struct Inputs {
    Ids first, second, third;
    explicit Inputs(std::mt19937& random)
        : first(random_ids(random, 300)), second(random_ids(random, 40)), third(random_ids(random, 3)) {}
};

// Runs a conversation in two slots that share pages, and returns all its logits.
std::vector<Logits> converse(
    Forward& forward, const Inputs& in, const std::function<void()>& before_each = [] {}) {
    std::vector<Logits> out;
    const auto all = Span::Logits::all;
    before_each();
    out.push_back(run(forward, std::array{Span{0, in.first}}));
    forward.cache().fork(0, 1, 290);
    before_each();
    out.push_back(run(forward, std::array{Span{0, in.second, all}, Span{1, in.third, all}}));
    before_each();
    out.push_back(run(forward, std::array{Span{1, in.second, Span::Logits::hidden}, Span{2, in.third}, Span{0, in.third, all}}));
    return out;
}

} // namespace

TEST_CASE("wherever memory runs short, every logit is computed once and as ever, with a window, too") {
    const SmallModel model;
    for (const uint32_t window : {0u, 16u}) {
        CAPTURE(window);
        std::mt19937 random(21);
        const Inputs in(random);
        const auto make = [&] { return make_cpu_forward(model.config, model.weights, deterministic_options(window)); };
        const auto plain = make();
        const std::vector<Logits> wanted = converse(*plain, in);
        uint32_t moves = 0;
        for (uint32_t at = 1; at <= 50; at++) {
            CAPTURE(at);
            uint32_t countdown = 0;
            const auto forward =
                make_placed_forward(std::make_unique<ShortOfMemory>(make(), countdown), with_less([&](const OutOfMemory& error) {
                                        CHECK(std::string(error.what()) == "short");
                                        moves++;
                                        return std::make_unique<ShortOfMemory>(make(), countdown);
                                    }));
            CHECK(converse(*forward, in, [&] { countdown = at; }) == wanted);
            for (uint32_t slot = 0; slot < 3; slot++) CHECK(same_stored(forward->cache(), slot, plain->cache(), slot));
        }
        CHECK(moves > 50);
    }
}

TEST_CASE("a run that samples on the device gives nothing when the model has moved, which then runs the token") {
    const SmallModel model;
    std::mt19937 random(22);
    const Ids prompt = random_ids(random, 30);
    uint32_t never = 0;
    const auto make = [&] { return make_cpu_forward(model.config, model.weights, deterministic_options()); };
    const auto forward = make_placed_forward(std::make_unique<ShortOfMemory>(make(), never),
                                             with_less([&](const OutOfMemory&) { return make(); }));
    const auto plain = make();
    CHECK(run_one(*forward, 0, prompt) == run_one(*plain, 0, prompt));
    CHECK(forward->run_sampled(0, 5, 4, {}).empty());
    CHECK(forward->position() == prompt.size());
    CHECK(forward->max_sampled() == 0);
    CHECK(run_one(*forward, 0, {5}) == run_one(*plain, 0, {5}));
}

TEST_CASE("where it fits nowhere the error is that of every run, and slots can still be emptied") {
    const SmallModel model;
    std::mt19937 random(23);
    const Ids prompt = random_ids(random, 30);
    uint32_t countdown = 0;
    const auto forward = make_placed_forward(
        std::make_unique<ShortOfMemory>(make_cpu_forward(model.config, model.weights, deterministic_options()), countdown),
        with_less([](const OutOfMemory& error) -> std::unique_ptr<Forward> { throw error; }));
    run_one(*forward, 1, prompt);
    countdown = 1;
    const SpanLogits ignored = [](size_t, uint32_t, std::span<const float>) {};
    for (int again = 0; again < 2; again++) {
        const Ids ids{5};
        CHECK_THROWS_AS(forward->run(std::array{Span{1, ids}}, ignored), OutOfMemory);
    }
    CHECK(forward->cache().position(1) == prompt.size());
    forward->cache().truncate(1, 0);
    CHECK(forward->cache().free_pages() == forward->cache().shape().pages);
}

TEST_CASE("a cache that is full is reported, and nothing moves") {
    const SmallModel model;
    ForwardOptions options = deterministic_options();
    options.cache_tokens = page_tokens;
    bool moved = false;
    const auto forward =
        make_placed_forward(make_cpu_forward(model.config, model.weights, options), with_less([&](const OutOfMemory& error) {
                                moved = true;
                                throw error;
                                return std::unique_ptr<Forward>();
                            }));
    std::mt19937 random(24);
    const Ids ids = random_ids(random, page_tokens + 1);
    CHECK_THROWS_AS(forward->run(ids), OutOfMemory);
    CHECK_FALSE(moved);
}
