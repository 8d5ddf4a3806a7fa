// std::filesystem::exists() answers no both for what is not there and for what the user may not see; only the error code tells.
#include "base/readable_directory.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"

namespace tq {

bool directory_is_there(const std::filesystem::path& path) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) std::filesystem::directory_iterator(path, error);
    if (error) fail("cannot read the directory {}: {}", printable(utf8_text(path), 300), error.message());
    return std::filesystem::exists(path, error);
}

} // namespace tq
