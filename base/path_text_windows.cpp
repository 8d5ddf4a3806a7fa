#include "base/path_text.h"
#include "base/wide_text.h"

namespace tq {

std::filesystem::path utf8_path(std::string_view text) { return std::filesystem::path(wide_text(text)); }
std::string utf8_text(const std::filesystem::path& path) { return narrow_text(path.generic_wstring()); }

} // namespace tq
