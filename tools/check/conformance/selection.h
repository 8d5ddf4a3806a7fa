// Which rows are run, by their names, and which are known to fail.
#pragma once
#include "tools/check/conformance/verdict.h"
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tq::conformance {

// The rows that are run. A pattern with * or ? describes whole names, any other text is a part of one, in any case; if it is a
// row's whole name, it means that row alone.
struct Selection {
    std::vector<std::string> filters = {}, excludes = {}; // patterns; no filters: all rows
    bool full = false;
    uint32_t shard = 1, shards = 1; // of the rows that patterns leave, in stretches of 16: every shards-th from the shard-th on
    std::optional<uint64_t> shuffle = {}; // the rows come in a random order, which the number decides; else in their own
    std::string subject = {};             // the text of a Subject (subject.h): of its rows instead of all

    bool every_row() const { return filters.empty() && excludes.empty() && shards == 1 && subject.empty(); }
};

// Returns for each name whether a pattern means it.
std::vector<bool> matches(const std::vector<std::string>& names, const std::vector<std::string>& patterns);
// Returns the patterns that mean none of the names.
std::vector<std::string> without_match(const std::vector<std::string>& names, const std::vector<std::string>& patterns);

// Reads a list of patterns, one a line; empty lines and lines that begin with # are left out. Throws Error.
std::vector<std::string> read_patterns(const std::filesystem::path& file);

// The rows that are known to fail, and how: lines "PATTERN,VERDICT", in the format of deqp-runner's baselines, with whole names
// or patterns of these.
class Expectations {
  public:
    Expectations() = default;
    explicit Expectations(const std::filesystem::path& file); // throws Error that names the line

    std::optional<Verdict> of(const std::string& row) const; // by the last line that means it
    // Returns the names and patterns that mean none of these rows.
    std::vector<std::string> unused(std::span<const std::string> rows) const;
    bool empty() const { return all_.empty(); }

  private:
    std::vector<std::pair<std::string, Verdict>> all_;
};

} // namespace tq::conformance
