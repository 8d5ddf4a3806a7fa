#include "model/kv/types.h"
#include "base/error.h"
#include "base/printable.h"
#include <algorithm>
#include <fmt/ranges.h>

namespace tq {
namespace {

// Returns the index of `text` in `names`; throws Error when it is not among them.
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

const FormerName* find_former_type(std::string_view text) {
    for (const std::string_view group : {"_32", "_64", "_128"})
        if (text.starts_with('a') && text.ends_with(group)) text.remove_suffix(group.size());
    const auto found = std::ranges::find(former_kv_types, text, &FormerName::name);
    return found == former_kv_types.end() ? nullptr : &*found;
}

KvType parse_kv_type(std::string_view given) {
    std::string text = lowercase(given);
    if (const FormerName* former = find_former_type(text)) text = former->now;
    for (const KvTypeName& known : kv_types)
        if (text == known.name) return known.type;
    fail("unknown KV cache type '{}': use tq2 to tq6 or tq8 (tq3t: a trellis, tq4u: unequal bits), q8_0 or q4_0, f16, bf16 or "
         "f32; "
         "tq-run codec info lists them",
         printable(given));
}

ScaleRule parse_scale_rule(std::string_view text) { return ScaleRule(parse("scale rule", scale_rule_names, text)); }
RotationKind parse_rotation(std::string_view text) { return RotationKind(parse("rotation", rotation_names, text)); }

} // namespace tq
