// A page's bytes, on the disk, in a file of a prompt cache, or on a network: magic, checksums of head and content, the names, the
// ids, then the content. Two checksums, because the head alone decides whether a page is wanted. The name is a hash of owner,
// parent and ids, and is computed again when a head is read, so that a page cannot claim ids that it was not made for.
// The head is a multiple of 8 bytes long, so the content is aligned in a mapped file.
#include "model/prefix/page_file.h"
#include "base/checksum.h"
#include "base/ensure.h"
#include "base/error.h"
#include "model/cache.h"
#include <algorithm>
#include <cstring>

namespace tq {
namespace {

constexpr std::string_view page_magic("tq-run page v2\n", 16), state_magic("tq-run state 1\n", 16); // with the zero at the end
constexpr size_t check_at = 16, checked_from = 24, names_at = 32, tokens_at = 80, ids_at = 88;

template <class T> T read_at(std::span<const std::byte> bytes, size_t at) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}
template <class T> void write_at(std::span<std::byte> bytes, size_t at, const T& value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
}

bool begins_with(std::span<const std::byte> file, std::string_view magic) {
    return std::memcmp(file.data(), magic.data(), magic.size()) == 0;
}

PageName name_of(const PageHead& head) {
    return head.kind == RecordKind::state ? name_of_state(head.parent)
                                          : name_of_page(head.owner, head.parent, head.ids, head.cold == head.tokens());
}

} // namespace

PageHead make_page_head(PageName owner, PageName parent, std::span<const uint32_t> ids, uint32_t cold) {
    ENSURE(!ids.empty() && ids.size() <= page_tokens && cold <= ids.size(), "{} of {} tokens", cold, ids.size());
    return {.owner = owner,
            .parent = parent,
            .name = name_of_page(owner, parent, ids, cold == ids.size()),
            .ids = {ids.begin(), ids.end()},
            .cold = cold};
}

PageHead make_state_head(const PageHead& page) {
    PageHead head = page;
    head.kind = RecordKind::state;
    head.parent = page.name;
    head.name = name_of(head);
    return head;
}

size_t page_head_size(uint32_t tokens) { return ids_at + (size_t(tokens) + 1) / 2 * 8; }

std::vector<std::byte> page_head_bytes(const PageHead& head, std::span<const std::byte> content) {
    std::vector<std::byte> bytes(page_head_size(head.tokens()));
    const std::string_view magic = head.kind == RecordKind::state ? state_magic : page_magic;
    std::memcpy(bytes.data(), magic.data(), magic.size());
    write_at(bytes, checked_from, checksum(content));
    size_t at = names_at;
    for (const PageName& name : {head.owner, head.parent, head.name}) {
        write_at(bytes, at, name.high);
        write_at(bytes, at + 8, name.low);
        at += 16;
    }
    write_at(bytes, tokens_at, head.tokens());
    write_at(bytes, tokens_at + 4, head.cold);
    std::memcpy(bytes.data() + ids_at, head.ids.data(), head.ids.size() * 4);
    write_at(bytes, check_at, checksum(std::span(bytes).subspan(checked_from)));
    return bytes;
}

PageHead read_page_head(std::span<const std::byte> file) {
    if (file.size() < ids_at || !(begins_with(file, page_magic) || begins_with(file, state_magic)))
        fail("it is not a page of tq-run");
    const auto tokens = read_at<uint32_t>(file, tokens_at), cold = read_at<uint32_t>(file, tokens_at + 4);
    if (tokens == 0 || tokens > page_tokens || cold > tokens) fail("{} of {} tokens", cold, tokens);
    const size_t size = page_head_size(tokens);
    if (file.size() < size) fail("{} bytes of a head of {}", file.size(), size);
    if (read_at<uint64_t>(file, check_at) != checksum(file.first(size).subspan(checked_from)))
        fail("its head has a wrong checksum");
    PageHead head;
    head.kind = begins_with(file, state_magic) ? RecordKind::state : RecordKind::page;
    head.content_check = read_at<uint64_t>(file, checked_from);
    size_t at = names_at;
    for (PageName* name : {&head.owner, &head.parent, &head.name}) {
        *name = {read_at<uint64_t>(file, at), read_at<uint64_t>(file, at + 8)};
        at += 16;
    }
    head.cold = cold;
    head.ids.resize(tokens);
    std::memcpy(head.ids.data(), file.data() + ids_at, tokens * size_t(4));
    if (head.name != name_of(head)) fail("its name is not that of its ids");
    return head;
}

std::span<const std::byte> page_content(std::span<const std::byte> file, const PageHead& head, uint64_t content_bytes) {
    const size_t begin = page_head_size(head.tokens());
    if (file.size() != begin + content_bytes) fail("{} bytes instead of {}", file.size(), begin + content_bytes);
    const auto content = file.subspan(begin);
    if (checksum(content) != head.content_check) fail("its content has a wrong checksum");
    return content;
}

} // namespace tq
