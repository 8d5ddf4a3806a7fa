// Decides what to do after a failed request. Failures that pass by themselves (a connection that broke, 408, 429, 500, 502 to
// 504, and 416, after which the file begins anew) get another attempt, after a delay that doubles up to a minute, or as long as
// the server's Retry-After says. Others get an error at once, with advice for the reader: 401 and 403 mostly mean a missing
// token, or conditions that nobody has accepted. Failed attempts are counted in a row: one that brought bytes resets the count,
// so a download over a bad line ends only if nothing arrives any more.
#include "model/hub/retry.h"
#include "base/printable.h"
#include <algorithm>
#include <thread>

namespace tq {
namespace {

using namespace std::chrono;

constexpr milliseconds max_wait = 60s;

bool is_passing(int status) {
    return status == 408 || status == 416 || status == 429 || status == 500 || (status >= 502 && status <= 504);
}

std::string describe(const HttpResult& result) {
    if (result.end == HttpEnd::cut) return result.problem;
    return fmt::format("it answers with status {}", result.head.status);
}

} // namespace

Retry::Retry(const HubOptions& options, bool has_token, std::string repository, std::string what)
    : options_(options), has_token_(has_token), repository_(std::move(repository)), what_(std::move(what)) {}

bool Retry::succeeded(const HttpResult& result, bool progressed, const std::function<bool()>& keep_going) {
    const int status = result.head.status;
    const bool is_success = status >= 200 && status < 300;
    if (result.end == HttpEnd::complete && is_success) return true;
    if (result.end != HttpEnd::stopped && result.end != HttpEnd::cut && !is_passing(status)) refuse(result);
    failures_ = progressed ? 1 : failures_ + 1;
    const int attempts = options_.retries + 1;
    if (status == 429 && (result.head.retry_after > max_wait || failures_ >= attempts))
        throw Unreachable(fmt::format("{} has received too many requests from here", options_.endpoint),
                          fmt::format("wait {} and try again{}",
                                      result.head.retry_after > 0s ? fmt::format("{} s", result.head.retry_after.count())
                                                                   : std::string("some minutes"),
                                      has_token_ ? "" : "; with a token (HF_TOKEN) it allows more"));
    if (failures_ >= attempts)
        throw Unreachable(fmt::format("cannot fetch {} from {}{}: {}", what_, options_.endpoint,
                                      attempts == 1 ? "" : fmt::format(" after {} attempts", failures_), describe(result)),
                          "the same command continues where it stopped");
    if (options_.status)
        options_.status(fmt::format("attempt {} of {}: {}: {}", failures_ + 1, attempts, options_.endpoint, describe(result)));
    const milliseconds doubled = options_.retry_delay * (1 << std::min(failures_ - 1, 10));
    wait(std::clamp<milliseconds>(result.head.retry_after, std::min(doubled, max_wait), max_wait), keep_going);
    return false;
}

void Retry::refuse(const HttpResult& result) const {
    const std::string said =
        result.head.explanation.empty() ? "" : fmt::format(" (it says: {})", printable(result.head.explanation, 200));
    switch (result.head.status) {
    case 401:
        if (has_token_)
            fail("{} does not accept the access token for {}{}: check HF_TOKEN or --hf-token", options_.endpoint, what_, said);
        fail("{} gives no public access to {}{}: check the name; if it is right, create an access token at {}/settings/tokens "
             "and set HF_TOKEN to it",
             options_.endpoint, what_, said, options_.endpoint);
    case 403:
        fail("{} does not grant access to {}{}: accept the conditions on {}/{}{}", options_.endpoint, what_, said,
             options_.endpoint, repository_,
             has_token_ ? " with the account of the token" : ", then set HF_TOKEN to an access token");
    case 404: fail("{} has no {}{}: check the name", options_.endpoint, what_, said);
    default: fail("{} answers with status {} to the request for {}{}", options_.endpoint, result.head.status, what_, said);
    }
}

void Retry::wait(milliseconds time, const std::function<bool()>& keep_going) const {
    const auto deadline = steady_clock::now() + time;
    while (steady_clock::now() < deadline) {
        if (!keep_going()) throw DownloadStopped(fmt::format("stopped while waiting for {}", options_.endpoint));
        std::this_thread::sleep_for(std::min<nanoseconds>(50ms, deadline - steady_clock::now()));
    }
}

} // namespace tq
