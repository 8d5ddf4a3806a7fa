#include "tools/server/page.h"
#include <algorithm>

namespace tq::server {

const PageFile* find_page_file(std::string_view path) {
    const auto files = page_files();
    const auto found = std::ranges::find(files, path == "/index.html" ? "/" : path, &PageFile::path);
    return found == files.end() ? nullptr : &*found;
}

} // namespace tq::server
