// Asks another tq-run server for the pages of prompts: POST /v1/prefill.
#pragma once
#include "model/prefix/owner.h"
#include "model/prefix/remote_pages.h"
#include <string>

namespace tq {

// Throws Error if the address is not an http or https one, or this build has no libcurl.
void check_prefill_address(const std::string& url);

// `url`: "http://desktop:8080"; `key`: of its API, empty: none; `owner`: what the pages belong to. Each call has a connection of
// its own.
PageComputer prefill_client(const std::string& url, const std::string& key, const OwnerTexts& owner);

} // namespace tq
