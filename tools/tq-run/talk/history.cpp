// The questions of earlier runs, for the Up key: one line each, with \n and \\ for line ends and backslashes, in a file that only
// its user can read. Questions are appended, so several chats at once mix their lines but lose none. Only the last MiB is read.
// When the file has twice that, the older half goes: what was read is written to a draft, which is renamed.
#include "tools/tq-run/talk/history.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/path_text.h"
#include "model/text/unicode.h"
#include <algorithm>
#include <fstream>

namespace tq {
namespace {

constexpr size_t kept_entries = 1000, max_entry_bytes = 64 << 10;
constexpr std::streamoff max_history_bytes = 1 << 20; // to read; once a file is twice as large, the older half goes

// Escapes the text to one line.
std::string escape(const std::string& text) {
    std::string result;
    for (const char c : text) result += c == '\n' ? "\\n" : c == '\\' ? "\\\\" : std::string(1, c);
    return result;
}

std::string unescape(const std::string& line) {
    std::string result;
    for (size_t i = 0; i < line.size(); ++i) {
        const bool escaped = line[i] == '\\' && i + 1 < line.size();
        result += !escaped ? line[i] : line[++i] == 'n' ? '\n' : line[i];
    }
    return result;
}

} // namespace

std::filesystem::path history_path() {
    for (const auto& [variable, below] :
         {std::pair{"XDG_DATA_HOME", "tq-run"}, {"LOCALAPPDATA", "tq-run"}, {"HOME", ".local/share/tq-run"}}) {
        if (const auto directory = environment_variable(variable)) return utf8_path(*directory) / below / "chat_history";
    }
    return {};
}

std::vector<std::string> read_history(const std::filesystem::path& path) {
    std::vector<std::string> entries;
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) return entries;
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    const std::streamoff size = file.tellg();
    file.seekg(std::max<std::streamoff>(0, size - max_history_bytes));
    std::string line;
    if (size > max_history_bytes) std::getline(file, line); // the rest of an entry
    while (std::getline(file, line))
        if (!line.empty() && line.size() <= 2 * max_entry_bytes && !find_invalid_utf8(line)) entries.push_back(unescape(line));
    if (entries.size() > kept_entries) entries.erase(entries.begin(), entries.end() - kept_entries);
    return entries;
}

// Appending is one write, so two chats at once do not mix their lines. The file is cut to its newer half only when it is twice as
// large as is read, so that this is rare.
void add_to_history(const std::filesystem::path& path, const std::string& text) {
    if (path.empty() || text.size() > max_entry_bytes) return;
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (std::filesystem::is_regular_file(path, error) &&
        std::streamoff(std::filesystem::file_size(path, error)) > 2 * max_history_bytes) {
        const auto latest = read_history(path);
        std::filesystem::path draft = path;
        draft += ".part";
        std::filesystem::remove(draft, error);
        std::string all;
        for (const std::string& entry : latest) all += escape(entry) + '\n';
        append_private(draft, all);
        std::filesystem::rename(draft, path);
    }
    append_private(path, escape(text) + '\n');
}

} // namespace tq
