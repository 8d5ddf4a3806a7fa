#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/hub/plain_file.h"
#include <cerrno>
#include <cstring>

namespace tq {

PlainFile open_plain_file(const std::filesystem::path& path) {
    namespace fs = std::filesystem;
    const std::string name = printable(utf8_text(path), 300);
    std::error_code error;
    const fs::file_status status = fs::symlink_status(path, error);
    if (fs::exists(status) && !fs::is_regular_file(status))
        fail("{} is a link or not a regular file, and tq-run has not made it: remove it", name);
    std::FILE* const file = ::_wfopen(path.c_str(), fs::exists(status) ? L"r+b" : L"w+b");
    if (file == nullptr) fail("cannot write {}: {}", name, std::strerror(errno));
    return PlainFile(file);
}

} // namespace tq
