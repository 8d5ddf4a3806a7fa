// Checksums of the hub's files. curl/digest.cpp computes them with OpenSSL; a build without downloads does not check any.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tq {

class Digest {
  public:
    // The checksum of a file of `size` bytes whose object id is `oid`: SHA-256 of its bytes if the id has 64 digits, else
    // that of a git blob: SHA-1 of "blob SIZE", a zero byte and its bytes.
    Digest(const std::string& oid, uint64_t size);
    ~Digest();

    void restart();
    void update(std::span<const std::byte> bytes);
    std::string finish(); // as lower-case hexadecimal digits; then only restart() may follow

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace tq
