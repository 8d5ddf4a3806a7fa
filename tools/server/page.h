// The page at /, whose files are built into the program: no file is read from the disk, nothing comes from another host.
#pragma once
#include "tools/server/http.h"
#include <optional>
#include <span>
#include <string_view>

namespace tq::server {

struct PageFile {
    std::string_view path;  // "/style.css"; the page itself is "/"
    std::string_view type;  // for Content-Type
    std::string_view etag;  // of the bytes, in its quotes
    std::string_view bytes; // the whole file
};

std::span<const PageFile> page_files();
// The file at a path without its query, or null. To be sent with the headers below; a request whose If-None-Match is the etag is
// answered with 304.
const PageFile* find_page_file(std::string_view path);
// Returns the reply to a request for a file, 304 if the client has it; nullopt if the page has no such file.
std::optional<HttpReply> page_reply(const HttpRequest& request);

inline constexpr std::string_view page_cache_control = "no-cache";
// The page makes nodes, never HTML from text: browsers that know trusted types refuse the latter.
inline constexpr std::string_view page_security_policy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

} // namespace tq::server
