// Pages in a store that other machines use: a slow, dead, full or lying one is a miss, and costs little time.
#include "model/cache.h"
#include "model/prefix/breaker.h"
#include "model/prefix/page_signature.h"
#include "tests/support/fake_store.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>
#include <numeric>
#include <thread>

using namespace tq;
using namespace std::chrono_literals;
using test::contains;
using test::Shelf;

namespace {

using Clock = std::chrono::steady_clock;

const OwnerTexts owner{{"fingerprint", "1"}, {"model", "a model"}};
const PageLayout layout(2, {{3, 1}, {2, 0}}); // 44 bytes for each token

// Pages that follow one another.
std::vector<PageHead> chain_of(uint32_t number, size_t count, PageName parent = owner_name(owner)) {
    std::vector<PageHead> chain;
    for (size_t i = 0; i < count; i++) {
        std::vector<uint32_t> ids(page_tokens);
        std::iota(ids.begin(), ids.end(), uint32_t(number * 100000 + i * page_tokens));
        chain.push_back(make_page_head(owner_name(owner), parent, ids, page_tokens));
        parent = chain.back().name;
    }
    return chain;
}
std::vector<std::byte> content_of(const PageHead& head) {
    std::vector<std::byte> content(layout.bytes(head.tokens()));
    for (size_t i = 0; i < content.size(); i++) content[i] = std::byte(head.ids[i % head.tokens()] + i / 7);
    return content;
}

struct Shared {
    std::shared_ptr<Shelf> shelf = std::make_shared<Shelf>();
    SharedPages::Options options = test::on(shelf);

    std::unique_ptr<SharedPages> open() const { return std::make_unique<SharedPages>(options, layout); }
    void fill(const std::vector<PageHead>& chain) const {
        const auto pages = open();
        for (const PageHead& head : chain) pages->write(head, content_of(head));
        pages->flush();
        REQUIRE(shelf->pages.size() >= chain.size());
    }
};

// The contents of the pages that come from `known` on.
std::vector<std::vector<std::byte>> fetch_all(SharedPages& pages, const std::vector<PageHead>& chain, uint32_t known = 0) {
    std::vector<std::vector<std::byte>> all;
    const auto fetch = pages.fetch("", chain, known);
    while (fetch && pages.is_coming(*fetch))
        if (auto content = pages.take(*fetch, 1s)) all.push_back(std::move(*content));
    return all;
}
bool are_right(const std::vector<std::vector<std::byte>>& contents, const std::vector<PageHead>& chain, size_t first = 0) {
    for (size_t i = 0; i < contents.size(); i++)
        if (contents[i] != content_of(chain[first + i])) return false;
    return true;
}
int64_t ms_since(Clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
}
template <class Condition> bool becomes(const Condition& condition, std::chrono::milliseconds within = 20s) {
    for (const auto end = Clock::now() + within; Clock::now() < end; std::this_thread::sleep_for(5ms))
        if (condition()) return true;
    return false;
}

// No signature that anybody should use.
PageSigner toy_signer(uint64_t key) {
    return [key](std::span<const std::byte> bytes) {
        PageSignature signature{};
        for (size_t i = 0; i < bytes.size(); i++) signature[i % 32] ^= std::byte((uint64_t(bytes[i]) * (i + key)) & 0xff);
        return signature;
    };
}

} // namespace

TEST_CASE("what one machine has written another finds, up to the first page that is missing") {
    const Shared shared;
    const auto chain = chain_of(1, 5);
    shared.fill({chain.begin(), chain.begin() + 4});
    const auto pages = shared.open();
    const auto contents = fetch_all(*pages, chain);
    CHECK(contents.size() == 4);
    CHECK(are_right(contents, chain));
    CHECK(fetch_all(*pages, chain, 2).size() == 2);
    CHECK(are_right(fetch_all(*pages, chain, 2), chain, 2));
    CHECK(fetch_all(*pages, chain_of(2, 3)).empty());
    const auto counts = pages->statistics();
    CHECK(counts.found == 8);
    CHECK(counts.missed == 4);
    CHECK(counts.read_bytes == 8 * (1112 + layout.bytes(page_tokens)));
    CHECK(counts.late + counts.failed + counts.rejected == 0);
    CHECK(pages->take_warnings().empty());
}

