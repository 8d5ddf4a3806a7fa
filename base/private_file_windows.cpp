// A user's own directories are private on Windows.
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/private_file.h"
#include <fstream>

namespace tq {

void append_private(const std::filesystem::path& path, std::string_view bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::app);
    if (!file.write(bytes.data(), std::streamsize(bytes.size())).flush())
        fail("cannot write {}", printable(utf8_text(path), 200));
}

} // namespace tq
