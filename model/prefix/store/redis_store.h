// Pages in Redis, or what speaks its protocol (Valkey): one value for each, by the key tqrun:page:OWNER:NAME.
// hiredis/redis_store.cpp implements it; no_hiredis/redis_store.cpp reports that this build has no hiredis.
#pragma once
#include "model/prefix/shared_store.h"
#include "model/prefix/store/store_address.h"
#include <memory>

namespace tq {

// Throws Error if this build has no hiredis, with what to do.
void require_redis();

// Connects at the first use, and again after an error. ttl: pages that were not used for this time expire; 0: they do not. The
// system's lookup of names keeps no deadline; everything else does.
std::unique_ptr<SharedStore> open_redis_store(const RedisAddress& address, PageName owner, std::chrono::seconds ttl);

} // namespace tq
