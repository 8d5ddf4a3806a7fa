// UTF-16, which Windows' own functions take, and UTF-8. Windows only: wide_text_windows.cpp.
#pragma once
#include <string>
#include <string_view>

namespace tq {

// Ill-formed text becomes U+FFFD.
std::wstring wide_text(std::string_view utf8);
std::string narrow_text(std::wstring_view text);

} // namespace tq
