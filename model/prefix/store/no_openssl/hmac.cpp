#include "model/prefix/store/hmac.h"
#include "base/error.h"
#include "model/prefix/page_signature.h"

namespace tq {

PageSigner hmac_signer(std::string) {
    fail("this build signs no pages, as OpenSSL was missing when it was configured (Debian has it in libssl-dev): configure it "
         "again with that, or leave --cache-shared-key out");
}

} // namespace tq
