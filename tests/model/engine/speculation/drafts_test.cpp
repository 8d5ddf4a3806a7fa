// Speculative decoding on the CPU path: the answers of plain decoding, whatever is drafted.
#include "model/cpu/forward.h"
#include "model/engine/speculation/draft_model.h"
#include "model/engine/speculation/ngram.h"
#include "model/reference/forward.h"
#include "tests/support/speculation.h"

using namespace tq;

namespace {

const SmallModel& model() {
    static const SmallModel model;
    return model;
}

std::unique_ptr<Forward> make(const ForwardOptions& options) {
    return make_cpu_forward(model().config, model().weights, options);
}

SamplerOptions greedy() {
    SamplerOptions options;
    options.temperature = 0;
    return options;
}

// Compares answers without drafts and with those of `drafter`. Returns how many tokens were drafted.
uint64_t check_drafter(std::unique_ptr<Drafter> drafter, uint32_t context, const SamplerOptions& sampling, bool adaptive) {
    const auto plain = make({.kv = {KvType::tq4, KvType::tq4}, .context_size = context, .threads = 1}),
               drafting = make({.kv = {KvType::tq4, KvType::tq4}, .context_size = context, .threads = 1, .speculative = true});
    Speculation speculation(std::move(drafter), {.adaptive = adaptive});
    Sampler a(sampling), b(sampling);
    Session without(*plain), with(*drafting);
    std::mt19937 random(2);
    Ids prompt = random_ids(random, 20);
    uint64_t drafted = 0;
    for (int turn = 0; turn < 3; turn++) { // the next prompt is another one, after a beginning of the last answer
        GenerateOptions options{.max_tokens = 60};
        const Generated expected = without.generate(prompt, a, options);
        options.speculation = &speculation;
        const Generated got = with.generate(prompt, b, options);
        drafted += got.timings.drafted_tokens;
        CHECK(got.ids == expected.ids);
        CHECK(got.stop == expected.stop);
        CHECK(with.cached_ids() == without.cached_ids());
        CHECK(a.device_sampling(2).random == b.device_sampling(2).random);
        prompt.insert(prompt.end(), got.ids.begin(), got.ids.begin() + ptrdiff_t(got.ids.size() / 2));
        prompt.resize(std::min<size_t>(prompt.size(), context - 10));
        prompt.push_back(uint32_t(turn));
    }
    return drafted;
}

std::unique_ptr<Drafter> draft_model(const ForwardOptions& options, double min_confidence = 0) {
    return std::make_unique<DraftModel>(make(options), std::vector<bool>(model().config.vocab_size), min_confidence);
}

} // namespace

TEST_CASE("drafts that are right, wrong and both change nothing") { check_answers_with_drafts(make, all_types(), false); }

TEST_CASE("nor do those of a lookup or a model, where the context ends, with any sampling") {
    const ForwardOptions same{.kv = {KvType::tq4, KvType::tq4}, .context_size = 400, .threads = 1},
        other{.kv = {KvType::tq2, KvType::tq2}, .context_size = 400, .threads = 1},
        shorter{.kv = {KvType::tq4, KvType::tq4}, .context_size = 60, .threads = 1};
    for (const SamplerOptions& sampling : ways_to_sample())
        for (const uint32_t context : {70u, 400u})
            for (const bool adaptive : {false, true}) {
                CAPTURE(context);
                check_drafter(std::make_unique<NgramDrafter>(), context, sampling, adaptive);
                for (const ForwardOptions& options : {same, other, shorter})
                    CHECK((check_drafter(draft_model(options), context, sampling, adaptive) > 0 || adaptive));
            }
}

TEST_CASE("a draft model that is the model itself is right where the sampling is greedy") {
    const ForwardOptions options{.kv = {KvType::f16, KvType::f16}, .context_size = 200, .threads = 1};
    const auto forward = make(options);
    Speculation speculation(draft_model(options), {.adaptive = false});
    std::mt19937 random(3);
    const Answered got = answer(*forward, greedy(), random_ids(random, 30), 50, &speculation);
    CHECK(got.timings.accepted_tokens >= 40);
    CHECK(got.timings.accepted_tokens == got.timings.drafted_tokens);
}

