#include "model/engine/serving/scheduler.h"
#include "tests/support/cpu_scheduler.h"
#include <cmath>

namespace tq {
namespace {

using namespace serving;
using test::alone, test::hybrid, test::make, test::small, test::some_ids;

// A constraint that allows one token only, and is at its end after three.
class OnlyToken final : public TokenConstraint {
  public:
    void apply(std::span<float> logits) override {
        for (size_t i = 0; i < logits.size(); i++)
            if (i != 7 || accepted_ == 3) logits[i] = -INFINITY;
    }
    void accept(uint32_t id) override {
        CHECK(id == 7);
        accepted_++;
    }

  private:
    uint32_t accepted_ = 0;
};

TEST_CASE("requests together are answered as each alone") {
    SUBCASE("in blocks") { check_scheduler(alone(), {}, 16, false); }
    SUBCASE("deterministic") { check_scheduler(alone(), {.deterministic = true}, 16, false); }
    SUBCASE("with too few pages") { check_scheduler(alone(), {.pages = 5}, 10, false); }
    SUBCASE("with too few pages and no memory for what gives way") {
        check_scheduler(alone(), {.pages = 5, .memory_pages = 0}, 10, false);
    }
    SUBCASE("after the device was lost") { check_scheduler(alone(), {}, 16, true); }
    SUBCASE("after the device was lost, with too few pages") { check_scheduler(alone(), {.pages = 5}, 10, true); }
    SUBCASE("without a prefix cache") { check_scheduler(alone(), {.prefix = false}, 16, false); }
    SUBCASE("with a trellis") { check_scheduler(alone(), {.kv = {KvType::tq3t, KvType::tq3}, .pages = 5}, 6, true); }
}

void check_hybrid(bool prefix) {
    SUBCASE("in blocks") { check_scheduler(hybrid(), {.prefix = prefix}, 12, false); }
    SUBCASE("deterministic") { check_scheduler(hybrid(), {.deterministic = true, .prefix = prefix}, 12, false); }
    SUBCASE("with too few pages") { check_scheduler(hybrid(), {.pages = 5, .prefix = prefix, .memory_pages = 10000}, 10, false); }
    SUBCASE("with too few pages and no memory for what gives way") {
        check_scheduler(hybrid(), {.pages = 5, .prefix = prefix, .memory_pages = 0}, 10, false);
    }
    SUBCASE("after the device was lost, with too few pages") {
        check_scheduler(hybrid(), {.pages = 5, .prefix = prefix, .memory_pages = 10000}, 10, true);
    }
    SUBCASE("with a window") {
        check_scheduler(hybrid(), {.kv = with_window(KvType::tq4, KvType::tq4, 16), .prefix = prefix}, 12, false);
    }
}

TEST_CASE("requests to a hybrid together are answered as each alone") { check_hybrid(true); }

TEST_CASE("requests to a hybrid together are answered as each alone, without a prefix cache") { check_hybrid(false); }

TEST_CASE("with a window, too, requests together are answered as each alone") {
    const KvOptions kv = with_window(KvType::tq4, KvType::tq3t, 40);
    SUBCASE("in blocks") { check_scheduler(alone(), {.kv = kv}, 16, false); }
    SUBCASE("deterministic") { check_scheduler(alone(), {.kv = kv, .deterministic = true}, 16, false); }
    SUBCASE("with too few pages") { check_scheduler(alone(), {.kv = kv, .pages = 5}, 10, false); }
    SUBCASE("with too few pages and no memory for what gives way") {
        check_scheduler(alone(), {.kv = kv, .pages = 5, .memory_pages = 0}, 10, false);
    }
    SUBCASE("after the device was lost, with too few pages") { check_scheduler(alone(), {.kv = kv, .pages = 5}, 10, true); }
    SUBCASE("without a prefix cache") { check_scheduler(alone(), {.kv = kv, .prefix = false}, 16, false); }
}

TEST_CASE("a device that is lost again at once fails the requests with the reason, and is opened for later ones") {
    SchedulerUnderTest scheduler(small(), make, {});
    scheduler.lose_after(2, 2);
    const StreamAnswer lost = collect(*scheduler->submit(request_of(some_ids(300), 5)));
    CHECK(lost.last.finish == Finish::failed);
    CHECK(lost.last.server_fault);
    CHECK(lost.last.error == "the GPU stopped answering");
    CHECK(collect(*scheduler->submit(request_of(some_ids(300), 5))).last.finish != Finish::failed);
    CHECK(scheduler->status().device_losses == 2);
    CHECK(scheduler.opened() == 3);
}

TEST_CASE("a prompt sent twice is found, also a short one and by a request beside it") {
    SchedulerUnderTest scheduler(small(), make, {});
    const Ids prompt = some_ids(90);
    CHECK(collect(*scheduler->submit(request_of(prompt, 4))).last.timings.cached_tokens == 0);
    const uint32_t cached = collect(*scheduler->submit(request_of(prompt, 4))).last.timings.cached_tokens;
    CHECK(cached >= 32);
    const auto one = scheduler->submit(request_of(some_ids(120, 9), 60)),
               two = scheduler->submit(request_of(some_ids(120, 9), 60));
    CHECK(collect(*one).ids == collect(*two).ids);
    CHECK(two->wait({}).timings.cached_tokens >= 64);
}

TEST_CASE("with a window, the beginning of a prompt is found up to a state") {
    for (const bool prefix : {false, true}) {
        CAPTURE(prefix);
        SchedulerUnderTest scheduler(small(), make, {.kv = with_window(KvType::tq4, KvType::tq4, 16), .prefix = prefix});
        serving::Request marked = request_of(some_ids(300), 40);
        marked.marks = {130, 275};
        CHECK(collect(*scheduler->submit(copy_of(marked))).last.timings.cached_tokens == 0);
        CHECK(collect(*scheduler->submit(copy_of(marked))).last.timings.cached_tokens == 275);
        marked.prompt.resize(200);
        marked.prompt.push_back(9);
        CHECK(collect(*scheduler->submit(copy_of(marked))).last.timings.cached_tokens == 130);
        const auto one = scheduler->submit(request_of(some_ids(320, 9), 60)),
                   two = scheduler->submit(request_of(some_ids(320, 9), 60));
        CHECK(collect(*one).ids == collect(*two).ids);
        CHECK(two->wait({}).timings.cached_tokens >= 256); // of the slot beside it
    }
}

TEST_CASE("with a window, prompts find what they have in common with others within a page") {
    SchedulerUnderTest scheduler(small(), make, {.kv = with_window(KvType::tq4, KvType::tq4, 16)});
    const auto cached = [&](uint32_t common, uint32_t own, uint32_t seed) {
        Ids prompt = some_ids(common, 50);
        const Ids rest = some_ids(own, seed);
        prompt.insert(prompt.end(), rest.begin(), rest.end());
        return collect(*scheduler->submit(request_of(prompt, 2))).last.timings.cached_tokens;
    };
    CHECK(cached(200, 40, 1) == 0);
    CHECK(cached(200, 40, 2) == 0); // it leaves a state where they part
    for (const uint32_t seed : {3u, 4u, 5u}) CHECK(cached(200, 40, seed) == 200);
    cached(150, 0, 0); // the beginning of a known page leaves a state near its own end
    CHECK(cached(150, 0, 0) >= 120);
}

TEST_CASE("with a window, a conversation goes on near the end of its last prompt, also a short one") {
    SchedulerUnderTest scheduler(small(), make, {.kv = with_window(KvType::tq4, KvType::tq4, 16)});
    SchedulerUnderTest alone(small(), make, {.kv = with_window(KvType::tq4, KvType::tq4, 16)});
    Ids prompt = some_ids(90);
    uint32_t before = 0;
    for (uint32_t turn = 0; turn < 12; turn++) {
        const StreamAnswer answer = collect(*scheduler->submit(request_of(prompt, 12)));
        CAPTURE(turn);
        if (turn > 0) CHECK(answer.last.timings.cached_tokens + 32 >= before);
        before = uint32_t(prompt.size());
        prompt.insert(prompt.end(), answer.ids.begin(), answer.ids.end());
        const Ids question = some_ids(30, 100 + turn);
        prompt.insert(prompt.end(), question.begin(), question.end());
    }
    CHECK(collect(*scheduler->submit(request_of(prompt, 12))).ids == collect(*alone->submit(request_of(prompt, 12))).ids);
}

TEST_CASE("a request that gave way goes on with its window, to the bit") {
    const SchedulerSetup few{.kv = with_window(KvType::tq4, KvType::tq4, 16), .pages = 6, .prefix = false};
    SchedulerSetup enough = few;
    enough.pages = 0;
    SchedulerUnderTest scheduler(small(), make, few);
    const auto ask = [](SchedulerUnderTest& of, uint32_t i) {
        serving::Request request = request_of(some_ids(150 + i, 20 + i), 250);
        request.ignore_end = true;
        return of->submit(std::move(request));
    };
    std::vector<std::shared_ptr<serving::Stream>> streams;
    for (uint32_t i = 0; i < 4; i++) streams.push_back(ask(scheduler, i));
    for (uint32_t i = 0; i < 4; i++) {
        SchedulerUnderTest alone(small(), make, enough);
        CHECK(collect(*streams[i]).ids == collect(*ask(alone, i)).ids);
    }
    CHECK(scheduler.rest().preempted > 0);
}

TEST_CASE("tokens of an answer are found again only where they have the bits of a prompt") {
    for (const bool deterministic : {false, true}) {
        const SchedulerSetup setup{.deterministic = deterministic};
        SchedulerUnderTest scheduler(small(), make, setup), fresh(small(), make, setup);
        const auto ask = [](SchedulerUnderTest& of, const Ids& prompt) {
            serving::Request request = request_of(prompt, 60);
            request.ignore_end = true;
            return collect(*of->submit(std::move(request)));
        };
        Ids prompt = some_ids(90);
        const Ids answer = ask(scheduler, prompt).ids, next = some_ids(50, 7);
        REQUIRE(answer.size() == 60);
        prompt.insert(prompt.end(), answer.begin(), answer.end());
        prompt.insert(prompt.end(), next.begin(), next.end());
        const StreamAnswer second = ask(scheduler, prompt);
        CHECK(second.ids == ask(fresh, prompt).ids);
        CHECK(second.last.timings.cached_tokens >= (deterministic ? 149 : 60));
        if (!deterministic) CHECK(second.last.timings.cached_tokens <= 90);
    }
}

TEST_CASE("tenants do not find what others have sent") {
    SchedulerUnderTest scheduler(small(), make, {});
    serving::Request request = request_of(some_ids(600), 2);
    request.tenant = "a";
    const StreamAnswer first = collect(*scheduler->submit(copy_of(request)));
    CHECK(collect(*scheduler->submit(copy_of(request))).last.timings.cached_tokens > 500);
    request.tenant = "b";
    const StreamAnswer other = collect(*scheduler->submit(copy_of(request)));
    CHECK(other.last.timings.cached_tokens == 0);
    CHECK(other.ids == first.ids);
    request.tenant = "";
    CHECK(collect(*scheduler->submit(std::move(request))).last.timings.cached_tokens == 0);
}

TEST_CASE("an answer that is complete when the device is lost has counted its prompt") {
    SchedulerUnderTest scheduler(small(), make, {});
    scheduler.lose_after(0);
    const StreamAnswer answer = collect(*scheduler->submit(request_of(some_ids(20), 1)));
    CHECK(answer.ids.size() == 1);
    CHECK(answer.last.finish == Finish::length);
    CHECK(answer.last.timings.prompt_tokens == 20);
    CHECK(scheduler.rest().device_losses == 1);
}

TEST_CASE("a request is drafted, and its answer is the same") {
    Request request;
    std::mt19937 random(3);
    request.prompt = random_ids(random, 40);
    request.max_tokens = 120; // greedily a small model repeats itself
    request.sampling.temperature = 0;
    request.ignore_end = true;
    SchedulerUnderTest plain(small(), make, {}), drafting(small(), make, {.drafts = Drafts::lookup});
    const StreamAnswer expected = collect(*plain->submit(copy_of(request)));
    for (int turn = 0; turn < 2; turn++) {
        const StreamAnswer got = collect(*drafting->submit(copy_of(request)));
        CHECK(got.ids == expected.ids);
        CHECK(got.last.timings.accepted_tokens > 20);
        CHECK(got.last.timings.drafted_tokens >= got.last.timings.accepted_tokens);
    }
    const Status status = drafting.rest();
    CHECK(status.accepted_tokens > 40);
    CHECK(status.decoded_tokens == 240);
    CHECK(plain.rest().drafted_tokens == 0);
}

TEST_CASE("requests together are drafted, and answered as each alone") {
    check_scheduler(alone(), {.drafts = Drafts::lookup}, 16, false);
    check_scheduler(alone(), {.pages = 5, .drafts = Drafts::lookup}, 10, true);
}

TEST_CASE("requests to a hybrid together are drafted, and answered as each alone") {
    const test::Hybrid perfect("qwen3_5", GgmlType::F16, {.tied = false, .perfect_mtp = true}),
        other("qwen3_5", GgmlType::F16, {.tied = false, .perfect_mtp = false});
    const auto maker = [](const test::Hybrid& model) {
        return [&](const ForwardOptions& o) { return make_cpu_forward(model.config, model.weights, o); };
    };
    ModelAlone perfect_alone(perfect, maker(perfect)), other_alone(other, maker(other));
    for (const Drafts drafts : {Drafts::head, Drafts::lookup_and_head}) {
        CAPTURE(int(drafts));
        const auto never = [](uint32_t) { return false; };
        check_scheduler(other_alone, {.pages = 5, .memory_pages = 10000, .drafts = drafts, .is_end = never}, 6, true);
    }
    check_scheduler(perfect_alone, {.drafts = Drafts::head}, 12, false);
    check_scheduler(perfect_alone, {.drafts = Drafts::lookup_and_head}, 12, true);
}

TEST_CASE("what waits beyond the queue is refused, and a cancelled request makes room") {
    SchedulerUnderTest scheduler(small(), make, {.slots = 1, .queue = 2, .is_end = {}});
    std::vector<std::shared_ptr<Stream>> streams;
    streams.push_back(scheduler->submit(request_of(some_ids(20), 600)));
    while (scheduler->status().running == 0) std::this_thread::yield();
    streams.push_back(scheduler->submit(request_of(some_ids(20, 2), 600)));
    streams.push_back(scheduler->submit(request_of(some_ids(20, 3), 600)));
    CHECK_THROWS_WITH_AS(scheduler->submit(request_of(some_ids(20, 4), 1)),
                         "2 requests are waiting, as many as the queue holds: try again later", QueueFull);
    CHECK(scheduler->status().rejected == 1);
    for (const auto& stream : streams) stream->cancel();
    for (const auto& stream : streams) CHECK(collect(*stream).last.finish == Finish::cancelled);
    while (scheduler->status().waiting > 0) std::this_thread::yield();
    CHECK(collect(*scheduler->submit(request_of(some_ids(20, 5), 1))).ids.size() == 1);
    const serving::Status status = scheduler.rest();
    CHECK(status.cancelled == 3);
    CHECK_THROWS_AS(scheduler->submit(request_of(some_ids(20), 1)), Draining);
}

TEST_CASE("an answer ends at its last token, its length, the end of the context") {
    SchedulerUnderTest scheduler(small(), make, {.is_end = {}});
    CHECK(collect(*scheduler->submit(request_of(some_ids(10), 7))).last.finish == Finish::length);
    const StreamAnswer full = collect(*scheduler->submit(request_of(some_ids(scheduler_context), 7)));
    CHECK(full.last.finish == Finish::context_full);
    CHECK(full.ids.size() == 1);
    CHECK(collect(*scheduler->submit(request_of(some_ids(scheduler_context - 3), 70))).ids.size() == 4);
    const StreamAnswer none = collect(*scheduler->submit(request_of(some_ids(300, 8), 0)));
    CHECK(none.ids.empty());
    CHECK(none.last.finish == Finish::length);
    CHECK(collect(*scheduler->submit(request_of(some_ids(300, 8), 1))).last.timings.cached_tokens > 250);
    CHECK_THROWS_WITH(scheduler->submit(request_of(some_ids(scheduler_context + 1), 1)),
                      "the prompt has 701 tokens but the context holds 700");
    CHECK_THROWS_WITH(scheduler->submit(request_of({}, 1)), "the prompt is empty, so there is nothing to continue");
    CHECK_THROWS_WITH(scheduler->submit(request_of({320}, 1)), "token 320 of the prompt does not exist: the vocabulary has 320");
    serving::Request wrong = request_of({3}, 1);
    wrong.logit_bias = {{320, 1}};
    CHECK_THROWS_AS(scheduler->submit(std::move(wrong)), Error);
}

TEST_CASE("biases, constraints and logprobs") {
    SchedulerUnderTest scheduler(small(), make, {.is_end = {}});
    serving::Request biased = request_of(some_ids(10), 4);
    biased.logit_bias = {{11, 1000}};
    CHECK(collect(*scheduler->submit(std::move(biased))).ids == Ids(4, 11));

    serving::Request constrained = request_of(some_ids(10), 3);
    constrained.constraint = std::make_unique<OnlyToken>();
    CHECK(collect(*scheduler->submit(std::move(constrained))).ids == Ids(3, 7));
    constrained = request_of(some_ids(10), 9);
    constrained.constraint = std::make_unique<OnlyToken>();
    const StreamAnswer dead = collect(*scheduler->submit(std::move(constrained)));
    CHECK(dead.ids == Ids(3, 7));
    CHECK(dead.last.finish == Finish::failed);
    CHECK(!dead.last.server_fault);

    serving::Request wanted = request_of(some_ids(10), 1);
    wanted.logprobs = true, wanted.top_logprobs = 3;
    const auto stream = scheduler->submit(std::move(wanted));
    Update update;
    std::vector<Token> tokens;
    while (!update.done) {
        update = stream->wait(std::chrono::seconds(1));
        tokens.insert(tokens.end(), update.tokens.begin(), update.tokens.end());
    }
    REQUIRE(tokens.size() == 1);
    REQUIRE(tokens[0].top.size() == 3);
    const auto forward = make({.context_size = 20, .threads = 2, .batch_size = 32});
    const auto logits = forward->run(some_ids(10));
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double(logit));
    CHECK(tokens[0].top[0].first == tokens[0].id);
    CHECK(tokens[0].logprob == doctest::Approx(logits[tokens[0].id] - std::log(sum)));
    CHECK(tokens[0].top[1].second < tokens[0].top[0].second);
}

TEST_CASE("the scores of tokens after a prompt") {
    SchedulerUnderTest scheduler(small(), make, {});
    serving::Request request = request_of(some_ids(40), 1);
    request.scored = {3, 9};
    const Update update = collect(*scheduler->submit(std::move(request))).last;
    const auto forward = make({.context_size = 50, .threads = 2, .batch_size = 32});
    const auto logits = forward->run(some_ids(40));
    CHECK(update.scores == std::vector<float>{logits[3], logits[9]});
}

TEST_CASE("the states of prompts are those of each alone, also where the prefix cache has their beginning") {
    SchedulerUnderTest scheduler(small(), make, {});
    const auto forward = make({.kv = {KvType::tq4, KvType::tq4}, .context_size = 700, .threads = 2, .batch_size = 32});
    uint32_t cached = 0;
    for (const uint32_t tokens : {1u, 40u, 300u, 300u, 301u, 556u, 556u}) {
        CAPTURE(tokens);
        serving::Request request = request_of(some_ids(tokens), 1);
        request.hidden = true;
        const Update update = collect(*scheduler->submit(std::move(request))).last;
        forward->truncate(0);
        CHECK(update.hidden == run_one(*forward, 0, some_ids(tokens), Span::Logits::hidden));
        cached += update.timings.cached_tokens;
    }
    CHECK(cached > 256);
}

TEST_CASE("work in the background gives way") {
    SchedulerUnderTest scheduler(small(), make, {.slots = 1, .is_end = {}});
    bool gave_way = false;
    for (int i = 0; !gave_way && i < 20; i++) { // again if this thread was stopped until the work behind had ended
        serving::Request background = request_of(some_ids(40), 650);
        background.background = true;
        const auto behind = scheduler->submit(std::move(background));
        while (behind->wait(std::chrono::milliseconds(1)).tokens.empty()) {
        }
        CHECK(collect(*scheduler->submit(request_of(some_ids(30, 2), 3))).ids.size() == 3);
        gave_way = collect(*behind).last.finish == Finish::cancelled;
    }
    CHECK(gave_way);
}

TEST_CASE("many threads submit and cancel, and nothing is left") {
    SchedulerUnderTest scheduler(small(), make, {.pages = 6});
    std::vector<std::thread> threads;
    std::atomic<uint32_t> ended = 0;
    for (uint32_t t = 0; t < 8; t++)
        threads.emplace_back([&, t] {
            std::mt19937 random(t);
            for (uint32_t i = 0; i < 12; i++) {
                const auto stream = scheduler->submit(request_of(random_ids(random, 1 + random() % 400), 1 + random() % 30, i));
                if (random() % 3 == 0) {
                    stream->wait(std::chrono::milliseconds(random() % 20));
                    stream->cancel();
                }
                Update update;
                while (!update.done) update = stream->wait(std::chrono::seconds(1));
                ended += update.finish != Finish::failed;
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(ended == 96);
    const serving::Status status = scheduler.rest();
    CHECK(status.free_pages + status.spare_pages == status.pages);
}

} // namespace
} // namespace tq