TEST_CASE("whole pages of cold tokens are shared, each once") {
    const Shared shared;
    const auto pages = shared.open();
    const PageHead head = chain_of(1, 1)[0];
    CHECK(pages->wants(head, true));
    pages->write(head, content_of(head));
    CHECK_FALSE(pages->wants(head, true));
    pages->flush();
    CHECK_FALSE(pages->wants(head, true));
    CHECK_FALSE(pages->wants(make_page_head(head.owner, head.parent, head.ids, 255), true)); // sampled
    CHECK_FALSE(pages->wants(make_page_head(head.owner, head.parent, std::span(head.ids).first(255), 255), true));
    CHECK(pages->statistics().written == 1);
    CHECK(pages->statistics().not_written == 0);
    const auto other = shared.open(); // does not know yet that the page is there
    CHECK(other->wants(head, true));
    other->write(head, content_of(head));
    other->flush();
    CHECK(other->statistics().written == 0);
    const auto reader = shared.open(); // what was found need not be written
    CHECK(fetch_all(*reader, {head}).size() == 1);
    CHECK_FALSE(reader->wants(head, true));
}

TEST_CASE("what is in a store is not believed any more when another one answers, though nothing else was written or read") {
    Shared shared;
    shared.options.confirm_pause = 0ms;
    const auto chain = chain_of(1, 2);
    const auto pages = shared.open();
    for (const PageHead& head : chain) pages->write(head, content_of(head));
    pages->flush();
    const int probes = shared.shelf->probes;
    CHECK_FALSE(pages->wants(chain[0], true));
    REQUIRE(becomes([&] { return shared.shelf->probes > probes; })); // it is asked whether it is still there
    for (const PageHead& head : chain) CHECK_FALSE(pages->wants(head, true));
    shared.shelf->pages.clear(); // it was killed, and started again empty
    shared.shelf->connections++;
    for (const PageHead& head : chain) REQUIRE(becomes([&] { return pages->wants(head, true); }));
    for (const PageHead& head : chain) pages->write(head, content_of(head));
    pages->flush();
    CHECK(pages->statistics().written == 4);
    CHECK_FALSE(pages->wants(chain[0], true));
    CHECK(fetch_all(*shared.open(), chain).size() == 2);
    const auto reader = shared.open(); // which has found them, and then finds others in another one
    CHECK(fetch_all(*reader, chain).size() == 2);
    CHECK_FALSE(reader->wants(chain[0], true));
    shared.shelf->connections++;
    CHECK(fetch_all(*reader, chain_of(3, 1)).empty());
    CHECK(reader->wants(chain[0], true));
}

TEST_CASE("a page that was believed to be in the store and is missing is written again, and those that follow it") {
    const Shared shared;
    const auto chain = chain_of(1, 4);
    const auto pages = shared.open();
    for (const PageHead& head : chain) pages->write(head, content_of(head));
    pages->flush();
    for (const PageHead& head : chain) CHECK_FALSE(pages->wants(head, true));
    shared.shelf->pages.erase(entry_of(chain[1]).file_name());
    CHECK(fetch_all(*pages, chain).size() == 1);
    CHECK_FALSE(pages->wants(chain[0], true));
    for (size_t i = 1; i < chain.size(); i++) {
        CHECK(pages->wants(chain[i], true));
        pages->write(chain[i], content_of(chain[i]));
    }
    pages->flush();
    CHECK(pages->statistics().written == 5);
    CHECK(fetch_all(*pages, chain).size() == 4);
}

