// Functions on texts for tests.
#pragma once
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace tq::test {

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// All of a file's bytes; "" if there is none.
inline std::string slurp(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace tq::test
