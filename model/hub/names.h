// Names that come from the network or the command line and become paths and addresses.
#pragma once
#include <string>
#include <string_view>

namespace tq {

bool is_repository_name(std::string_view text); // user/repository
bool is_commit(std::string_view text);          // 40 hexadecimal digits
bool is_object_id(std::string_view text);       // of a git blob (SHA-1, 40 digits) or of a large file (SHA-256, 64 digits)

// True for a relative path that stays below its directory on every system: no "..", no empty part, no backslash, colon or
// control character, nor one that changes the direction of text.
bool is_safe_file_name(std::string_view text);

// Returns the text with everything but letters, digits and -._~/ as %XX.
std::string url_path(std::string_view text);

} // namespace tq
