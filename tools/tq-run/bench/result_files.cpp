// Files of results as JSON: one document, or one for each line. Both kinds are told apart by the first line: of JSON lines it
// ends with "}". ResultFields reads fields of a file that anybody may have written: a missing or wrong field is an error that
// names the file and the result; numbers are finite and at least 0; texts are made printable.
#include "tools/tq-run/bench/result_files.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/config.h"
#include "model/files/formats/json.h"
#include "tools/tq-run/cli/json_input.h"
#include <algorithm>
#include <cmath>
#include <filesystem>

namespace tq::bench {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t max_file_bytes = size_t(64) << 20, max_files = 64;

// A file of JSON is one document; of JSON lines, one each.
std::vector<Json> documents(const std::string& file) {
    const std::string content = read_text_file(utf8_path(file), max_file_bytes);
    const std::string_view text = content;
    const std::string_view first = text.substr(0, text.find('\n'));
    std::vector<Json> out;
    if (first.size() < 2 || first.back() != '}') return {parse_json(text, printable(file))};
    for (size_t at = 0, line = 1; at < text.size(); line++) {
        const size_t end = std::min(text.find('\n', at), text.size());
        if (end > at) out.push_back(parse_json(text.substr(at, end - at), fmt::format("{}, line {}", printable(file), line)));
        at = end + 1;
    }
    return out;
}

} // namespace

ResultFields::ResultFields(const Json& json, std::string what) : json_(json), what_(std::move(what)) {
    if (!json.is_object()) fail("{} is not a JSON object", what_);
}

std::string ResultFields::text(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end() || !found->is_string())
        fail("{} has no string \"{}\": it was not written by tq-run bench", what_, key);
    return printable(found->get<std::string>(), 100);
}

double ResultFields::number(const char* key) const {
    const auto value = maybe_number(key);
    if (!value) fail("{} has no number \"{}\": it was not written by tq-run bench", what_, key);
    return *value;
}

std::optional<double> ResultFields::maybe_number(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) return std::nullopt;
    const double value = found->is_number() ? found->get<double>() : -1;
    if (!(value >= 0) || !std::isfinite(value)) fail("{} has a \"{}\" that is not a number of at least 0", what_, key);
    return value;
}

uint32_t ResultFields::count(const char* key) const {
    const double value = number(key);
    if (value != std::floor(value) || value > double(max_context))
        fail("{} has a \"{}\" that is not a number of tokens", what_, key);
    return uint32_t(value);
}

std::vector<double> ResultFields::maybe_numbers(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) return {};
    std::vector<double> out;
    if (found->is_array())
        for (const Json& one : *found) out.push_back(one.is_number() ? one.get<double>() : -1);
    const bool good = found->is_array() && std::ranges::all_of(out, [](double v) { return v >= 0 && std::isfinite(v); });
    if (!good) fail("{} has \"{}\" that are not a list of numbers of at least 0", what_, key);
    return out;
}

bool ResultFields::yes(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end() || !found->is_boolean()) fail("{} has no \"{}\" that is true or false", what_, key);
    return found->get<bool>();
}

ResultFields ResultFields::object(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) fail("{} has no \"{}\": it was not written by tq-run bench", what_, key);
    return {*found, fmt::format("\"{}\" of {}", key, what_)};
}

std::string ResultFile::name() const { return printable(path); }
std::string ResultFile::stem() const { return printable(utf8_text(utf8_path(path).stem()), 40); }
std::string ResultFile::describe(size_t result) const { return fmt::format("result {} of {}", result + 1, name()); }

std::vector<ResultFile> read_files(const std::vector<std::string>& paths) {
    if (paths.size() > max_files) fail("--compare takes at most {} files, not {}", max_files, paths.size());
    std::vector<ResultFile> out;
    for (const std::string& path : paths) {
        ResultFile& file = out.emplace_back(ResultFile{path, {}});
        for (Json& document : documents(path))
            if (document.is_array())
                file.results.insert(file.results.end(), document.begin(), document.end());
            else
                file.results.push_back(std::move(document));
        if (file.results.empty()) fail("{} has no results of tests", file.name());
    }
    return out;
}

} // namespace tq::bench
