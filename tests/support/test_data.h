#pragma once
#include <filesystem>

namespace tq {

// The repository's own test data: tests/data/README.md describes each file.
inline std::filesystem::path test_data(const char* name) {
    return std::filesystem::path(TQ_SOURCE_DIR) / "tests" / "data" / name;
}

} // namespace tq
