// The file of a page: what is read is what was written, and any change of it is noticed.
#include "base/error.h"
#include "model/cache.h"
#include "model/prefix/page_directory.h"
#include "model/prefix/page_file.h"
#include <cstring>
#include <doctest/doctest.h>
#include <random>

using namespace tq;

namespace {

constexpr PageName owner{1, 2}, parent{3, 4};

std::vector<uint32_t> some_ids(uint32_t count, uint32_t seed = 1) {
    std::mt19937 random(seed);
    std::vector<uint32_t> ids(count);
    for (uint32_t& id : ids) id = uint32_t(random() % 300);
    return ids;
}

std::vector<std::byte> content_of(uint32_t tokens) {
    std::vector<std::byte> content(tokens * 10);
    for (size_t i = 0; i < content.size(); i++) content[i] = std::byte(i * 7 + 1);
    return content;
}

std::vector<std::byte> file_of(const PageHead& head) {
    const auto content = content_of(head.tokens());
    auto bytes = page_head_bytes(head, content);
    bytes.insert(bytes.end(), content.begin(), content.end());
    return bytes;
}

// Why a file is refused; "none" if it is read, and equal to what was written.
std::string refusal(const std::vector<std::byte>& file, const PageHead& meant) {
    try {
        const PageHead head = read_page_head(file);
        const auto content = page_content(file, head, head.tokens() * 10);
        const auto expected = content_of(head.tokens());
        const bool same = head.owner == meant.owner && head.parent == meant.parent && head.name == meant.name &&
                          head.ids == meant.ids && head.cold == meant.cold && std::ranges::equal(content, expected);
        return same ? "none" : "taken for another";
    } catch (const Error& error) {
        return error.what();
    }
}

} // namespace

TEST_CASE("a page is what its description says") {
    const PageHead head = make_page_head(owner, parent, some_ids(3), 2);
    const auto file = file_of(head);
    REQUIRE(file.size() == 88 + 16 + 30);
    CHECK(std::memcmp(file.data(), "tq-run page v2\n", 16) == 0);
    const auto word = [&](size_t at) {
        uint64_t value;
        std::memcpy(&value, file.data() + at, 8);
        return value;
    };
    CHECK((word(32) == 1 && word(40) == 2 && word(48) == 3 && word(56) == 4));
    CHECK((word(64) == head.name.high && word(72) == head.name.low));
    CHECK(word(80) == (uint64_t(2) << 32 | 3));
    CHECK(std::memcmp(file.data() + 88, head.ids.data(), 12) == 0);
    CHECK((word(96) >> 32) == 0);
    CHECK(std::to_integer<int>(file[104]) == 1);
    CHECK(refusal(file, head) == "none");
}

TEST_CASE("pages of every length are read back") {
    for (const uint32_t tokens : {1u, 2u, 31u, 32u, 33u, 255u, 256u})
        for (const uint32_t cold : {0u, 1u, tokens}) {
            const PageHead head = make_page_head(owner, parent, some_ids(tokens), cold);
            CHECK(refusal(file_of(head), head) == "none");
            CHECK(page_head_size(tokens) <= max_page_head_bytes);
        }
}

TEST_CASE("files that are cut or longer, or have any bit that is not as it was, are refused") {
    const PageHead head = make_page_head(owner, parent, some_ids(5), 5);
    const auto file = file_of(head);
    for (size_t length = 0; length < file.size(); length++)
        CHECK(refusal({file.begin(), file.begin() + ptrdiff_t(length)}, head) != "none");
    for (size_t bit = 0; bit < file.size() * 8; bit++) {
        auto flipped = file;
        flipped[bit / 8] ^= std::byte(1 << bit % 8);
        const std::string why = refusal(flipped, head);
        CHECK_MESSAGE(why != "none", "bit " << bit);
        CHECK_MESSAGE(why != "taken for another", "bit " << bit);
    }
    auto longer = file;
    longer.push_back(std::byte(0));
    CHECK(refusal(longer, head) == "163 bytes instead of 162");
}

