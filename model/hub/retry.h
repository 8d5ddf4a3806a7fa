// Decides after a failed request: try again, after a delay, or tell the user what to do.
#pragma once
#include "model/hub/http.h"
#include "model/hub/hub.h"

namespace tq {

// Thrown when the hub cannot be reached, or does not work, now: the cache's content may be used instead.
struct Unreachable : Error {
    Unreachable(const std::string& what, std::string to_do) : Error(what), remedy(std::move(to_do)) {}
    std::string remedy; // advice if the cache has no copy
};

class Retry {
  public:
    // `what`: the name of the requested item, for messages; it is in `repository`.
    Retry(const HubOptions& options, bool has_token, std::string repository, std::string what);

    // Returns true if the reply is a success. Otherwise returns false when it is time for another attempt, or throws:
    // Unreachable after too many, Error when none would help, DownloadStopped when `keep_going` returns false. `progressed`:
    // the attempt made progress.
    bool succeeded(const HttpResult& result, bool progressed, const std::function<bool()>& keep_going);

  private:
    [[noreturn]] void refuse(const HttpResult& result) const;
    void wait(std::chrono::milliseconds time, const std::function<bool()>& keep_going) const;

    const HubOptions& options_;
    const bool has_token_;
    const std::string repository_, what_;
    int failures_ = 0;
};

} // namespace tq