TEST_CASE("a store that is slower than computing is a miss, and is then left alone until it answers again") {
    const Shared shared;
    const auto chain = chain_of(1, 4);
    shared.fill(chain);
    const auto pages = shared.open();
    CHECK(fetch_all(*pages, chain).size() == 4);
    pages->note_speed(page_tokens, 501500us);
    shared.shelf->read_delay_ms = shared.shelf->probe_delay_ms = 60000;
    auto start = Clock::now();
    CHECK(fetch_all(*pages, chain).empty());
    CHECK(ms_since(start) >= 500);
    CHECK(ms_since(start) < 20000);
    CHECK(pages->statistics().late == 1);
    CHECK(pages->statistics().reads_paused);
    const int gets = shared.shelf->gets;
    start = Clock::now();
    for (int i = 0; i < 100; i++) {
        CHECK(fetch_all(*pages, chain).empty());
        REQUIRE(ms_since(start) < 20000); // no deadline for each, which would be 2 s
    }
    CHECK(shared.shelf->gets == gets);
    CHECK(pages->statistics().late == 1);
    const auto warnings = pages->take_warnings();
    REQUIRE(warnings.size() == 1);
    CHECK(contains(warnings[0], "a shelf is slower than computing: a page did not come within 501 ms"));
    shared.shelf->read_delay_ms = shared.shelf->probe_delay_ms = 0;
    CHECK(becomes([&] { return !pages->statistics().reads_paused; }));
    for (int i = 0; i < 40; i++) pages->note_speed(page_tokens, 100s); // patient again
    CHECK(fetch_all(*pages, chain).size() == 4);
}

TEST_CASE("the slower the computer, the longer a page is waited for") {
    Shared shared;
    shared.options.first_page_time = 100ms;
    const auto chain = chain_of(1, 2);
    shared.fill(chain);
    shared.shelf->read_delay_ms = 400;
    const auto pages = shared.open();
    pages->note_speed(10, 1ns); // too few to tell
    pages->note_speed(256, 8s);
    CHECK(fetch_all(*pages, chain).size() == 2);
    for (int i = 0; i < 40; i++) pages->note_speed(25600, 1s); // faster, by and by
    CHECK(fetch_all(*pages, chain).empty());
    CHECK(pages->statistics().late == 1);
}

TEST_CASE("a dead store costs nothing after its first error, and is used again when it lives") {
    Shared shared;
    const auto chain = chain_of(1, 3);
    shared.fill(chain);
    shared.shelf->dead = true;
    const auto pages = shared.open();
    REQUIRE(becomes([&] { return pages->statistics().reads_paused; })); // the first probe
    const auto start = Clock::now();
    for (int i = 0; i < 1000; i++) {
        CHECK(fetch_all(*pages, chain).empty());
        REQUIRE(ms_since(start) < 60000); // no deadline for each, which would be 30 s
    }
    CHECK(shared.shelf->gets == 0);
    CHECK(pages->statistics().late == 0);
    CHECK(contains(pages->take_warnings().at(0), "the shared prefix cache a shelf does not answer: the store is dead"));
    CHECK(becomes([&] { return shared.shelf->probes >= 2; }));
    CHECK(pages->take_warnings().empty()); // one a minute
    shared.shelf->dead = false;
    CHECK(becomes([&] { return !pages->statistics().reads_paused; }));
    CHECK(fetch_all(*pages, chain).size() == 3);
    shared.shelf->dead = true; // in the middle of work
    CHECK(fetch_all(*pages, chain).empty());
    CHECK(pages->statistics().failed == 1);
}

TEST_CASE("a store that hangs for good holds up nobody, not at the end either") {
    const Shared shared;
    const auto chain = chain_of(1, 3);
    shared.fill(chain);
    const auto start = Clock::now();
    {
        const auto pages = shared.open();
        CHECK(fetch_all(*pages, chain).size() == 3);
        pages->note_speed(page_tokens, 500ms);
        shared.shelf->hangs = true;
        CHECK(fetch_all(*pages, chain).empty());
        CHECK(fetch_all(*pages, chain).empty());
        for (const PageHead& head : chain_of(2, 3)) pages->write(head, content_of(head));
        CHECK(ms_since(start) < 20000);
    }
    CHECK(ms_since(start) < 40000);
    shared.shelf->release();
}

