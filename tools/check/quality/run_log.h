// The JSON lines of a long measurement: the first describes the measurement, each other one is a finished part. An existing
// file is continued, so that no part is measured twice. Each line ends with a checksum of itself, "check", which detects a
// changed digit; lines without one, from older versions, are accepted.
#pragma once
#include "base/file_system.h"
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace tq::quality {

class RunLog {
  public:
    // Without a path nothing is kept. Throws Error when another process is writing to the file, or it is of another measurement
    // (`what` differs), is malformed anywhere but in its last line (which a power failure may have cut; it is dropped), or
    // cannot be written.
    RunLog(std::filesystem::path path, const nlohmann::json& what);

    const std::vector<nlohmann::json>& parts() const { return parts_; }
    void add(nlohmann::json part); // written at once. Throws Error

  private:
    std::vector<nlohmann::json> go_on_with(const nlohmann::json& what);
    void write(nlohmann::json line);

    std::filesystem::path path_;
    std::unique_ptr<FileLock> lock_; // no other process writes to it
    std::ofstream file_;
    std::vector<nlohmann::json> parts_;
};

} // namespace tq::quality
