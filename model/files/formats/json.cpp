#include "model/files/formats/json.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/path_text.h"
#include "model/files/formats/git_lfs.h"
#include <nlohmann/json.hpp>

namespace tq {

using nlohmann::json;

json read_json(std::string_view text, const std::string& subject, uint32_t max_depth) {
    return build_json<json>(text, subject, {.max_depth = max_depth});
}

json read_json_file(const std::filesystem::path& path, uint64_t max_bytes) {
    return read_json(read_text_file(path, max_bytes), utf8_text(path));
}

std::string read_text_file(const std::filesystem::path& path, uint64_t max_bytes) {
    const MappedFile file(path);
    if (file.bytes().size() > max_bytes) {
        fail("{} has {} bytes, more than the {} that such a file has at most", utf8_text(path), file.bytes().size(), max_bytes);
    }
    std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    refuse_lfs_pointer(text, utf8_text(path));
    std::string copy(text);
    check_mapped_files();
    return copy;
}

bool is_there(const std::filesystem::path& path) {
    std::error_code unknown;
    return std::filesystem::exists(path, unknown);
}

const char* kind_of(const json& value) {
    switch (value.type()) {
    case json::value_t::null: return "null";
    case json::value_t::object: return "an object";
    case json::value_t::array: return "a list";
    case json::value_t::string: return "a text";
    case json::value_t::boolean: return "a boolean";
    case json::value_t::number_integer:
    case json::value_t::number_unsigned: return "an integer";
    case json::value_t::number_float: return "a real number";
    default: return "nothing";
    }
}

} // namespace tq
