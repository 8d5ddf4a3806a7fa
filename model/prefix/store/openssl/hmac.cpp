#include "model/prefix/store/hmac.h"
#include "base/ensure.h"
#include "model/prefix/page_signature.h"
#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace tq {

PageSigner hmac_signer(std::string key) {
    return [key = std::move(key)](std::span<const std::byte> bytes) {
        PageSignature signature;
        unsigned size = 0;
        const auto* done = HMAC(EVP_sha256(), key.data(), int(key.size()), reinterpret_cast<const unsigned char*>(bytes.data()),
                                bytes.size(), reinterpret_cast<unsigned char*>(signature.data()), &size);
        ENSURE(done && size == signature.size(), "HMAC-SHA256 has {} bytes", size);
        return signature;
    };
}

} // namespace tq
