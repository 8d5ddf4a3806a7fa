// The JSON lines of a measurement that takes long: the first says what is measured, each other one is a finished part. A file
// that is there is gone on with, so that no part is measured twice. Each line ends with a checksum of itself, "check", by which
// a changed digit is noticed; lines that have none, of older versions, are taken as they are.
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
    // (`what` differs), is broken anywhere but in its last line (which an end of power may have cut; it goes), or cannot be
    // written.
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
