// Sentences for people about something that may fail all the time: one in a while, so that a fault that lasts for days does not
// fill a log.
#pragma once
#include <chrono>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tq {

class RareWarnings {
  public:
    explicit RareWarnings(std::chrono::milliseconds pause) : pause_(pause) {}

    void add(std::string text) {
        const auto now = std::chrono::steady_clock::now();
        if (last_ && now < *last_ + pause_) {
            unsaid_++;
            return;
        }
        last_ = now;
        if (unsaid_ > 0) text += fmt::format(" ({} more problems of it were not reported)", unsaid_);
        unsaid_ = 0;
        warnings_.push_back(std::move(text));
    }
    std::vector<std::string> take() { return std::exchange(warnings_, {}); }

  private:
    const std::chrono::milliseconds pause_;
    std::vector<std::string> warnings_;
    std::optional<std::chrono::steady_clock::time_point> last_;
    uint64_t unsaid_ = 0; // since the last one
};

} // namespace tq
