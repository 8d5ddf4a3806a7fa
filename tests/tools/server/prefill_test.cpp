// POST /v1/prefill with the demo model: the pages that an ordinary request leaves, and what is refused.
#include "model/prefix/page_signature.h"
#include "model/prefix/page_stream.h"
#include "model/prefix/sent_page.h"
#include "tests/support/served_model.h"
#include "tests/support/text.h"

using namespace tq;
using test::contains;
using Bytes = std::vector<std::byte>;
using Ids = std::vector<uint32_t>;
using Json = test::ServedJson;

namespace {

const OwnerTexts owner{{"fingerprint", "1"}, {"types", "f32/f32"}};

Model demo() { return load_model(std::filesystem::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf"); }

Ids ids_of(size_t count, uint32_t seed) {
    Ids ids(count);
    for (size_t i = 0; i < count; i++) ids[i] = uint32_t((i * 31 + seed * 7) % 200);
    return ids;
}

test::ServedSetup setup(PageSigner sign = {}) {
    test::ServedSetup setup{.slots = 2, .context = 1280};
    setup.options.prefill = {[] { return owner; }, std::move(sign)};
    return setup;
}

std::string body(const Ids& ids, uint32_t known = 0, const OwnerTexts& of = owner) {
    return Json{{"owner", of}, {"ids", ids}, {"known", known}}.dump();
}

// The pages of a reply, and whether it was whole.
std::vector<Bytes> pages_of(const server::HttpReply& reply, size_t page_bytes, uint32_t max = UINT32_MAX) {
    REQUIRE_MESSAGE(reply.status == 200, reply.body);
    std::vector<Bytes> pages;
    PageStreamReader reader(page_bytes, [&](Bytes page) {
        pages.push_back(std::move(page));
        return pages.size() < max;
    });
    reply.stream(server::Send([&](std::string_view bytes, bool) { return reader.push(std::as_bytes(std::span(bytes))); }));
    CHECK(reader.is_between_pages());
    return pages;
}

// The content of a page, as an ordinary request of the prompt leaves it.
Bytes content_of(test::ServedModel& served, const Ids& ids, size_t page) {
    serving::Request request;
    request.prompt = ids;
    request.prompt.push_back(1);
    request.max_tokens = 1;
    const auto stream = served.scheduler().submit(std::move(request));
    while (!stream->wait(std::chrono::seconds(1)).done) {
    }
    const auto content = served.scheduler().page_content({ids.begin(), ids.begin() + ptrdiff_t((page + 1) * page_tokens)}, "");
    REQUIRE(content);
    return *content;
}

PageHead head_of(const Ids& ids, size_t page) {
    PageName parent = owner_name(owner);
    for (size_t at = 0;; at++) {
        const PageHead head =
            make_page_head(owner_name(owner), parent, std::span(ids).subspan(at * page_tokens, page_tokens), page_tokens);
        if (at == page) return head;
        parent = head.name;
    }
}

} // namespace

TEST_CASE("the pages of a prompt are those that a request of that prompt leaves") {
    const Model model = demo();
    test::ServedModel strong(model, setup()), other(model, setup());
    const PageLayout layout = page_layout(model.config, {.k = KvType::f32, .v = KvType::f32});
    const Ids ids = ids_of(3 * page_tokens, 1);
    for (const uint32_t known : {0u, 0u, 2u}) { // computed, found, and only the last one
        const auto pages = pages_of(strong.post(server::prefill, body(ids, known)), sent_page_bytes(layout, false));
        REQUIRE(pages.size() == 3 - known);
        for (size_t i = 0; i < pages.size(); i++)
            CHECK(received_content(pages[i], head_of(ids, known + i), layout, {}) == content_of(other, ids, known + i));
    }
    CHECK(strong.scheduler().status().decoded_tokens == 0);
    CHECK_FALSE(strong.scheduler().page_content(ids_of(page_tokens, 2), ""));
    CHECK_FALSE(strong.scheduler().page_content(ids_of(page_tokens, 1), "another tenant"));
}

TEST_CASE("pages are signed where there is a key") {
    const Model model = demo();
    const PageSigner sign = [](std::span<const std::byte> bytes) { return PageSignature{std::byte(bytes.size()), bytes[200]}; };
    test::ServedModel strong(model, setup(sign));
    const PageLayout layout = page_layout(model.config, {.k = KvType::f32, .v = KvType::f32});
    const Ids ids = ids_of(page_tokens, 1);
    const auto pages = pages_of(strong.post(server::prefill, body(ids)), sent_page_bytes(layout, true));
    REQUIRE(pages.size() == 1);
    CHECK(received_content(pages[0], head_of(ids, 0), layout, sign).size() == layout.bytes(page_tokens));
}

TEST_CASE("a machine that has heard enough is not computed for") {
    const Model model = demo();
    test::ServedModel strong(model, setup());
    const PageLayout layout = page_layout(model.config, {.k = KvType::f32, .v = KvType::f32});
    {
        const auto reply = strong.post(server::prefill, body(ids_of(4 * page_tokens, 1)));
        CHECK(pages_of(reply, sent_page_bytes(layout, false), 1).size() == 1);
        strong.post(server::prefill, body(ids_of(4 * page_tokens, 2))); // dropped before it was sent
    }
    CHECK(strong.scheduler().drain(std::chrono::seconds(20)));
    CHECK(strong.scheduler().status().cancelled >= 1);
}

TEST_CASE("a prompt that another machine has asked for goes to no third one, and what is wrong is refused") {
    const Model model = demo();
    test::ServedModel strong(model, setup());
    const Ids good = ids_of(page_tokens, 1);
    for (const std::string& bad :
         {std::string("{}"), body({}), body(ids_of(255, 1)), body(ids_of(257, 1)), body(ids_of(6 * page_tokens, 1)),
          body(good, 1), body(Ids(256, model.config.vocab_size)), Json{{"ids", good}}.dump(),
          Json{{"owner", "x"}, {"ids", good}}.dump(), Json{{"owner", owner}, {"ids", std::vector<double>(256, 0.5)}}.dump(),
          Json{{"owner", owner}, {"ids", std::vector<int>(256, -1)}}.dump()})
        strong.refusal(server::prefill, bad);
    Ids with_wrong = good;
    with_wrong[7] = model.config.vocab_size;
    CHECK(strong.refusal(server::prefill, body(with_wrong)).at("message") ==
          fmt::format("\"ids\" holds {}, which is no token id: those of this model are 0 to {}", model.config.vocab_size,
                      model.tokenizer.size() - 1));
    const auto differs = [&](const OwnerTexts& theirs, const std::string& what) {
        const auto reply = strong.post(server::prefill, body(good, 0, theirs));
        CHECK(reply.status == 409);
        CHECK_MESSAGE(contains(reply.body, what), reply.body);
    };
    differs({{"fingerprint", "2"}, {"types", "f32/f32"}}, "fingerprint is '1' here and '2' there");
    differs({{"fingerprint", "1"}, {"types", "\x1b[31m"}}, "types is 'f32/f32' here and '\\\\x1b[31m' there");
    differs({{"fingerprint", "1"}}, "types is 'f32/f32' here and 'nothing' there");
    differs({{"fingerprint", "1"}, {"types", "f32/f32"}, {"window", "8"}}, "other properties");
    test::ServedModel without(model, {});
    CHECK(without.post(server::prefill, body(good)).status == 501);
}