TEST_CASE("a draft model proposes nothing that it is not sure of, nothing excluded, and nothing without room") {
    const ForwardOptions options{.kv = {KvType::f16, KvType::f16}, .context_size = 40, .threads = 1};
    std::mt19937 random(3);
    const Ids ids = random_ids(random, 30);
    const auto drafted_for = make(options); // by other models
    CHECK(draft_one(*draft_model(options, 0), *drafted_for, ids, 7).size() == 7);
    CHECK(draft_one(*draft_model(options, 1), *drafted_for, ids, 7).empty());
    CHECK(draft_one(*draft_model(options), *drafted_for, random_ids(random, 34), 7).empty());
    CHECK(draft_one(*draft_model(options), *drafted_for, random_ids(random, 50), 7).empty());
    CHECK(draft_one(*draft_model(options), *drafted_for, ids, 7, 1).empty()); // it has one slot
    const auto drafter = draft_model(options);
    CHECK(drafter->read(0, random_ids(random, 50), {}));
    CHECK(draft_one(*drafter, *drafted_for, ids, 7).size() == 7);
    std::vector<bool> excluded(model().config.vocab_size, true);
    excluded[17] = false;
    DraftModel only_17(make(options), excluded, 0);
    CHECK(draft_one(only_17, *drafted_for, ids, 3) == Ids{17, 17, 17});
}

TEST_CASE("the largest probability is that of softmax") {
    CHECK(max_probability(std::vector<float>{1, 1, 1, 1}) == doctest::Approx(0.25));
    CHECK(max_probability(std::vector<float>{-100, 30, -1}) == doctest::Approx(1));
    CHECK(max_probability(std::vector<float>{0, std::log(3.0f)}) == doctest::Approx(0.75));
}

TEST_CASE("limits of a draft are refused with the numbers") {
    const auto make = [](uint32_t max, uint32_t min) {
        Speculation(std::make_unique<NgramDrafter>(), {.draft_max = max, .draft_min = min});
    };
    CHECK_THROWS_WITH_AS(make(16, 1), doctest::Contains("up to 16 tokens"), Error);
    CHECK_THROWS_WITH_AS(make(0, 0), doctest::Contains("up to 0 tokens"), Error);
    CHECK_THROWS_WITH_AS(make(3, 4), doctest::Contains("at least 4 tokens but at most 3"), Error);
    make(15, 15);
}

TEST_CASE("no draft has more tokens than one pass verifies, or fewer than the least") {
    const auto forward = make({.kv = {KvType::f16, KvType::f16}, .context_size = 200, .threads = 1, .speculative = true});
    struct Counting final : OneDrafter {
        bool is_free() const override { return false; }
        Ids propose(std::span<const uint32_t>, uint32_t max) override {
            asked.push_back(max);
            return Ids(max, 1);
        }
        std::vector<uint32_t> asked;
    };
    auto drafter = std::make_unique<Counting>();
    const std::vector<uint32_t>& asked = drafter->asked;
    Speculation speculation(std::move(drafter), {.draft_min = 3, .adaptive = false});
    std::mt19937 random(4);
    answer(*forward, greedy(), random_ids(random, 30), 40, &speculation);
    CHECK(std::ranges::max(asked) == forward->max_separate_rows() - 1);
    CHECK(std::ranges::min(asked) == 3); // near the end of the answer
}

TEST_CASE("it is said once that drafts pause because they lose time, and once that they gain again") {
    const auto forward = make({.context_size = 10, .threads = 1});
    struct Ones final : OneDrafter {
        bool is_free() const override { return false; }
        Ids propose(std::span<const uint32_t>, uint32_t max) override { return Ids(max, 1); }
    };
    std::vector<std::string> said;
    Speculation speculation(std::make_unique<Ones>(), {.on_change = [&](const std::string& what) { said.push_back(what); }});
    Ids text{5};
    const auto write = [&](uint32_t id, size_t tokens) { // a row takes 1 ms, and each further row 0.2 ms
        for (const size_t end = text.size() + tokens; text.size() < end;) {
            const DraftRequest request{0, text, 7};
            const size_t drafted = speculation.draft(*forward, std::span(&request, 1), 1, 7)[0].size(),
                         right = id == 1 ? drafted : 0;
            text.insert(text.end(), 1 + right, id);
            if (drafted == 0)
                speculation.ran_plain(1, 1, 1e6);
            else
                speculation.verified(uint32_t(1 + drafted), uint32_t(1 + right), 1e6 + 2e5 * double(drafted));
        }
    };
    write(1, 300);
    CHECK(said.empty());
    write(2, 2000);
    REQUIRE(said.size() == 1);
    CHECK(said[0].find("drafts pause, as a pass without them is faster: ") == 0);
    write(1, 4000);
    CHECK(said.size() == 2);
    CHECK(said.back() == "drafts gain time again");
}

