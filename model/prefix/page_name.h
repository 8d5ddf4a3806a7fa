// Names of pages of the prefix cache: hashes of what they hold, so that equal pages of all processes have the same name.
#pragma once
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tq {

// 128 bits, which detect mistakes, not forgeries: a page's ids are stored in it and compared, too.
struct PageName {
    uint64_t high = 0, low = 0;

    auto operator<=>(const PageName&) const = default;
    std::string hex() const; // 32 digits
};

// Returns the name of an owner, which the first page of a sequence has as its parent: a hash of the text.
PageName name_of_owner(std::string_view text);

// Returns the name of the page of these ids after `parent`, in a cache of this owner. `cold`: whether all its tokens are as a
// cold run stores them (model/prefix/cold.h); others with the same ids have other bytes.
PageName name_of_page(PageName owner, PageName parent, std::span<const uint32_t> ids, bool cold);

// Returns the number in 32 hexadecimal digits; false where the text is something else.
bool parse_page_name(std::string_view text, PageName& name);

} // namespace tq
