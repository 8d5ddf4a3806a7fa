// The log of a long measurement: lines of JSON, each with a checksum of itself. The first says what is measured; the others are
// finished parts in order. A run that was killed may leave half a line, which is cut off; a line that fails its checksum is an
// error, since what follows it may be wrong as well. The file is locked while it is written, so two runs cannot mix. Each line is
// flushed when it is added.
#include "tools/check/quality/run_log.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/json.h"
#include <fstream>
#include <span>
#include <system_error>

namespace tq::quality {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t max_bytes = 1 << 30;

std::string shown(const fs::path& path) { return printable(utf8_text(path), 300); }

std::string check_of(const json& line) {
    const std::string text = line.dump();
    return fmt::format("{:016x}", checksum(std::as_bytes(std::span(text))));
}

// Checks the line's checksum and returns the line without it.
json checked(json line, const std::string& where) {
    const auto check = line.is_object() ? line.find("check") : line.end();
    if (check == line.end()) return line;
    const json written = std::move(*check);
    line.erase(check);
    if (written != check_of(line))
        fail("{}: this line is damaged: delete it and all lines after it, and they are measured again", where);
    return line;
}

// Reads without a MappedFile, since Windows refuses to map a file that this program holds for writing.
std::string read_log(const fs::path& path) {
    std::error_code error;
    const uintmax_t bytes = fs::file_size(path, error);
    if (!error && bytes > max_bytes)
        fail("{} has {} bytes, more than the {} that a log has at most", shown(path), bytes, max_bytes);
    std::string text(error ? 0 : size_t(bytes), '\0');
    if (error || !std::ifstream(path, std::ios::binary).read(text.data(), std::streamsize(text.size())))
        fail("cannot read {}", shown(path));
    return text;
}

// Reads the file's whole lines; text after the last line end was never finished.
std::vector<json> read_lines(const fs::path& path, uintmax_t& whole_bytes) {
    const std::string text = read_log(path);
    std::vector<json> lines;
    size_t at = 0;
    for (size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
        const std::string where = fmt::format("{}, line {}", shown(path), lines.size() + 1);
        lines.push_back(checked(read_json(std::string_view(text).substr(at, end - at), where), where));
    }
    whole_bytes = at;
    return lines;
}

} // namespace

// Returns the parts in the file; it then ends with its last whole line.
std::vector<json> RunLog::go_on_with(const json& what) {
    uintmax_t whole_bytes = 0;
    std::vector<json> lines = read_lines(path_, whole_bytes);
    if (!lines.empty() && lines[0] != what)
        fail("{} is the log of another measurement ({}): name another file, or delete it", shown(path_),
             printable(lines[0].dump(), 400));
    std::error_code error;
    fs::resize_file(path_, whole_bytes, error);
    if (error) fail("cannot write {}: {}", shown(path_), error.message());
    return lines;
}

RunLog::RunLog(fs::path path, const json& what) : path_(std::move(path)) {
    if (path_.empty()) return;
    std::error_code error;
    if (is_there(path_) && !fs::is_regular_file(path_, error))
        fail("{} is not a regular file: name another with --log", shown(path_));
    lock_ = FileLock::try_take(path_, FileLock::Of::content);
    if (!lock_) fail("another tq-run is writing to {}: wait until it has ended, or name another file with --log", shown(path_));
    std::vector<json> lines;
    if (fs::file_size(path_, error) > 0) lines = go_on_with(what);
    file_.open(path_, std::ios::binary | std::ios::app);
    if (lines.empty())
        write(what);
    else
        parts_.assign(lines.begin() + 1, lines.end());
}

void RunLog::add(json part) {
    if (!path_.empty()) write(part);
    parts_.push_back(std::move(part));
}

void RunLog::write(json line) {
    line["check"] = check_of(line);
    file_ << line.dump() << '\n';
    file_.flush();
    if (!file_)
        fail("cannot write {}: check that its directory exists and is writable, and that the disk is not full", shown(path_));
}

} // namespace tq::quality
