// TLS on a socket that does not block. openssl/tls.cpp; no_openssl/tls.cpp if OpenSSL is missing.
#pragma once
#include "tools/server/http/sockets.h"
#include <memory>

namespace tq::server {

class TlsSession {
  public:
    virtual ~TlsSession() = default;
    virtual long handshake() = 0;                    // 1: done, 0: it would block, -1: it failed
    virtual long read(char* bytes, size_t size) = 0; // as Socket's
    virtual long write(const char* bytes, size_t size) = 0;
    virtual bool wants_write() const = 0; // the last of these waits until the socket can be written to
    virtual void finish_writing() = 0;
};

class Tls {
  public:
    virtual ~Tls() = default;
    // `socket` must outlive it.
    virtual std::unique_ptr<TlsSession> session(const Socket& socket) = 0;
};
// TLS of a client. It trusts the authorities that the system trusts, and only a certificate for `host`. Throws Error.
std::unique_ptr<Tls> open_client_tls(const std::string& host);
// TLS of a server. The PEM files have a certificate with its chain, and its key. Throws Error.
std::unique_ptr<Tls> open_tls(const std::string& certificate_file, const std::string& key_file);

} // namespace tq::server