TEST_CASE("a value that is not finite in a row that is rejected ends nothing") {
    // Fails as if every run of several rows met a value that is not finite.
    struct Fragile final : Forward {
        explicit Fragile(std::unique_ptr<Forward> inner) : inner(std::move(inner)) {}
        using Forward::run;
        bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override {
            if (spans[0].logits == Span::Logits::all) {
                failures++;
                throw NonFinite("not finite");
            }
            return inner->run(spans, each, progress);
        }
        const ForwardFacts& facts() const override { return facts_; }
        Cache& cache() override { return inner->cache(); }
        std::unique_ptr<Forward> inner;
        const ForwardFacts facts_ = without_sampling(inner->facts());
        uint32_t failures = 0;
    };
    const ForwardOptions options{.kv = {KvType::f16, KvType::f16}, .context_size = 200, .threads = 1};
    Fragile fragile(make(options));
    const auto plain = make(options);
    std::mt19937 random(5);
    const Ids prompt = random_ids(random, 30);
    const Answered expected = answer(*plain, greedy(), prompt, 20, nullptr);
    Ids all = prompt;
    all.insert(all.end(), expected.ids.begin(), expected.ids.end());
    Speculation speculation(std::make_unique<Oracle>(all, 0, 1), {.adaptive = false});
    const Answered got = answer(fragile, greedy(), prompt, 20, &speculation);
    check_equal(got, expected);
    CHECK(fragile.failures > 0);
    CHECK(got.timings.drafted_tokens == 0);
}

TEST_CASE("drafts of a text that a constraint gives are verified as others are, and the rows have the logits of plain decoding") {
    // Allows the next token of a text alone, and notes the logits.
    struct Given final : TokenConstraint {
        explicit Given(const Ids& text) : text(text) {}
        void apply(std::span<float> logits) override {
            rows.emplace_back(logits.begin(), logits.end());
            for (uint32_t id = 0; id < logits.size(); id++)
                if (id != text[rows.size() - 1]) logits[id] = -std::numeric_limits<float>::infinity();
        }
        void accept(uint32_t id) override { CHECK(id == text[rows.size() - 1]); }
        const Ids& text;
        std::vector<std::vector<float>> rows;
    };
    const ForwardOptions plain_options{.kv = {KvType::tq4, KvType::tq4}, .context_size = 200, .threads = 1};
    ForwardOptions options = plain_options;
    options.speculative = true;
    const auto forward = make(options), plain = make(plain_options);
    std::mt19937 random(6);
    const Ids prompt = random_ids(random, 30), text = random_ids(random, 50);
    Ids said = prompt;
    said.insert(said.end(), text.begin(), text.end());
    Speculation speculation(std::make_unique<Oracle>(said, 0.4, 1), {.adaptive = false});
    Sampler sampler(greedy()), other(greedy());
    Given given(text), plainly(text);
    sampler.constrain(&given);
    other.constrain(&plainly);
    Session drafting(*forward), undrafted(*plain);
    const GenerateOptions generate{.max_tokens = uint32_t(text.size())};
    GenerateOptions with_drafts = generate;
    with_drafts.speculation = &speculation;
    const Generated got = drafting.generate(prompt, sampler, with_drafts);
    CHECK(got.ids == text);
    CHECK(undrafted.generate(prompt, other, generate).ids == text);
    CHECK(given.rows == plainly.rows);
    CHECK(drafting.cached_ids() == Ids(said.begin(), said.end() - 1)); // the last one is not run
    CHECK(got.timings.accepted_tokens > 10);
}
