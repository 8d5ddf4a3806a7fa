#include "model/prefix/store/redis_store.h"
#include "base/error.h"

namespace tq {

void require_redis() {
    fail("this build has no Redis, as hiredis was missing when it was configured (Debian has it in libhiredis-dev): configure it "
         "again with that, or give a directory that the machines share");
}

std::unique_ptr<SharedStore> open_redis_store(const RedisAddress&, PageName, std::chrono::seconds) {
    require_redis();
    return nullptr;
}

} // namespace tq
