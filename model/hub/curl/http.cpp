// HTTP by libcurl, for GET with redirections and ranges, and for POST. One handle serves a client's requests in turn and keeps
// its connections.
// Redirections are followed here, not by libcurl, for the sake of the token. The hub redirects large files to storage hosts with
// signed addresses. The token must not go there, so each target is parsed, and the header is sent only if scheme, host and port
// are the endpoint's. An endpoint with https is never left for http. Certificates are always checked, and there is no flag to
// leave that out. A stalled connection ends after stall_timeout below 1 byte/s, rather than after a total time: a large file may
// take hours. libcurl is C, so no exception may pass through it: callbacks store what is thrown (Reply::thrown), make libcurl
// stop, and perform() throws it again. The body of an error page is read for its message, and dropped beyond 64 KiB.
#include "model/hub/http.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/hub/http_head.h"
#include "model/hub/names.h"
#include <csignal>
#include <curl/curl.h>
#include <exception>

namespace tq {
namespace {

constexpr int max_redirections = 10;
constexpr size_t max_dropped_bytes = 64 << 10; // of the body of an error page
constexpr size_t max_refusal_bytes = 4 << 10;  // of its beginning, which is kept

struct Origin {
    std::string scheme, host, port;

    bool operator==(const Origin&) const = default;
    bool is_this_machine() const { return host == "localhost" || host == "127.0.0.1" || host == "[::1]"; }
};

std::string part_of(CURLU* url, CURLUPart part) {
    char* text = nullptr;
    if (curl_url_get(url, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return {};
    const std::string copy = text;
    curl_free(text);
    return copy;
}

// Throws Error when `url` is not a URL, not http or https, or contains a user name.
Origin origin_of(const std::string& url) {
    const std::unique_ptr<CURLU, void (*)(CURLU*)> parsed(curl_url(), curl_url_cleanup);
    if (!parsed || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK)
        fail("'{}' is not an address that can be fetched", printable(url));
    const Origin origin{lowercase(part_of(parsed.get(), CURLUPART_SCHEME)), lowercase(part_of(parsed.get(), CURLUPART_HOST)),
                        part_of(parsed.get(), CURLUPART_PORT)};
    if (origin.scheme != "https" && origin.scheme != "http")
        fail("'{}' is not fetched: it is neither https nor http", printable(url));
    if (!part_of(parsed.get(), CURLUPART_USER).empty() || !part_of(parsed.get(), CURLUPART_PASSWORD).empty())
        fail("an address on {} contains a user name or a password, so it is not fetched: put the token into HF_TOKEN instead",
             origin.host);
    return origin;
}

// Initialises libcurl, once per process.
void start_curl() {
    static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
    if (started != CURLE_OK) fail("libcurl does not start: {}", curl_easy_strerror(started));
}

// The reply that is being received: the state of libcurl's callbacks.
struct Reply {
    const HttpSink& sink;
    HttpHead head;
    std::string refusal;
    size_t dropped_bytes = 0;
    bool begun = false, stopped = false, dropped = false;
    std::exception_ptr thrown; // exceptions must not pass through libcurl

    explicit Reply(const HttpSink& sink) : sink(sink) {}

    template <class Ask> bool ask(Ask question) {
        try {
            stopped |= !question();
        } catch (...) {
            thrown = std::current_exception();
        }
        return !stopped && !thrown;
    }
    bool is_success() const { return head.status >= 200 && head.status < 300; }
    bool begin() {
        if (begun || !is_success()) return true;
        begun = true;
        return ask([&] { return sink.begin(head); });
    }
};

size_t on_header(char* data, size_t size, size_t count, void* reply) {
    read_header(static_cast<Reply*>(reply)->head, {data, size * count});
    return size * count;
}

size_t on_body(char* data, size_t size, size_t count, void* context) {
    Reply& reply = *static_cast<Reply*>(context);
    const size_t bytes = size * count;
    if (!reply.is_success()) {
        reply.refusal.append(data, std::min(bytes, max_refusal_bytes - reply.refusal.size()));
        reply.dropped_bytes += bytes;
        reply.dropped = reply.dropped_bytes > max_dropped_bytes;
        return reply.dropped ? 0 : bytes;
    }
    if (!reply.begin()) return 0;
    return reply.ask([&] { return reply.sink.body(std::as_bytes(std::span(data, bytes))); }) ? bytes : 0;
}

int on_progress(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    Reply& reply = *static_cast<Reply*>(context);
    return reply.ask([&] { return reply.sink.keep_going(); }) ? 0 : 1;
}

// Throws for failures that another attempt cannot fix.
[[noreturn]] void refuse(CURLcode code, const std::string& host, const std::string& reason) {
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
        fail("the certificate of {} could not be verified ({}): install the system's CA certificates (package ca-certificates), "
             "and check the clock and the proxy, if there is one",
             host, reason);
    fail("cannot fetch from {}: {}", host, reason);
}

bool is_hopeless(CURLcode code) {
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE || code == CURLE_URL_MALFORMAT ||
           code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_OUT_OF_MEMORY || code == CURLE_FAILED_INIT;
}

} // namespace

struct HttpClient::Impl {
    Origin endpoint;
    std::string authorization; // the header; empty: none
    std::chrono::seconds connect_timeout, stall_timeout;
    std::unique_ptr<CURL, void (*)(CURL*)> curl{nullptr, curl_easy_cleanup};

    HttpResult get_once(const std::string& url, const Origin& origin, uint64_t first_byte, const HttpSink& sink,
                        std::string& redirection);
    HttpResult perform(const Origin& origin, Reply& reply, const char* reason);
    void prepare(const std::string& url, uint64_t first_byte, Reply& reply, char* reason);
};

void HttpClient::Impl::prepare(const std::string& url, uint64_t first_byte, Reply& reply, char* reason) {
    CURL* c = curl.get();
    curl_easy_reset(c); // keeps connections
    curl_easy_setopt(c, CURLOPT_URL, url.c_str());
    curl_easy_setopt(c, CURLOPT_USERAGENT, "tq-run");
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L); // get() follows redirections itself, and checks their targets
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, long(connect_timeout.count()));
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, long(stall_timeout.count()));
    if (first_byte > 0) curl_easy_setopt(c, CURLOPT_RANGE, fmt::format("{}-", first_byte).c_str());
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, &reply);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, &reply);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, &reply);
}

