// A cache's types as JSON that people write by hand. So each unknown key is an error with the known ones in it, and each message
// has the file, the layer and the expected value. The names are parsed by the same functions as those of the command line.
#include "model/files/kv_file.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/config.h"
#include "model/files/formats/json.h"
#include "model/kv/window.h"
#include <algorithm>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

using nlohmann::json;

constexpr const char* schema = "tq-run-kv";
constexpr int version = 1;
constexpr uint64_t max_bytes = 1 << 20;

// A file that is being read, with its path for messages.
class Reader {
  public:
    explicit Reader(const std::filesystem::path& path) : name_(printable(utf8_text(path), 300)) {}

    void require_keys(const json& object, const std::string& where, std::span<const char* const> known) const {
        for (const auto& [key, value] : object.items())
            if (std::ranges::find(known, key) == known.end())
                fail("{}: {} has the unknown key '{}': it can have {}", name_, where, printable(key), fmt::join(known, ", "));
    }

    std::string text(const json& object, const char* key, const std::string& where) const {
        if (!object.contains(key)) fail("{}: {} has no '{}'", name_, where, key);
        const json& value = object[key];
        if (!value.is_string()) fail("{}: '{}' of {} must be a text, not {}", name_, key, where, kind_of(value));
        return value.get<std::string>();
    }

    uint32_t number(const json& object, const char* key, uint32_t max) const {
        const json& value = object[key];
        if (!value.is_number_unsigned() || value > max) fail("{}: '{}' must be a number from 0 to {}", name_, key, max);
        return value.get<uint32_t>();
    }

    // Returns the result of `parse` on that text.
    // The parsers of names know neither file nor layer. Their message is kept, and gets the place before it.
    template <class Parse> auto parsed(const json& object, const char* key, const std::string& where, Parse parse) const {
        const std::string value = text(object, key, where);
        try {
            return parse(value);
        } catch (const Error& error) {
            fail("{}: {}: {}", name_, where, error.what());
        }
    }

    void require_schema(const json& file) const {
        if (!file.is_object() || !file.contains("schema") || file["schema"] != schema)
            fail("{}: it is not a file of cache types (its \"schema\" must be \"{}\"): make one with tq-run mix", name_, schema);
        if (!file.contains("version") || file["version"] != version)
            fail("{}: its \"version\" must be {}, the only one this program knows", name_, version);
    }

    KvTypes types(const json& layer, size_t i) const {
        const std::string where = fmt::format("layer {}", i);
        if (!layer.is_object()) fail("{}: {} must be an object with 'k' and 'v', not {}", name_, where, kind_of(layer));
        require_keys(layer, where, std::array{"k", "v"});
        return {parsed(layer, "k", where, parse_kv_type), parsed(layer, "v", where, parse_kv_type)};
    }

    std::vector<KvLayers> layers(const json& file) const {
        if (!file.contains("layers") || !file["layers"].is_array()) fail("{}: it has no list 'layers'", name_);
        const json& list = file["layers"];
        if (list.empty() || list.size() > max_layers)
            fail("{}: it names {} layers: there must be from 1 to {}", name_, list.size(), max_layers);
        std::vector<KvLayers> out;
        for (size_t i = 0; i < list.size(); i++) out.push_back({int(i), int(i), types(list[i], i)});
        return out;
    }

  private:
    const std::string name_;
};

} // namespace

// The file names every layer, so nothing depends on a default that may change. k and v are those of layer 0, only so that they
// have a value. Rotation, scale rule and conditioning have defaults, because files that people write leave them out.
KvOptions read_kv_file(const std::filesystem::path& path) {
    const json file = read_json_file(path, max_bytes);
    const Reader reader(path);
    reader.require_schema(file);
    reader.require_keys(
        file, "it",
        std::array{"schema", "version", "about", "rotation", "scale_rule", "conditioning", "window", "recent", "layers"});
    KvOptions kv;
    if (file.contains("about")) reader.text(file, "about", "it");
    if (file.contains("rotation")) kv.rotation = reader.parsed(file, "rotation", "it", parse_rotation);
    if (file.contains("scale_rule")) kv.scale_rule = reader.parsed(file, "scale_rule", "it", parse_scale_rule);
    if (file.contains("conditioning")) kv.conditioning = reader.parsed(file, "conditioning", "it", parse_key_conditioning);
    for (const char* key : {"window", "recent"}) // "recent": its name in earlier files
        if (file.contains(key)) kv.window = reader.number(file, key, max_window_tokens);
    kv.layers = reader.layers(file);
    kv.layer_count = uint32_t(kv.layers.size());
    kv.k = kv.layers[0].types.k;
    kv.v = kv.layers[0].types.v;
    return kv;
}

nlohmann::ordered_json kv_json(const KvOptions& kv, uint32_t layers, const std::string& about) {
    nlohmann::ordered_json file{{"schema", schema}, {"version", version}};
    if (!about.empty()) file["about"] = about;
    file["rotation"] = name(kv.rotation);
    file["scale_rule"] = name(kv.scale_rule);
    file["conditioning"] = describe(kv.conditioning);
    if (kv.window != 0) file["window"] = kv.window;
    for (uint32_t layer = 0; layer < layers; layer++) {
        const KvTypes types = kv.at(layer, layers);
        file["layers"].push_back({{"k", name(types.k)}, {"v", name(types.v)}});
    }
    return file;
}

// Writes one layer per line, so that people can compare and edit them; dump() would give each type a line of its own, or put all
// of them on one.
std::string kv_file_text(const KvOptions& kv, uint32_t layers, const std::string& about) {
    const nlohmann::ordered_json file = kv_json(kv, layers, about);
    std::string text;
    for (const auto& [key, value] : file.items()) {
        text += fmt::format("{}\"{}\": ", text.empty() ? "{" : ",\n ", key);
        if (!value.is_array()) {
            text += value.dump();
            continue;
        }
        for (size_t i = 0; i < value.size(); i++) text += fmt::format("{}{}", i == 0 ? "[\n  " : ",\n  ", value[i].dump());
        text += "\n ]";
    }
    return text + "\n}\n";
}

} // namespace tq
