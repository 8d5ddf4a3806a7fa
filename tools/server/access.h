// Who may ask: API keys, the pages of other sites (CORS), names of this host.
#pragma once
#include "tools/server/http.h"
#include <optional>
#include <span>
#include <vector>

namespace tq::server {

// Returns the key that a request brings (Authorization: Bearer, x-api-key), if it is one of `keys`. It takes the same time for
// every key.
std::optional<std::string> accepted_key(const HttpRequest& request, std::span<const std::string> keys);
// Names the part of the prefix cache that a key may see; the key cannot be told from it.
std::string tenant_of(const std::string& key);

// True if the request comes from a page of a site that is neither this server's nor in `allowed`.
bool is_from_other_site(const HttpRequest& request, std::span<const std::string> allowed);
// True if the name that the client used for this host can be another's, who made it point here (DNS rebinding).
bool is_foreign_host(const HttpRequest& request, std::span<const std::string> allowed);

// Sets the headers that let a page of an allowed site read the reply, and the headers of the reply to OPTIONS.
void allow_origin(HttpReply& reply, const HttpRequest& request, std::span<const std::string> allowed);

} // namespace tq::server