TEST_CASE("nothing of a lying store is used, and its pages are written again") {
    const auto chain = chain_of(1, 2), other = chain_of(2, 1);
    const PageHead& head = chain[0];
    OwnerTexts stranger = owner;
    stranger["fingerprint"] = "2";
    const PageHead of_stranger = make_page_head(owner_name(stranger), owner_name(stranger), head.ids, page_tokens);
    const PageHead of_tenant = make_page_head(head.owner, name_of_owner("a tenant"), head.ids, page_tokens);
    const PageHead sampled = make_page_head(head.owner, head.parent, head.ids, 255);
    const auto page_of = [](const PageHead& one, std::vector<std::byte> content) {
        auto page = page_head_bytes(one, content);
        page.insert(page.end(), content.begin(), content.end());
        return page;
    };
    const auto right = page_of(head, content_of(head));
    std::vector<std::vector<std::byte>> lies{
        {},
        {right.begin(), right.begin() + 87},
        {right.begin(), right.begin() + 1112},
        {right.begin(), right.end() - 1},
    };
    for (const PageHead* one : {&other[0], &of_stranger, &of_tenant, &sampled, &chain[1]})
        lies.push_back(page_of(*one, content_of(head)));
    for (const size_t at : {0, 20, 40, 60, 80, 84, 100, 1200}) {
        lies.push_back(right);
        lies.back()[at] ^= std::byte{4};
    }
    lies.push_back(right);
    lies.back().push_back(std::byte{0});
    for (size_t i = 0; i < lies.size(); i++) {
        CAPTURE(i);
        const Shared shared;
        shared.fill(chain);
        shared.shelf->at(head) = lies[i];
        const auto pages = shared.open();
        CHECK(fetch_all(*pages, chain).empty());
        CHECK(pages->statistics().rejected == 1);
        CHECK(contains(pages->take_warnings().at(0), "a page of the shared prefix cache a shelf is not used: "));
        CHECK(pages->wants(head, true));
        pages->write(head, content_of(head));
        pages->flush();
        CHECK(shared.shelf->at(head) == right);
    }
}

TEST_CASE("with a key, only what it has signed is used") {
    Shared shared;
    const auto chain = chain_of(1, 2);
    shared.fill(chain); // without a key
    shared.options.sign = toy_signer(3);
    const auto rejects = [&](const char* reason) {
        const auto pages = shared.open();
        CHECK(fetch_all(*pages, chain).empty());
        CHECK(pages->statistics().rejected == 1);
        CHECK(contains(pages->take_warnings().at(0), reason));
    };
    rejects("it is not signed");
    shared.shelf->pages.clear();
    shared.fill(chain);
    CHECK(are_right(fetch_all(*shared.open(), chain), chain));
    CHECK(fetch_all(*shared.open(), chain).size() == 2);
    std::swap(shared.shelf->at(chain[0]), shared.shelf->at(chain[1]));
    rejects("it is another page"); // with a signature that is right
    std::swap(shared.shelf->at(chain[0]), shared.shelf->at(chain[1]));
    for (const size_t from_end : {1, 33, 49, 3000}) {
        auto& page = shared.shelf->at(chain[0]);
        page[page.size() - from_end] ^= std::byte{1};
        rejects(from_end == 33 ? "it is not signed" : "it is signed with another key");
        page[page.size() - from_end] ^= std::byte{1};
    }
    CHECK(without_signature(shared.shelf->at(chain[0])).size() == 1112 + layout.bytes(page_tokens));
    shared.options.sign = toy_signer(4);
    rejects("it is signed with another key");
    shared.options.sign = {}; // without a key the signature is in the way
    rejects("bytes instead of");
}

