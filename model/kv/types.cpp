#include "model/kv/types.h"
#include "base/error.h"
#include <fmt/ranges.h>

namespace tq {

KvType parse_kv_type(std::string_view text) {
    for (uint32_t i = 0; i < kv_type_names.size(); i++)
        if (text == kv_type_names[i]) return KvType(i);
    fail("unknown KV cache type '{}': use one of {}", text, fmt::join(kv_type_names, ", "));
}

} // namespace tq
