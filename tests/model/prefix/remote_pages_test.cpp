// Pages that another machine computes: a slow, dead or lying one is a miss, and costs no more time than computing here.
#include "base/error.h"
#include "model/cache.h"
#include "model/prefix/breaker.h"
#include "model/prefix/owner.h"
#include "model/prefix/page_signature.h"
#include "model/prefix/remote_pages.h"
#include "model/prefix/sent_page.h"
#include "tests/support/text.h"
#include <atomic>
#include <doctest/doctest.h>
#include <numeric>
#include <thread>

using namespace tq;
using namespace std::chrono_literals;
using test::contains;

namespace {

using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

const OwnerTexts on_the_way{{"fingerprint", "1"}}, here{{"fingerprint", "1"}, {"prefill", "from another machine"}};
const PageLayout layout(2, {{3, 1}, {2, 0}}); // 44 bytes for each token

std::vector<PageHead> chain_of(PageName owner, std::span<const uint32_t> ids) {
    std::vector<PageHead> chain;
    PageName parent = owner;
    for (; !ids.empty(); ids = ids.subspan(page_tokens)) {
        chain.push_back(make_page_head(owner, parent, ids.first(page_tokens), page_tokens));
        parent = chain.back().name;
    }
    return chain;
}
std::vector<PageHead> prompt(uint32_t pages) {
    std::vector<uint32_t> ids(size_t(pages) * page_tokens);
    std::iota(ids.begin(), ids.end(), 7u);
    return chain_of(owner_name(here), ids);
}
Bytes content_of(const PageHead& head) {
    Bytes content(layout.bytes(head.tokens()));
    for (size_t i = 0; i < content.size(); i++) content[i] = std::byte(head.ids[i % head.tokens()] + i / 7);
    return content;
}

// Another machine, which may be all that is bad.
struct Machine {
    std::atomic<int> calls = 0, wait_ms = 0; // before each page
    std::atomic<uint32_t> pages = UINT32_MAX, known = 0;
    std::function<void(uint32_t number, Bytes& page)> change = [](uint32_t, Bytes&) {};
    std::string dies;
    PageSigner sign;
    bool sends_more = false;
    std::atomic<bool> was_told_to_stop = false;

    void compute(const PageOrder& order, const PageReceiver& receiver) {
        calls++;
        known = order.known;
        const auto heads = chain_of(owner_name(on_the_way), order.ids);
        for (uint32_t i = order.known; i < std::min<size_t>(heads.size(), pages); i++) {
            for (int ms = 0; ms < wait_ms; ms++) {
                if (!receiver.keep_going()) return void(was_told_to_stop = true);
                std::this_thread::sleep_for(1ms);
            }
            Bytes page = sent_page(heads[i], content_of(heads[i]), sign);
            CHECK(page.size() == order.page_bytes);
            change(i, page);
            if (!receiver.page(std::move(page))) return void(was_told_to_stop = true);
        }
        if (sends_more) receiver.page(sent_page(heads[0], content_of(heads[0]), {}));
        if (!dies.empty()) fail("{}", dies);
    }
    RemotePages::Options options() {
        RemotePages::Options options;
        options.compute = [this](const PageOrder& order, const PageReceiver& receiver) { compute(order, receiver); };
        options.owner = owner_name(on_the_way);
        options.place = "a machine";
        options.first_page_time = 60s; // a busy machine may stop a thread for long
        return options;
    }
};

std::vector<Bytes> fetch_all(RemotePages& pages, const std::vector<PageHead>& chain, uint32_t known = 0) {
    std::vector<Bytes> all;
    const auto fetch = pages.fetch("somebody", chain, known);
    while (fetch && pages.is_coming(*fetch))
        if (auto content = pages.take(*fetch, 1s)) all.push_back(std::move(*content));
    return all;
}
std::vector<Bytes> contents(const std::vector<PageHead>& chain, size_t from = 0, size_t to = SIZE_MAX) {
    std::vector<Bytes> all;
    for (size_t i = from; i < std::min(chain.size(), to); i++) all.push_back(content_of(chain[i]));
    return all;
}
template <class Condition> bool becomes(const Condition& condition) {
    for (const auto end = Clock::now() + 60s; Clock::now() < end; std::this_thread::sleep_for(5ms))
        if (condition()) return true;
    return false;
}
std::string all_of(const std::vector<std::string>& warnings) {
    std::string text;
    for (const std::string& one : warnings) text += one + "\n";
    return text;
}

} // namespace

