// The engine, stepped by hand: what one pass has.
#include "model/engine/serving/batch.h"
#include "tests/support/cpu_scheduler.h"
#include <doctest/doctest.h>

using namespace tq;
using namespace tq::test;
using namespace tq::serving;

namespace {

std::unique_ptr<Sequence> sequence_of(Request request) {
    auto sequence = std::make_unique<Sequence>();
    sequence->ids = request.prompt;
    sequence->own_sampler.emplace(request.sampling, std::vector<bool>(small().config.vocab_size));
    sequence->stream = std::make_shared<Stream>();
    sequence->request = std::move(request);
    return sequence;
}

} // namespace

TEST_CASE("an answer has drafts beside another's prompt, and the same tokens") {
    ForwardOptions options{.kv = {KvType::tq4, KvType::tq4}, .context_size = scheduler_context, .slots = 2};
    options.batch_size = 32;
    options.speculative = true;
    const auto answer = [&](Speculation* speculation) {
        const auto forward = make(options);
        Batch batch({forward.get(), nullptr}, {}, {});
        Request request = request_of(some_ids(40, 3), 300); // greedily a small model repeats itself
        request.speculation = speculation;
        auto first = sequence_of(std::move(request));
        const auto stream = first->stream;
        batch.add(std::move(first));
        while (batch.status().decoded_tokens < 60) batch.step();
        auto prompt = sequence_of(request_of(some_ids(500, 4), 1));
        const auto other = prompt->stream;
        batch.add(std::move(prompt));
        const uint64_t drafted = batch.status().drafted_tokens;
        uint64_t beside = 0; // in passes with a slice of the prompt but the last
        while (!other->done()) {
            beside = batch.status().drafted_tokens - drafted;
            batch.step();
        }
        CHECK((beside > 20) == (speculation != nullptr));
        while (!batch.idle()) batch.step();
        return collect(*stream).ids;
    };
    const Ids plain = answer(nullptr);
    REQUIRE(plain.size() == 300);
    Speculation lookup(std::make_unique<NgramDrafter>(), {.draft_max = 5, .adaptive = false});
    CHECK(answer(&lookup) == plain);
}
