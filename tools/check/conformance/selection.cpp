// Which rows run: filters that are a row's whole name, a pattern with * and ?, or a part of the name; lists in files;
// expectations. A whole name is looked up first, so a name with brackets or stars means one row. Matching a pattern goes back to
// the last * only, which is enough and takes no exponential time for hostile patterns.
#include "tools/check/conformance/selection.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/text.h"
#include "model/files/formats/json.h"
#include "runtime/capabilities.h"
#include <algorithm>
#include <map>

namespace tq::conformance {
namespace {

constexpr uint64_t max_list_bytes = 16u << 20;

bool is_glob(const std::string& pattern) { return pattern.find_first_of("*?") != std::string::npos; }

// Both in lower case. * stands for any text, ? for one character; takes time for each pair of a * and a character at most.
// After a mismatch the last * takes one character more, and the pattern behind it begins anew. Earlier stars need not be tried
// again: whatever they could take, the last one could take as well.
bool matches_glob(std::string_view text, std::string_view pattern) {
    size_t t = 0, p = 0, star = std::string_view::npos, begin = 0;
    while (t < text.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            begin = t;
        } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
            p++, t++;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            t = ++begin;
        } else {
            return false;
        }
    }
    return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::vector<std::string> lines_of(const std::filesystem::path& file) {
    std::vector<std::string> lines = split(read_text_file(file, max_list_bytes), "\n");
    for (std::string& line : lines) {
        line.erase(line.find_last_not_of(" \t\r") + 1);
        line.erase(0, line.find_first_not_of(" \t"));
        if (line.starts_with('#')) line.clear();
    }
    return lines;
}

// Calls see(pattern, name) for each pair that matches.
template <class See>
void for_each_match(const std::vector<std::string>& names, const std::vector<std::string>& patterns, See see) {
    std::map<std::string_view, size_t> whole;
    std::vector<std::string> lower;
    for (size_t i = 0; i < names.size(); i++) whole.emplace(names[i], i);
    for (size_t p = 0; p < patterns.size(); p++) {
        if (const auto found = whole.find(patterns[p]); found != whole.end()) {
            see(p, found->second);
            continue;
        }
        if (lower.empty())
            for (const std::string& name : names) lower.push_back(lowercase(name));
        const std::string pattern = lowercase(patterns[p]);
        for (size_t i = 0; i < names.size(); i++)
            if (is_glob(pattern) ? matches_glob(lower[i], pattern) : lower[i].find(pattern) != std::string::npos) see(p, i);
    }
}

} // namespace

std::vector<bool> matches(const std::vector<std::string>& names, const std::vector<std::string>& patterns) {
    std::vector<bool> found(names.size(), false);
    for_each_match(names, patterns, [&](size_t, size_t name) { found[name] = true; });
    return found;
}

std::vector<std::string> without_match(const std::vector<std::string>& names, const std::vector<std::string>& patterns) {
    std::vector<bool> found(patterns.size(), false);
    for_each_match(names, patterns, [&](size_t pattern, size_t) { found[pattern] = true; });
    std::vector<std::string> missing;
    for (size_t i = 0; i < patterns.size(); i++)
        if (!found[i]) missing.push_back(patterns[i]);
    return missing;
}

std::vector<std::string> read_patterns(const std::filesystem::path& file) {
    std::vector<std::string> patterns = lines_of(file);
    std::erase(patterns, "");
    return patterns;
}

Expectations::Expectations(const std::filesystem::path& file) {
    const std::vector<std::string> lines = lines_of(file);
    for (size_t i = 0; i < lines.size(); i++) {
        if (lines[i].empty()) continue;
        const size_t comma = lines[i].rfind(',');
        const auto verdict = comma == std::string::npos ? std::nullopt : parse_verdict(lines[i].substr(comma + 1));
        if (!verdict || !is_failure(*verdict) || comma == 0)
            fail("line {} of {} is no row and its failure, such as \"{}\": wrong, crashed, hung, device lost or error", i + 1,
                 printable(utf8_text(file), 200), "embed | Q4_K, own | 32 columns, 1 tokens,wrong");
        all_.emplace_back(lines[i].substr(0, comma), *verdict);
    }
}

static bool means(const std::string& name, const std::string& row) {
    return name == row || (is_glob(name) && matches_glob(lowercase(row), lowercase(name)));
}

// The last line that fits a row counts, so that a file may say the rule first and its exceptions after it.
std::optional<Verdict> Expectations::of(const std::string& row) const {
    for (size_t i = all_.size(); i-- > 0;)
        if (means(all_[i].first, row)) return all_[i].second;
    return std::nullopt;
}

std::vector<std::string> Expectations::unused(std::span<const std::string> rows) const {
    std::vector<std::string> out;
    for (const auto& [name, verdict] : all_)
        if (std::ranges::none_of(rows, [&](const std::string& row) { return means(name, row); })) out.push_back(name);
    return out;
}

} // namespace tq::conformance
