// The client of POST /v1/prefill. The server sends an empty page each second while it computes, so silence tells a dead
// connection from a slow model: 5 s, and 30 s before the first byte, when the server may have to read its model for the
// fingerprint. The transfer's own timeout is therefore out of the way. Pages are parsed as they come and given on one by one;
// `receiver.page` may wait for room, which holds back the sender and does not count as silence.
#include "tools/tq-run/engine/prefill_client.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/hub/http.h"
#include "model/prefix/page_stream.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

using PrefillClock = std::chrono::steady_clock;

constexpr std::chrono::seconds prefill_connect_timeout{2};
constexpr std::chrono::seconds unused_timeout{3600};  // Silence ends what hangs
constexpr std::chrono::seconds max_silence{5};        // of a server that says every second that it is still there
constexpr std::chrono::seconds max_first_silence{30}; // it may read its model first, once

// Tells when a connection must be ended because it has said nothing for too long.
class Silence {
  public:
    void heard() { last_ = PrefillClock::now(), max_ = max_silence; }
    bool is_too_long() const { return PrefillClock::now() > last_ + max_; }
    auto max() const { return max_.count(); }

  private:
    PrefillClock::time_point last_ = PrefillClock::now();
    std::chrono::seconds max_ = max_first_silence;
};

std::string without_last_slash(std::string url) {
    while (url.ends_with('/')) url.pop_back();
    return url;
}

std::string body_of(const PageOrder& order, const OwnerTexts& owner) {
    return nlohmann::ordered_json{{"owner", owner}, {"known", order.known}, {"ids", order.ids}}.dump();
}

// The message in the body of an error, or its beginning.
std::string refusal_text(const HttpResult& result) {
    const auto body = nlohmann::json::parse(result.refusal, nullptr, false);
    const auto error = body.is_object() ? body.find("error") : body.end();
    const bool has_message = body.is_object() && error != body.end() && error->is_object() && error->contains("message") &&
                             error->at("message").is_string();
    return printable(has_message ? error->at("message").get<std::string>() : result.refusal.substr(0, 200), 1000);
}

void compute(const std::string& url, const std::string& key, const OwnerTexts& owner, const PageOrder& order,
             const PageReceiver& receiver) {
    HttpClient http(url, "", prefill_connect_timeout, unused_timeout);
    Silence silence;
    bool is_requested = true;
    PageStreamReader pages(order.page_bytes, [&](std::vector<std::byte> page) {
        is_requested = receiver.page(std::move(page));
        silence.heard(); // also after waiting for room
        return is_requested;
    });
    HttpSink sink;
    sink.begin = [&](const HttpHead&) {
        silence.heard();
        return true;
    };
    sink.body = [&](std::span<const std::byte> bytes) {
        silence.heard();
        return pages.push(bytes);
    };
    sink.keep_going = [&] {
        if (silence.is_too_long()) fail("it has said nothing for {} s", silence.max());
        return is_requested = is_requested && receiver.keep_going();
    };
    const HttpResult result = http.post(url + "/v1/prefill", key, body_of(order, owner), sink);
    if (!is_requested) return;
    if (result.end == HttpEnd::cut) fail("{}", result.problem);
    if (result.head.status == 404) fail("it has no /v1/prefill: it is no tq-run serve, or an older one");
    if (result.head.status != 200) fail("it says {}: {}", result.head.status, refusal_text(result));
    if (!pages.is_between_pages()) fail("it broke off within a page");
}

} // namespace

void check_prefill_address(const std::string& url) {
    const HttpClient http(url, "", prefill_connect_timeout, unused_timeout);
    const std::string_view shown = std::string_view(url).substr(0, url.find_first_of("?#")); // what follows may be secret
    if (shown.size() < url.size())
        fail("{} is followed by {}, so it is not the address of a server", printable(shown), url[shown.size()]);
}

PageComputer prefill_client(const std::string& url, const std::string& key, const OwnerTexts& owner) {
    return [url = without_last_slash(url), key, owner](const PageOrder& order, const PageReceiver& receiver) {
        compute(url, key, owner, order, receiver);
    };
}

} // namespace tq
