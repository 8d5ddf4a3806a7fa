// What a failed request means: try again, after a while, or tell the user what to do.
#pragma once
#include "model/hub/http.h"
#include "model/hub/hub.h"

namespace tq {

// The hub cannot be reached, or does not work, now: what is in the cache may do instead.
struct Unreachable : Error {
    Unreachable(const std::string& what, std::string to_do) : Error(what), remedy(std::move(to_do)) {}
    std::string remedy; // what helps where nothing is in the cache
};

class Retry {
  public:
    // `what`: the thing that is fetched, for messages; `repository` has it.
    Retry(const HubOptions& options, bool has_token, std::string repository, std::string what);

    // Whether the reply is a success. Otherwise returns false when it is time for another attempt, or throws: Unreachable after
    // too many, Error when none would help, DownloadStopped when `keep_going` says so. `progressed`: the attempt brought
    // something.
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
