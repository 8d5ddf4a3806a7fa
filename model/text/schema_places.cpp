#include "model/text/schema_places.h"
#include <charconv>

namespace tq {

static std::string unescaped_uri(std::string_view fragment) { // "%20", RFC 3986
    std::string out;
    for (size_t i = 0; i < fragment.size(); ++i) {
        uint8_t byte = 0;
        const char* const digits = fragment.data() + i + 1;
        const bool is_escape =
            fragment[i] == '%' && i + 2 < fragment.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
        out += is_escape ? char(byte) : fragment[i];
        i += is_escape ? 2 : 0;
    }
    return out;
}

const nlohmann::ordered_json* SchemaPlaces::member(const nlohmann::ordered_json& object, const std::string& name) {
    constexpr size_t many = 16;
    if (object.size() <= many) {
        const auto found = object.find(name);
        return found == object.end() ? nullptr : &*found;
    }
    const auto [table, is_new] = tables_.try_emplace(&object);
    if (is_new)
        for (const auto& [key, value] : object.get_ref<const nlohmann::ordered_json::object_t&>())
            table->second.emplace(key, &value);
    const auto found = table->second.find(name);
    return found == table->second.end() ? nullptr : found->second;
}

const nlohmann::ordered_json* SchemaPlaces::find(std::string_view fragment) {
    const std::string pointer = unescaped_uri(fragment);
    const nlohmann::ordered_json* at = &document_;
    for (size_t begin = 0; at && begin < pointer.size();) {
        if (pointer[begin] != '/') return nullptr;
        const size_t end = std::min(pointer.find('/', begin + 1), pointer.size());
        std::string part;
        for (size_t i = begin + 1; i < end; ++i) {
            const bool is_escape = pointer[i] == '~';
            if (is_escape && (i + 1 == end || (pointer[i + 1] != '0' && pointer[i + 1] != '1'))) return nullptr;
            part += !is_escape ? pointer[i] : pointer[++i] == '0' ? '~' : '/';
        }
        begin = end;
        size_t index = 0;
        const char* const last = part.data() + part.size();
        const bool is_index = std::from_chars(part.data(), last, index).ptr == last && part == std::to_string(index);
        at = at->is_object() ? member(*at, part) : at->is_array() && is_index && index < at->size() ? &(*at)[index] : nullptr;
    }
    return at;
}

} // namespace tq
