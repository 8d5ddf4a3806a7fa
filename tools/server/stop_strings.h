// Finds the strings that end an answer in a text that comes in parts.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tq::server {

class StopStrings {
  public:
    // No string may be empty.
    explicit StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {}

    // Returns the text that is certain to be shown: held back is the longest end that may begin a stop string. If there are
    // several stop strings, the one that is complete first counts, so that the result does not depend on how the text is divided.
    // Nothing follows one that was found.
    std::string push(std::string_view text);
    // The text is at its end: returns what was held back.
    std::string finish();

    const std::optional<std::string>& found() const { return found_; } // it is not in what was returned

  private:
    std::vector<std::string> strings_;
    std::string held_;
    std::optional<std::string> found_;
};

} // namespace tq::server
