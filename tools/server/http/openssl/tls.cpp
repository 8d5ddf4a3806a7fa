// TLS by OpenSSL on sockets that do not block. Each call returns as Socket's do: bytes, 0 if it would block, -1 at the end. A
// read may have to wait until the socket can be written to, and a write until it can be read (handshake messages); wants_write()
// says which, after every call.
// Renegotiation is off, since it costs a server more than a client. OpenSSL's queue of errors belongs to the thread, and the next
// connection on it would read what this one left: so every call that may fail clears it.
// After an error other than close_notify, SSL_shutdown must not be called (`failed_`).
#include "tools/server/http/tls.h"
#include "base/error.h"
#include "base/printable.h"
#include <csignal>
#include <openssl/err.h>
#include <openssl/ssl.h>

namespace tq::server {
namespace {

std::string openssl_reason() {
    const unsigned long code = ::ERR_get_error();
    ::ERR_clear_error();
    const char* const reason = code == 0 ? nullptr : ::ERR_reason_error_string(code);
    return reason ? reason : "unknown error";
}

class OpensslSession final : public TlsSession {
  public:
    // `host`: of the server that a client reaches; empty: this is the server.
    OpensslSession(SSL_CTX* context, const Socket& socket, const std::string& host) : ssl_(::SSL_new(context), ::SSL_free) {
        if (!ssl_) fail("TLS: {}", openssl_reason());
        ::SSL_set_fd(ssl_.get(), int(socket.handle()));
        if (host.empty()) {
            ::SSL_set_accept_state(ssl_.get());
            return;
        }
        ::SSL_set_connect_state(ssl_.get());
        if (::SSL_set1_host(ssl_.get(), host.c_str()) != 1 || ::SSL_set_tlsext_host_name(ssl_.get(), host.c_str()) != 1)
            fail("TLS to {}: {}", printable(host), openssl_reason());
    }

    long handshake() override { return result(::SSL_do_handshake(ssl_.get())); }
    long read(char* bytes, size_t size) override {
        return result(::SSL_read(ssl_.get(), bytes, int(std::min<size_t>(size, 1 << 30))));
    }
    long write(const char* bytes, size_t size) override {
        return result(::SSL_write(ssl_.get(), bytes, int(std::min<size_t>(size, 1 << 30))));
    }
    bool wants_write() const override { return wants_write_; }
    void finish_writing() override {
        if (!failed_ && ::SSL_is_init_finished(ssl_.get())) ::SSL_shutdown(ssl_.get());
        ::ERR_clear_error();
    }

  private:
    long result(int n) {
        wants_write_ = false;
        if (n > 0) return n;
        const int error = ::SSL_get_error(ssl_.get(), n);
        ::ERR_clear_error();
        wants_write_ = error == SSL_ERROR_WANT_WRITE;
        if (wants_write_ || error == SSL_ERROR_WANT_READ) return 0;
        failed_ = error != SSL_ERROR_ZERO_RETURN;
        return -1;
    }

    std::unique_ptr<SSL, decltype(&::SSL_free)> ssl_;
    bool wants_write_ = false, failed_ = false;
};

class OpensslTls final : public Tls {
  public:
    // `host`: as OpensslSession's.
    OpensslTls(const SSL_METHOD* method, const std::string& host = {})
        : context_(::SSL_CTX_new(method), ::SSL_CTX_free), host_(host) {
        if (!context_) fail("TLS cannot be used: {}", openssl_reason());
        ::SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
        ::SSL_CTX_set_options(context_.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
        ::SSL_CTX_set_mode(context_.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
#ifdef SIGPIPE
        std::signal(SIGPIPE, SIG_IGN); // OpenSSL writes to closed connections without MSG_NOSIGNAL
#endif
    }
    void use_certificate(const std::string& certificate_file, const std::string& key_file) {
        ::SSL_CTX_set_default_passwd_cb(context_.get(), [](char*, int, int, void*) { return 0; }); // else it asks the terminal
        if (::SSL_CTX_use_certificate_chain_file(context_.get(), certificate_file.c_str()) != 1)
            fail("{} is not a readable certificate in PEM format: {}", printable(certificate_file), openssl_reason());
        if (::SSL_CTX_use_PrivateKey_file(context_.get(), key_file.c_str(), SSL_FILETYPE_PEM) != 1)
            fail("{} is not, in PEM format, the private key of the certificate in {}: {}", printable(key_file),
                 printable(certificate_file), openssl_reason());
    }
    void trust_as_the_system() {
        ::SSL_CTX_set_default_verify_paths(context_.get());
        ::SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    }
    std::unique_ptr<TlsSession> session(const Socket& socket) override {
        return std::make_unique<OpensslSession>(context_.get(), socket, host_);
    }

  private:
    std::unique_ptr<SSL_CTX, decltype(&::SSL_CTX_free)> context_;
    const std::string host_;
};

} // namespace

std::unique_ptr<Tls> open_tls(const std::string& certificate_file, const std::string& key_file) {
    auto tls = std::make_unique<OpensslTls>(::TLS_server_method());
    tls->use_certificate(certificate_file, key_file);
    return tls;
}

std::unique_ptr<Tls> open_client_tls(const std::string& host) {
    auto tls = std::make_unique<OpensslTls>(::TLS_client_method(), host);
    tls->trust_as_the_system();
    return tls;
}

} // namespace tq::server
