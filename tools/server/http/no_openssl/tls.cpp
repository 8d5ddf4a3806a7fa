// A build without OpenSSL has no TLS.
#include "tools/server/http/tls.h"
#include "base/error.h"

namespace tq::server {

std::unique_ptr<Tls> open_tls(const std::string&, const std::string&) {
    fail("this build has no TLS, as OpenSSL was missing when it was configured (Debian has it in libssl-dev): leave out "
         "--ssl-cert-file and --ssl-key-file, and put a proxy with TLS in front");
}

std::unique_ptr<Tls> open_client_tls(const std::string&) {
    fail("this build reaches no https address, as OpenSSL was missing when it was configured (Debian has it in libssl-dev)");
}

} // namespace tq::server
