// The hub names a large file by the SHA-256 of its bytes, and a small one, which lies in git itself, by git's object id: SHA-1
// over a prefix with the length, then the bytes. So the length must be known before the first byte, and is, from the listing.
#include "model/hub/digest.h"
#include "base/error.h"
#include <openssl/evp.h>

namespace tq {

struct Digest::Impl {
    const EVP_MD* kind;
    std::string prefix;
    std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context{EVP_MD_CTX_new(), EVP_MD_CTX_free};

    static void require(int ok) {
        if (ok != 1) fail("OpenSSL cannot compute a checksum of this kind: the download cannot be verified");
    }
};

Digest::Digest(const std::string& oid, uint64_t size) : impl_(std::make_unique<Impl>()) {
    const bool is_sha256 = oid.size() == 64;
    impl_->kind = is_sha256 ? EVP_sha256() : EVP_sha1();
    if (!is_sha256) impl_->prefix = fmt::format("blob {}", size) + '\0';
    restart();
}

Digest::~Digest() = default;

void Digest::restart() {
    Impl::require(EVP_DigestInit_ex(impl_->context.get(), impl_->kind, nullptr));
    update(std::as_bytes(std::span(impl_->prefix)));
}

void Digest::update(std::span<const std::byte> bytes) {
    Impl::require(EVP_DigestUpdate(impl_->context.get(), bytes.data(), bytes.size()));
}

std::string Digest::finish() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned count = 0;
    Impl::require(EVP_DigestFinal_ex(impl_->context.get(), bytes, &count));
    std::string text;
    for (unsigned i = 0; i < count; i++) text += fmt::format("{:02x}", bytes[i]);
    return text;
}

} // namespace tq
