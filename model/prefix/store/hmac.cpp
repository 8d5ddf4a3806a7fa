#include "model/prefix/store/hmac.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"

namespace tq {

std::string read_page_key(const std::filesystem::path& path) {
    constexpr size_t min = 16, max = 4096;
    namespace fs = std::filesystem;
    const std::string shown = printable(utf8_text(path), 200);
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::is_regular_file(status)) fail("the key file {} is not a file that can be read", shown);
#ifndef _WIN32
    if ((status.permissions() & fs::perms::others_all) != fs::perms::none)
        fail("anybody may use the key file {}: change that with chmod 600", shown);
#endif
    const auto bytes = read_bytes(path, max + 1);
    if (!bytes) fail("cannot read the key file {}", shown);
    std::string key(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    constexpr std::string_view white = " \t\r\n";
    key.erase(key.find_last_not_of(white) + 1);
    key.erase(0, std::min(key.find_first_not_of(white), key.size()));
    if (key.size() < min || bytes->size() > max)
        fail("the key file {} has {} bytes, but a key has {} to {}: make one with openssl rand -hex 32", shown, key.size(), min,
             max);
    return key;
}

} // namespace tq
