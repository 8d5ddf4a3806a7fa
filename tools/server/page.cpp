#include "tools/server/page.h"
#include <algorithm>

namespace tq::server {

const PageFile* find_page_file(std::string_view path) {
    const auto files = page_files();
    const auto found = std::ranges::find(files, path == "/index.html" ? "/" : path, &PageFile::path);
    return found == files.end() ? nullptr : &*found;
}

std::optional<HttpReply> page_reply(const HttpRequest& request) {
    const PageFile* const file = find_page_file(request.path);
    if (!file) return std::nullopt;
    HttpReply reply{.type = std::string(file->type)};
    reply.headers = {{"ETag", std::string(file->etag)},
                     {"Cache-Control", std::string(page_cache_control)},
                     {"Content-Security-Policy", std::string(page_security_policy)},
                     {"Referrer-Policy", "no-referrer"}};
    if (request.header("if-none-match") == file->etag)
        reply.status = 304;
    else
        reply.body = file->bytes;
    return reply;
}

} // namespace tq::server
