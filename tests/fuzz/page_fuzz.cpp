// A page of the prefix cache, and after it what the file's name is: what is read is what the head says.
#include "model/prefix/page_directory.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto file = std::as_bytes(std::span(data, size));
    tq::parse_entry(tq::fuzz::text(data, size));
    return tq::fuzz::run([&] {
        const tq::PageHead head = tq::read_page_head(file);
        if (head.name != tq::name_of_page(head.owner, head.parent, head.ids, head.cold == head.tokens())) std::abort();
        const auto entry = tq::parse_entry(tq::entry_of(head).file_name());
        if (!entry || !tq::may_begin_as(*entry, head.ids)) std::abort();
        const auto content = tq::page_content(file, head, 8 * head.tokens());
        const auto again = tq::page_head_bytes(head, content);
        if (!std::equal(again.begin(), again.end(), file.begin())) std::abort();
    });
}
