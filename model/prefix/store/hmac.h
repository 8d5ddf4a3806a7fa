// The signer of pages: HMAC-SHA256 with a key from a file. openssl/hmac.cpp implements it; no_openssl/hmac.cpp reports that this
// build has no OpenSSL.
#pragma once
#include "model/prefix/page_signature.h"
#include "model/prefix/shared_store.h"
#include <string>

namespace tq {

// Throws Error if this build has no OpenSSL, with what to do.
PageSigner hmac_signer(std::string key);

// Reads a key: the file's bytes without white space around them. Throws Error if there are less than 16 or more than 4096, or
// the file cannot be read, or anybody may use it.
std::string read_page_key(const std::filesystem::path& path);

} // namespace tq
