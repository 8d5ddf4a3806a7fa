#include "model/forward.h"
#include "base/error.h"

namespace tq {

uint64_t kv_bytes_per_token(const Config& config, const KvOptions& kv) {
    return kv_bytes_per_token(kv, config.num_hidden_layers, config.num_key_value_heads, config.head_dim);
}

void fail_nonfinite(const std::optional<std::string>& where) {
    fail("the model computed values that are not finite: first seen in {}. The file may be damaged, or its values overflow this "
         "cache "
         "type: try -ctk f32 -ctv f32",
         where.value_or("the logits"));
}

} // namespace tq