HttpResult HttpClient::Impl::get_once(const std::string& url, const Origin& origin, uint64_t first_byte, const HttpSink& sink,
                                      std::string& redirection) {
    Reply reply(sink);
    char reason[CURL_ERROR_SIZE] = "";
    prepare(url, first_byte, reply, reason);
    // The body is compared with a checksum, so it must arrive in its stored encoding.
    std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(curl_slist_append(nullptr, "Accept-Encoding: identity"),
                                                               curl_slist_free_all);
    if (!authorization.empty() && origin == endpoint) curl_slist_append(headers.get(), authorization.c_str());
    curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());

    HttpResult result = perform(origin, reply, reason);
    if (result.end != HttpEnd::complete) return result;
    char* location = nullptr;
    curl_easy_getinfo(curl.get(), CURLINFO_REDIRECT_URL, &location);
    if (location) redirection = location;
    return result;
}

// An empty body calls no callback, so begin() is called here for a success that had none.
// Three ends are told apart. A stop by the sink is no failure. A transfer that broke off is `cut`, and another attempt may
// help, unless the reason is one of is_hopeless(). All else is complete, whatever its status.
HttpResult HttpClient::Impl::perform(const Origin& origin, Reply& reply, const char* reason) {
    const CURLcode code = curl_easy_perform(curl.get());
    if (reply.thrown) std::rethrow_exception(reply.thrown);
    if (reply.stopped || (code == CURLE_OK && !reply.begin())) {
        if (reply.thrown) std::rethrow_exception(reply.thrown);
        return {reply.head, HttpEnd::stopped, {}, {}};
    }
    if (code != CURLE_OK && !reply.dropped) {
        const std::string why = printable(*reason ? reason : curl_easy_strerror(code), 200);
        if (is_hopeless(code)) refuse(code, origin.host, why);
        return {reply.head, HttpEnd::cut, why, {}};
    }
    return {reply.head, HttpEnd::complete, {}, std::move(reply.refusal)};
}

HttpClient::HttpClient(const std::string& endpoint, const std::string& token, std::chrono::seconds connect_timeout,
                       std::chrono::seconds stall_timeout)
    : impl_(std::make_unique<Impl>()) {
    start_curl();
    impl_->endpoint = origin_of(endpoint);
    for (const char c : token)
        if (c <= ' ' || c > '~')
            fail("the access token contains an invalid character: check HF_TOKEN or --hf-token"); // never show it
    const bool is_private = impl_->endpoint.scheme == "https" || impl_->endpoint.is_this_machine();
    if (!token.empty() && is_private) impl_->authorization = "Authorization: Bearer " + token;
    impl_->connect_timeout = connect_timeout;
    impl_->stall_timeout = stall_timeout;
    impl_->curl.reset(curl_easy_init());
    if (!impl_->curl) fail("libcurl ran out of memory");
}

HttpClient::~HttpClient() = default;

HttpResult HttpClient::post(const std::string& url, const std::string& key, const std::string& body, const HttpSink& sink) {
#ifdef SIGPIPE
    sigset_t broken_pipe; // OpenSSL writes to closed connections without MSG_NOSIGNAL
    sigemptyset(&broken_pipe);
    sigaddset(&broken_pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
#endif
    const Origin origin = origin_of(url);
    Reply reply(sink);
    char reason[CURL_ERROR_SIZE] = "";
    impl_->prepare(url, 0, reply, reason);
    std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(curl_slist_append(nullptr, "Content-Type: application/json"),
                                                               curl_slist_free_all);
    curl_slist_append(headers.get(), "Expect:"); // the body is sent at once
    for (const char c : key)
        if (c <= ' ' || c > '~') fail("the key for {} contains a character that is not sent", origin.host); // never show it
    if (!key.empty()) curl_slist_append(headers.get(), ("Authorization: Bearer " + key).c_str());
    curl_easy_setopt(impl_->curl.get(), CURLOPT_HTTPHEADER, headers.get());
    curl_easy_setopt(impl_->curl.get(), CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(body.size()));
    curl_easy_setopt(impl_->curl.get(), CURLOPT_POSTFIELDS, body.data());
    return impl_->perform(origin, reply, reason);
}

bool HttpClient::sends_token() const { return !impl_->authorization.empty(); }

HttpResult HttpClient::get(const std::string& url, uint64_t first_byte, const HttpSink& sink) {
    std::string here = url;
    for (int redirections = 0;; redirections++) {
        const Origin origin = origin_of(here);
        if (origin.scheme == "http" && impl_->endpoint.scheme == "https")
            fail("{} redirects to '{}', which is not encrypted, so it is not fetched", impl_->endpoint.host, printable(here));
        std::string redirection;
        HttpResult result = impl_->get_once(here, origin, first_byte, sink, redirection);
        if (redirection.empty()) return result;
        if (redirections == max_redirections)
            fail("{} redirects more than {} times, so it is not fetched", impl_->endpoint.host, max_redirections);
        here = std::move(redirection);
    }
}

} // namespace tq
