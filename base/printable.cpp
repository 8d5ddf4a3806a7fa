#include "base/printable.h"
#include <fmt/format.h>

namespace tq {

std::string printable(std::string_view text, size_t max_bytes) {
    std::string out;
    for (const char c : text.substr(0, max_bytes)) {
        if (c >= 0x20 && c < 0x7f) {
            out += c;
        } else {
            out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        }
    }
    if (text.size() > max_bytes) out += "...";
    return out;
}

std::string lowercase(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
    return out;
}

} // namespace tq
