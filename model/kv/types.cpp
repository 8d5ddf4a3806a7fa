#include "model/kv/types.h"
#include "base/error.h"
#include "base/printable.h"
#include <fmt/ranges.h>

namespace tq {
namespace {

// The place of `text` in `names`; throws Error when it has none.
template <size_t N> uint32_t parse(const char* what, const std::array<const char*, N>& names, std::string_view text) {
    for (uint32_t i = 0; i < N; i++)
        if (text == names[i]) return i;
    fail("unknown {} '{}': use one of {}", what, printable(text), fmt::join(names, ", "));
}

} // namespace

const char* name(KvType type) {
    for (const KvTypeName& known : kv_types)
        if (known.type == type) return known.name;
    return "?";
}

KvType parse_kv_type(std::string_view text) {
    for (const KvTypeName& known : kv_types)
        if (text == known.name || (family(known.type) == KV_AFFINE && std::string(text) + "_128" == known.name))
            return known.type;
    std::vector<std::string_view> names;
    for (const KvTypeName& known : kv_types) names.push_back(known.name);
    fail("unknown KV cache type '{}': use one of {}", printable(text), fmt::join(names, ", "));
}

ScaleRule parse_scale_rule(std::string_view text) { return ScaleRule(parse("scale rule", scale_rule_names, text)); }
RotationKind parse_rotation(std::string_view text) { return RotationKind(parse("rotation", rotation_names, text)); }

} // namespace tq
