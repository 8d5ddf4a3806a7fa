#include "base/wide_text.h"
#include <windows.h>

namespace tq {

std::wstring wide_text(std::string_view utf8) {
    const int bytes = int(utf8.size());
    std::wstring out(size_t(::MultiByteToWideChar(CP_UTF8, 0, utf8.data(), bytes, nullptr, 0)), L'\0');
    ::MultiByteToWideChar(CP_UTF8, 0, utf8.data(), bytes, out.data(), int(out.size()));
    return out;
}

std::string narrow_text(std::wstring_view text) {
    const int units = int(text.size());
    std::string out(size_t(::WideCharToMultiByte(CP_UTF8, 0, text.data(), units, nullptr, 0, nullptr, nullptr)), '\0');
    ::WideCharToMultiByte(CP_UTF8, 0, text.data(), units, out.data(), int(out.size()), nullptr, nullptr);
    return out;
}

} // namespace tq