TEST_CASE("pages come from another machine, which knows nothing of tenants") {
    Machine machine;
    RemotePages pages(machine.options(), layout);
    const auto chain = prompt(5);
    CHECK(fetch_all(pages, chain) == contents(chain));
    CHECK(fetch_all(pages, chain, 3) == contents(chain, 3));
    CHECK(machine.known == 3);
    const auto s = pages.statistics();
    CHECK(s.asked == 2);
    CHECK(s.found == 7);
    CHECK(s.missing == 0);
    CHECK(s.read_bytes == 7 * sent_page_bytes(layout, false));
    CHECK(pages.take_warnings().empty());
    CHECK(pages.fetch("", chain, 5) == nullptr); // nothing to be computed
}

TEST_CASE("what is not the page that was asked for is not used, nor anything after it") {
    const auto chain = prompt(3);
    const auto refused = [&](Machine& machine, const std::string& reason, size_t good) {
        RemotePages pages(machine.options(), layout);
        const auto began = Clock::now();
        CHECK(fetch_all(pages, chain) == contents(chain, 0, good));
        CHECK_MESSAGE(pages.statistics().rejected == 1, reason);
        const std::string warnings = all_of(pages.take_warnings());
        CHECK_MESSAGE(contains(warnings, reason), warnings);
        const bool is_left_alone = pages.statistics().paused && pages.fetch("", chain, 0) == nullptr;
        CHECK((is_left_alone || Clock::now() - began >= Breaker::first_pause));
    };
    Machine damaged, truncated, other, empty, more;
    damaged.change = [](uint32_t i, Bytes& page) { page[page.size() - 5] ^= std::byte(i == 1 ? 1 : 0); };
    refused(damaged, "checksum", 1);
    truncated.change = [](uint32_t i, Bytes& page) {
        if (i == 2) page.pop_back();
    };
    refused(truncated, "bytes", 2);
    other.change = [&](uint32_t i, Bytes& page) {
        const auto theirs = chain_of(owner_name({{"fingerprint", "2"}}), chain[0].ids);
        if (i == 0) page = sent_page(theirs[0], content_of(theirs[0]), {});
    };
    refused(other, "it is another page", 0);
    empty.change = [](uint32_t i, Bytes& page) {
        if (i == 1) page.clear();
    };
    refused(empty, "it is not a page of tq-run", 1);
    more.sends_more = true;
    RemotePages pages(more.options(), layout);
    CHECK(fetch_all(pages, chain) == contents(chain)); // it has what it wanted
    CHECK(becomes([&] { return pages.statistics().rejected == 1; }));
    CHECK(contains(all_of(pages.take_warnings()), "it sent more than the 3 pages that it was asked for"));
}

TEST_CASE("pages that others could have written are not used where there is a key") {
    Machine machine;
    machine.sign = [](std::span<const std::byte> bytes) { return PageSignature{bytes[100], std::byte(9)}; };
    machine.change = [](uint32_t i, Bytes& page) {
        if (i == 1) page = Bytes(page.size());
    };
    RemotePages::Options options = machine.options();
    options.sign = machine.sign;
    RemotePages pages(options, layout);
    const auto chain = prompt(2);
    CHECK(fetch_all(pages, chain) == contents(chain, 0, 1));
    CHECK(contains(all_of(pages.take_warnings()), "it is not signed"));
}

