// The files that --compare reads: JSON, or JSON lines, of results.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tq::bench {

// The fields of one result, with errors that name the file and the result.
class ResultFields {
  public:
    // Throws Error if it is not an object. `json` outlives this object.
    ResultFields(const nlohmann::ordered_json& json, std::string what);

    // Throw Error if the field is not there, or not of this kind.
    std::string text(const char* key) const;                   // printable
    double number(const char* key) const;                      // at least 0
    std::optional<double> maybe_number(const char* key) const; // nothing if it is missing or null
    uint32_t count(const char* key) const;                     // of tokens: up to 2^24
    std::vector<double> maybe_numbers(const char* key) const;  // each at least 0; empty if it is missing
    bool yes(const char* key) const;
    ResultFields object(const char* key) const;

    const nlohmann::ordered_json& json() const { return json_; }
    const std::string& what() const { return what_; }

  private:
    const nlohmann::ordered_json& json_;
    std::string what_;
};

struct ResultFile {
    std::string path;
    std::vector<nlohmann::ordered_json> results;

    std::string name() const; // of the path, printable
    std::string stem() const;
    // "result 3 of FILE"
    std::string describe(size_t result) const;
};

// Throws Error for more than 64 files, files that cannot be read or are not JSON, and files without a result.
std::vector<ResultFile> read_files(const std::vector<std::string>& paths);

} // namespace tq::bench