TEST_CASE("a name depends on the owner, the parent, each id, their number, and whether they are cold") {
    const auto ids = some_ids(256);
    const PageName name = name_of_page(owner, parent, ids, true);
    CHECK(name == name_of_page(owner, parent, ids, true));
    CHECK(name != name_of_page({1, 3}, parent, ids, true));
    CHECK(name != name_of_page(owner, {4, 3}, ids, true));
    CHECK(name != name_of_page(owner, parent, ids, false));
    CHECK(name != name_of_page(owner, parent, std::span(ids).first(255), true));
    for (size_t i = 0; i < ids.size(); i++) {
        auto other = ids;
        other[i] ^= 1;
        CHECK(name != name_of_page(owner, parent, other, true));
    }
    CHECK(name_of_owner("a") != name_of_owner(std::string_view("a\0", 2)));
    CHECK(name_of_owner("") != name_of_owner("a"));
    PageName read;
    CHECK(parse_page_name(name.hex(), read));
    CHECK(read == name);
    for (const char* wrong : {"", "12", "0123456789abcdef0123456789abcdeF", "0123456789abcdef0123456789abcde "})
        CHECK_FALSE(parse_page_name(wrong, read));
}

// The numbers are of Python's hashlib.blake2s(..., digest_size=16), from the description in page_name.h.
TEST_CASE("names are the same in every build and on every machine") {
    CHECK(name_of_owner("").hex() == "0dcff32d0dee5ce243210e8f25130a2e");
    CHECK(name_of_owner("a").hex() == "af9993e82d0a390481feb358067ff9d7");
    std::vector<uint32_t> ids(256);
    for (uint32_t i = 0; i < 256; i++) ids[i] = i * 2654435761u;
    CHECK(name_of_page(owner, parent, ids, true).hex() == "df4ba30185e8247cfc4d3529d26af89d");
    CHECK(name_of_page(owner, parent, ids, false).hex() == "5fab1a744b6b1a37b55fdd6d48da7d14");
    CHECK(name_of_page(owner, parent, std::vector<uint32_t>{7}, true).hex() == "c5e8c716b854ad21dfc57b8f6cb93c0c");
    const PageName large{UINT64_MAX, uint64_t(1) << 63}, mixed{0x0123456789abcdef, 0xfedcba9876543210};
    CHECK(name_of_page(large, mixed, std::vector<uint32_t>{1, 2, 3}, false).hex() == "301ede586492d1e31aa575e585d01008");
}

TEST_CASE("file names are read back, and others are none") {
    for (const uint32_t tokens : {1u, 31u, 32u, 256u}) {
        const PageEntry entry = entry_of(make_page_head(owner, parent, some_ids(tokens), 1));
        const auto read = parse_entry(entry.file_name());
        REQUIRE(read);
        CHECK((read->parent == entry.parent && read->name == entry.name));
        CHECK((read->tokens == tokens && read->beginning == entry.beginning));
        CHECK_FALSE(parse_entry(entry.file_name() + ".1234.draft"));
        CHECK_FALSE(parse_entry("0" + entry.file_name()));
    }
    for (const char* name : {"", ".page", "owner.json", "x.page"}) CHECK_FALSE(parse_entry(name));
}

TEST_CASE("an entry tells whether its page may begin as ids do") {
    const auto ids = some_ids(40);
    auto other = ids;
    other[31] ^= 1;
    const PageEntry entry = entry_of(make_page_head(owner, parent, ids, 0));
    CHECK(may_begin_as(entry, ids));
    CHECK(may_begin_as(entry, std::span(ids).first(32)));
    CHECK_FALSE(may_begin_as(entry, std::span(ids).first(31)));
    CHECK_FALSE(may_begin_as(entry, other));
    const PageEntry few = entry_of(make_page_head(owner, parent, std::span(ids).first(5), 0));
    CHECK(may_begin_as(few, ids));
    CHECK_FALSE(may_begin_as(few, std::span(ids).first(4)));
}