TEST_CASE("a machine that fails, or sends too few pages, is left alone for a while and then asked again") {
    const auto chain = prompt(4);
    for (const bool says_why : {true, false}) {
        Machine machine;
        machine.pages = 2;
        if (says_why) machine.dies = "it is gone\x1b[31m";
        RemotePages pages(machine.options(), layout);
        const auto began = Clock::now();
        CHECK(fetch_all(pages, chain) == contents(chain, 0, 2)); // what came is used
        CHECK(pages.statistics().failed == 1);
        CHECK(pages.statistics().missing == 2);
        const std::string warnings = all_of(pages.take_warnings());
        CHECK_MESSAGE(contains(warnings, says_why
                                             ? "a machine is left alone for a while, and prompts are computed here: it is gone"
                                             : "sent 2 of 4 pages"),
                      warnings);
        CHECK_FALSE(contains(warnings, "\x1b"));
        const bool is_left_alone = pages.fetch("", chain, 0) == nullptr && machine.calls == 1;
        CHECK((is_left_alone || Clock::now() - began >= Breaker::first_pause));
        if (!is_left_alone) continue; // too slow a machine to tell
        machine.pages = 4;
        machine.dies.clear();
        std::this_thread::sleep_for(Breaker::first_pause + 50ms);
        CHECK(fetch_all(pages, chain) == contents(chain));
        CHECK_FALSE(pages.statistics().paused);
    }
}

TEST_CASE("no prompt waits longer than it would take to compute") {
    Machine machine;
    machine.wait_ms = 60000;
    RemotePages pages(machine.options(), layout);
    pages.note_speed(page_tokens, 100ms);
    const auto chain = prompt(4);
    const auto began = Clock::now();
    CHECK(fetch_all(pages, chain).empty());
    CHECK(Clock::now() - began > 390ms);
    CHECK(Clock::now() - began < 30s);
    CHECK(pages.statistics().late == 1);
    CHECK(contains(all_of(pages.take_warnings()), "a machine is slower than computing here: "));
    CHECK(becomes([&] { return machine.was_told_to_stop.load(); }));
}

TEST_CASE("a machine that would take longer than this one is not asked, until it may have changed") {
    Machine machine;
    machine.wait_ms = 30;
    RemotePages::Options options = machine.options();
    options.retry_pause = 700ms;
    RemotePages pages(options, layout);
    const auto chain = prompt(4);
    const auto began = Clock::now();
    CHECK(fetch_all(pages, chain).size() == 4); // measured
    pages.note_speed(page_tokens, 21ms);
    const bool is_skipped = pages.fetch("", chain, 0) == nullptr && pages.statistics().skipped == 1 && machine.calls == 1;
    CHECK((is_skipped || Clock::now() - began >= options.retry_pause));
    std::this_thread::sleep_for(750ms);
    CHECK(pages.fetch("", chain, 0) != nullptr);
}

TEST_CASE("one prompt after the other, and what nobody waits for any more is stopped") {
    Machine machine;
    machine.wait_ms = 60000;
    RemotePages pages(machine.options(), layout);
    const auto chain = prompt(3);
    auto first = pages.fetch("", chain, 0);
    const auto second = pages.fetch("", chain, 0);
    REQUIRE(becomes([&] { return machine.calls == 1; }));
    CHECK(pages.is_coming(*first));
    first.reset();
    CHECK(becomes([&] { return machine.was_told_to_stop.load(); }));
    CHECK(becomes([&] { return machine.calls == 2; }));
    CHECK(pages.statistics().failed == 0); // nobody's fault
    CHECK(pages.take_warnings().empty());
}

TEST_CASE("pages wait for room, and the end waits for nobody") {
    Machine machine;
    RemotePages::Options options = machine.options();
    options.max_waiting_bytes = 2 * sent_page_bytes(layout, false);
    const auto chain = prompt(8);
    {
        RemotePages pages(options, layout);
        const auto fetch = pages.fetch("", chain, 0);
        REQUIRE(becomes([&] { return pages.statistics().found == 2; }));
        std::this_thread::sleep_for(50ms); // in which a third must not come
        CHECK(pages.statistics().found == 2);
        std::vector<Bytes> all;
        while (pages.is_coming(*fetch))
            if (auto content = pages.take(*fetch, 1s)) all.push_back(std::move(*content));
        CHECK(all == contents(chain));
    }
    machine.wait_ms = 60000;
    auto pages = std::make_unique<RemotePages>(options, layout);
    const auto fetch = pages->fetch("", chain, 0);
    REQUIRE(becomes([&] { return machine.calls == 2; }));
    const auto began = Clock::now();
    pages.reset();
    CHECK(becomes([&] { return machine.was_told_to_stop.load(); }));
    CHECK(Clock::now() - began < 30s);
}
