#include "quality/run_log.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/formats/json.h"
#include <system_error>

namespace tq::quality {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t most_bytes = 1 << 30;

std::string shown(const fs::path& path) { return printable(path.string(), 300); }

// Its whole lines; what stands behind the last line end was never finished.
std::vector<json> read_lines(const fs::path& path, uintmax_t& whole_bytes) {
    const std::string text = read_text_file(path, most_bytes);
    std::vector<json> lines;
    size_t at = 0;
    for (size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
        lines.push_back(
            read_json(std::string_view(text).substr(at, end - at), fmt::format("{}, line {}", shown(path), lines.size() + 1)));
    whole_bytes = at;
    return lines;
}

} // namespace

RunLog::RunLog(fs::path path, const json& what) : path_(std::move(path)) {
    if (path_.empty()) return;
    std::error_code error;
    std::vector<json> lines;
    if (is_there(path_) && fs::file_size(path_, error) > 0) {
        uintmax_t whole_bytes = 0;
        lines = read_lines(path_, whole_bytes);
        if (!lines.empty() && lines[0] != what)
            fail("{} is of another measurement ({}): name another file, or remove it", shown(path_),
                 printable(lines[0].dump(), 400));
        fs::resize_file(path_, whole_bytes, error);
        if (error) fail("cannot write {}: {}", shown(path_), error.message());
    }
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

void RunLog::write(const json& line) {
    file_ << line.dump() << '\n';
    file_.flush();
    if (!file_) fail("cannot write {}: is the directory there and writable, and the disk not full?", shown(path_));
}

} // namespace tq::quality
