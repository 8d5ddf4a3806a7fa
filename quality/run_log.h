// The JSON lines of a measurement that takes long: the first says what is measured, each other one is a finished part. A file
// that is there is gone on with, so that no part is measured twice.
#pragma once
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace tq::quality {

class RunLog {
  public:
    // Without a path nothing is kept. Throws Error when the file is of another measurement (`what` differs), is broken anywhere
    // but in its last line (which an end of power may have cut; it goes), or cannot be written.
    RunLog(std::filesystem::path path, const nlohmann::json& what);

    const std::vector<nlohmann::json>& parts() const { return parts_; }
    void add(nlohmann::json part); // written at once. Throws Error

  private:
    void write(const nlohmann::json& line);

    std::filesystem::path path_;
    std::ofstream file_;
    std::vector<nlohmann::json> parts_;
};

} // namespace tq::quality
