#include "tools/server/http.h"

namespace tq::server {

static thread_local bool last_part = false;

bool is_last_part() { return last_part; }

bool send_last(const Send& send, std::string_view bytes) {
    struct Flag {
        Flag() { last_part = true; }
        ~Flag() { last_part = false; }
    };
    const Flag flag;
    return send(bytes);
}

} // namespace tq::server
