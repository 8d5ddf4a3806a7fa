#include "base/path_text.h"

namespace tq {

std::filesystem::path utf8_path(std::string_view text) { return std::filesystem::path(text); }
std::string utf8_text(const std::filesystem::path& path) { return path.native(); }

} // namespace tq