TEST_CASE("writing waits for nobody: what a slow or full store does not take is dropped") {
    Shared shared;
    const auto chain = chain_of(1, 20);
    const uint64_t page = 1112 + layout.bytes(page_tokens);
    shared.options.max_waiting_bytes = 3 * page;
    shared.shelf->write_delay_ms = 8000; // the store's time for a page is 10 s
    {
        const auto pages = shared.open();
        const auto start = Clock::now();
        size_t written = 0;
        for (const PageHead& head : chain) {
            if (!pages->wants(head, true)) continue;
            pages->write(head, content_of(head));
            written++;
        }
        REQUIRE(ms_since(start) < 8000);
        CHECK(written == 3);
        CHECK(pages->statistics().not_written == 17);
        shared.shelf->write_at_once();
        pages->flush();
        CHECK(pages->statistics().written == 3);
    }
    shared.shelf->full = true;
    const auto pages = shared.open();
    pages->write(chain[10], content_of(chain[10]));
    pages->flush();
    CHECK(contains(pages->take_warnings().at(0), "a shelf stores no pages for a while: the store is full"));
    CHECK(pages->statistics().writes_paused);
    const int puts = shared.shelf->puts;
    for (const PageHead& head : chain_of(3, 20)) CHECK_FALSE(pages->wants(head, false));
    CHECK(shared.shelf->puts == puts);
    CHECK(fetch_all(*pages, chain).size() == 3); // and is read all the same
    shared.shelf->full = false;
    CHECK(becomes([&] { return pages->wants(chain[10], false); }));
    pages->write(chain[10], content_of(chain[10]));
    pages->flush();
    CHECK(shared.shelf->has(chain[10]));
}

TEST_CASE("at the end what waits is written, for a few seconds at most") {
    Shared shared;
    const auto chain = chain_of(1, 20);
    shared.shelf->write_delay_ms = 5;
    {
        const auto pages = shared.open();
        for (const PageHead& head : chain) pages->write(head, content_of(head));
    }
    CHECK(shared.shelf->pages.size() == 20);
    shared.shelf->pages.clear();
    shared.shelf->write_delay_ms = 600;
    const auto start = Clock::now();
    {
        const auto pages = shared.open();
        for (const PageHead& head : chain) pages->write(head, content_of(head));
    }
    CHECK(ms_since(start) < 11000); // all of them would take 12 s
    CHECK(shared.shelf->pages.size() >= 1);
    CHECK(shared.shelf->pages.size() < 20);
}

TEST_CASE("several prompts are fetched at once, and one that nobody waits for any more stops") {
    Shared shared;
    const auto a = chain_of(1, 8), b = chain_of(2, 8);
    shared.fill(a);
    shared.fill(b);
    shared.options.max_waiting_bytes = 2 * (1112 + layout.bytes(page_tokens));
    const auto pages = shared.open();
    auto first = pages->fetch("", a, 0);
    const auto second = pages->fetch("", b, 0);
    std::vector<std::vector<std::byte>> contents;
    while (pages->is_coming(*second)) // though the first has no more room
        if (auto content = pages->take(*second, 1s)) contents.push_back(std::move(*content));
    CHECK(contents.size() == 8);
    CHECK(are_right(contents, b));
    CHECK(pages->take(*first, 10s) == content_of(a[0]));
    first.reset();
    std::this_thread::sleep_for(50ms);
    CHECK(shared.shelf->gets <= 8 + 3);
    CHECK(fetch_all(*pages, a).size() == 8);
}

TEST_CASE("pauses double up to a minute, and success ends that") {
    Breaker breaker;
    const auto now = Clock::now();
    CHECK_FALSE(breaker.is_open());
    std::vector<int64_t> pauses;
    for (int i = 0; i < 8; i++) {
        breaker.failed(now);
        pauses.push_back((breaker.probe_at() - now) / 1s);
        CHECK_FALSE(breaker.is_probe_due(now));
        CHECK(breaker.is_probe_due(breaker.probe_at()));
        breaker.probed();
        CHECK_FALSE(breaker.is_open());
    }
    CHECK(pauses == std::vector<int64_t>{1, 2, 4, 8, 16, 32, 60, 60});
    breaker.succeeded();
    breaker.failed(now);
    CHECK(breaker.probe_at() == now + 1s);
}
