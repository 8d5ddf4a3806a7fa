#include "model/files/formats/json.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/path_text.h"
#include "model/files/formats/git_lfs.h"
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

namespace tq {

using nlohmann::json;

json read_json(std::string_view text, const std::string& subject, uint32_t max_depth) {
    return build_json<json>(text, subject, {.max_depth = max_depth});
}

json read_json_file(const std::filesystem::path& path, uint64_t max_bytes) {
    return read_json(read_text_file(path, max_bytes), utf8_text(path));
}

namespace {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

// Whether it is a pipe that this process was started with, such as a shell's `-f <(git diff)`. Another pipe, such as one among a
// model's files, is not read: nobody may ever write into it.
bool is_own_pipe(const std::filesystem::path& path) {
    const std::string name = utf8_text(path);
    const auto is_in = [&](const char* directory) { return name.starts_with(directory); };
    std::error_code unknown;
    return (name == "/dev/stdin" || is_in("/dev/fd/") || is_in("/proc/self/fd/")) && std::filesystem::is_fifo(path, unknown);
}

std::string read_pipe(const std::filesystem::path& path, uint64_t max_bytes) {
    std::ifstream pipe(path, std::ios::binary);
    std::string text;
    std::vector<char> block(65536);
    do {
        pipe.read(block.data(), std::streamsize(block.size()));
        text.append(block.data(), size_t(pipe.gcount()));
        if (text.size() > max_bytes) fail("{} has more than the {} bytes that it may have", utf8_text(path), max_bytes);
    } while (pipe);
    if (pipe.bad() || !pipe.eof()) fail("cannot read {}", utf8_text(path));
    return text;
}

} // namespace

std::string read_text_file(const std::filesystem::path& path, uint64_t max_bytes) {
    if (is_own_pipe(path)) {
        static std::mutex mutex;
        static std::map<std::filesystem::path, std::string> texts; // a pipe can be read once, and some flags are read twice
        const std::lock_guard lock(mutex);
        auto found = texts.find(path);
        if (found == texts.end()) found = texts.emplace(path, read_pipe(path, max_bytes)).first;
        return found->second.substr(found->second.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
    }
    const MappedFile file(path);
    if (file.bytes().size() > max_bytes) {
        fail("{} has {} bytes, more than the {} that such a file has at most", utf8_text(path), file.bytes().size(), max_bytes);
    }
    std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
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
