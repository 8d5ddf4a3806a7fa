// Names of pages of the prefix cache: hashes of their content, so that equal pages of all processes have the same name.
#pragma once
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tq {

// 128 bits of BLAKE2s (base/blake2s.h), since clients choose ids: nobody finds others with the name of a page, after which they
// would be found in its place. The first eight bytes of the hash are `high`, the lowest first.
struct PageName {
    uint64_t high = 0, low = 0;

    auto operator<=>(const PageName&) const = default;
    std::string hex() const; // 32 digits
};

// Returns the name of an owner, which the first page of a sequence has as its parent: the hash of "tq-run owner\n" and
// the text.
PageName name_of_owner(std::string_view text);

// Returns the name of the page of these ids after `parent`, in a cache of this owner. `cold`: whether all its tokens are as a
// cold run stores them (model/prefix/cold.h); others with the same ids have other bytes. The hash is that of "tq-run page\n", the
// two names as they were hashed, the number of ids (32 bits), 1 or 0 for cold (32 bits), and the ids, 32 bits each, all numbers
// with the lowest byte first.
PageName name_of_page(PageName owner, PageName parent, std::span<const uint32_t> ids, bool cold);

// Returns the name of a state (state_record.h) that ends with this page: the hash of "tq-run state
// " and the page's name as it was hashed.
PageName name_of_state(PageName page);

// Returns the number in 32 hexadecimal digits; false if the text is something else.
bool parse_page_name(std::string_view text, PageName& name);

} // namespace tq
