// Conversations that go on behind their answers: Reuse::all.
#include "model/engine/serving/scheduler.h"
#include "tests/support/cpu_scheduler.h"

namespace tq {
namespace {

using namespace serving;
using test::alone, test::hybrid, test::make, test::small, test::some_ids;

// Conversations in turn, each of which goes on from its answer. Returns the most tokens of a prompt that a turn but the first has
// run.
uint32_t most_run(SchedulerUnderTest& scheduler, uint32_t conversations, uint32_t turns) {
    std::vector<Ids> prompts;
    for (uint32_t i = 0; i < conversations; i++) prompts.push_back(some_ids(90, i));
    uint32_t most = 0;
    for (uint32_t turn = 0; turn < turns; turn++)
        for (uint32_t i = 0; i < conversations; i++) {
            serving::Request request = request_of(prompts[i], 60);
            request.ignore_end = true;
            const auto prompt = uint32_t(prompts[i].size());
            const StreamAnswer answer = collect(*scheduler->submit(std::move(request)));
            REQUIRE(answer.ids.size() == 60);
            if (turn > 0) most = std::max(most, prompt - answer.last.timings.cached_tokens);
            prompts[i].insert(prompts[i].end(), answer.ids.begin(), answer.ids.end());
            const Ids question = some_ids(20, 100 + turn);
            prompts[i].insert(prompts[i].end(), question.begin(), question.end());
        }
    return most;
}

TEST_CASE("with Reuse::all conversations go on behind their answers") {
    const KvOptions window = with_window(KvType::tq4, KvType::tq4, 16);
    const auto run = [](SchedulerSetup setup, uint32_t conversations, auto& of) {
        setup.reuse = Reuse::all;
        SchedulerUnderTest scheduler(of.model, of.make, setup);
        const uint32_t most = most_run(scheduler, conversations, 4);
        CHECK(scheduler.rest().failed == 0);
        return most;
    };
    // The last token of an answer has not been run.
    SUBCASE("in slots") { CHECK(run({}, 4, alone()) == 21); }
    SUBCASE("without a prefix cache") { CHECK(run({.prefix = false}, 4, alone()) == 21); }
    SUBCASE("with a window") { CHECK(run({.kv = window}, 4, alone()) == 21); }
    SUBCASE("of a hybrid") { CHECK(run({}, 4, hybrid()) == 21); }
    SUBCASE("out of the prefix cache, if others have the slots") { CHECK(run({.slots = 1}, 3, alone()) == 21); }
    SUBCASE("with few pages") { CHECK(run({.pages = 4}, 4, alone()) < 200); }
    SUBCASE("of drafts") { CHECK(run({.drafts = Drafts::lookup}, 4, alone()) == 21); }
}

TEST_CASE("what was reused with Reuse::all is not taken for cold") {
    for (const KvOptions& kv : {KvOptions{KvType::tq4, KvType::tq4}, with_window(KvType::tq4, KvType::tq4, 16)}) {
        test::TemporaryDirectory disk;
        const SchedulerSetup exact{.kv = kv, .disk = disk.path() / "prefix"},
            all{.kv = kv, .slots = 1, .reuse = Reuse::all, .disk = exact.disk};
        Ids prompt = some_ids(90);
        const auto turn = [&](SchedulerUnderTest& of) {
            serving::Request request = request_of(prompt, 60);
            request.ignore_end = true;
            return collect(*of->submit(std::move(request)));
        };
        {
            SchedulerUnderTest scheduler(small(), make, all);
            for (uint32_t i = 0; i < 6; i++) {
                if (i % 2) collect(*scheduler->submit(request_of(some_ids(30, 50 + i), 1))); // takes the slot
                const Ids answer = turn(scheduler).ids, question = some_ids(20, 100 + i);
                prompt.insert(prompt.end(), answer.begin(), answer.end());
                prompt.insert(prompt.end(), question.begin(), question.end());
            }
        }
        SchedulerUnderTest after(small(), make, exact), fresh(small(), make, {.kv = kv});
        const StreamAnswer found = turn(after);
        CHECK(found.last.timings.cached_tokens <= 90);
        CHECK(found.ids == turn(fresh).ids);
    }
}

} // namespace
} // namespace tq
