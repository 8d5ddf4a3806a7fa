// The types a KV cache can have. tq2, tq3, tq4: TurboQuant (turboquant.md).
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace tq {

enum class KvType : uint32_t { f32, f16, tq4, tq3, tq2 };
inline constexpr std::array kv_type_names{"f32", "f16", "tq4", "tq3", "tq2"};

constexpr const char* name(KvType t) { return kv_type_names[uint32_t(t)]; }

// Throws an Error that lists the names when `text` is none of them.
KvType parse_kv_type(std::string_view text);

// Bytes of one vector of head_dim elements, its scale included.
constexpr uint32_t kv_vector_bytes(KvType t, uint32_t head_dim) {
    switch (t) {
    case KvType::f32:
        return head_dim * 4;
    case KvType::f16:
        return head_dim * 2;
    case KvType::tq4:
        return head_dim / 2 + 2;
    case KvType::tq3:
        return head_dim / 8 * 3 + 2;
    case KvType::tq2:
        return head_dim / 4 + 2;
    }
    return 0;
}

struct KvOptions {
    KvType k = KvType::tq4, v = KvType::tq4;
};

} // namespace tq
