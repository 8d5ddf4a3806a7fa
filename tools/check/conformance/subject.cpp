// The kernels that a model needs of a device, and the rows that prove them. A device proves itself in seconds at the first start.
// So only rows with the device's own tuning and the model's weight formats, cache types, head sizes and options are kept: at most
// four of each kernel and type, spread evenly. Rows of attention are made for exactly the model's types and group. A subject is
// text for the worker's command line and part of the key of the verdict.
#include "tools/check/conformance/subject.h"
#include "base/error.h"
#include "base/printable.h"
#include "tools/check/conformance/worker.h"
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace tq::conformance {
namespace {

constexpr uint64_t max_row_bytes = 1 << 20; // of a row's matrix: the reference computes it on the CPU
constexpr size_t max_kind_rows = 4;         // of a kernel and type

// The parts of a row's variant: "Q8_0", "own".
std::vector<std::string> parts_of(const std::string& variant) {
    std::vector<std::string> parts;
    for (size_t begin = 0, end; begin <= variant.size(); begin = end + 2) {
        end = std::min(variant.find(", ", begin), variant.size());
        parts.push_back(variant.substr(begin, end - begin));
    }
    return parts;
}

// Decides by the names of rows, which tell kernel, types, tuning and sizes.
class RowFilter {
  public:
    explicit RowFilter(const Subject& subject) : s_(subject) {
        for (const GgmlType type : s_.weights) formats_.push_back(type_name(type));
        for (const KvTypes& pair : s_.caches)
            for (const KvType type : {pair.k, pair.v}) {
                types_.push_back(with_options(type));
                keys_.push_back(query_kind(pair.k));
            }
    }

    bool operator()(const Row& row) const {
        const auto begins = [&](const char* text) { return row.kernel.starts_with(text); };
        if (row.device_bytes > max_row_bytes || !row.lacks.empty()) return false;
        if (begins("barrier") || begins("copy") || begins("fp32") || begins("integers") || begins("half")) return true;
        const std::vector<std::string> parts = parts_of(row.variant);
        if (std::ranges::find(parts, "own") == parts.end()) return false; // a tuning that others have
        const bool of_experts = row.kernel.find("experts") != std::string::npos || begins("route");
        if (begins("attention") || begins("kv_decode") || (of_experts && !s_.experts)) return false;
        if (begins("kv_append")) return holds(types_, parts[0]) && has_heads(row);
        if (begins("q_norm_rope")) return holds(keys_, parts[1]) && has_heads(row);
        return parts[0] == "own" || holds(formats_, parts[0]);
    }

  private:
    static bool holds(const std::vector<std::string>& all, const std::string& one) {
        return std::ranges::find(all, one) != all.end();
    }
    std::string with_options(KvType type) const {
        std::string out = name(type);
        if (s_.rotation != RotationKind::wht && is_turboquant(type)) out += fmt::format(" {}", name(s_.rotation));
        return s_.scale_rule == KvOptions().scale_rule || !is_turboquant(type) ? out
                                                                               : fmt::format("{} {}", out, name(s_.scale_rule));
    }
    // Queries differ by whether the keys are rotated.
    std::string query_kind(KvType keys) const {
        const char* of = is_turboquant(keys) ? "tq4" : "f16";
        return fmt::format("for keys {} {}", of, name(is_turboquant(keys) ? s_.rotation : RotationKind::wht));
    }
    bool has_heads(const Row& row) const {
        const auto says = [&](const std::string& text) { return (row.shape + ',').find(text) != std::string::npos; };
        return says(fmt::format("head_dim {},", s_.head_dim)) && (s_.conditioned || !says("condition")) &&
               !(s_.head_norms && says("without a norm"));
    }

    const Subject& s_;
    std::vector<std::string> formats_, types_, keys_;
};

Json to_json(const Subject& s) {
    Json weights = Json::array(), caches = Json::array();
    for (const GgmlType type : s.weights) weights.push_back(type_name(type));
    for (const KvTypes& pair : s.caches) caches.push_back({name(pair.k), name(pair.v)});
    return {
        {"weights", weights},         {"caches", caches},    {"rotation", name(s.rotation)}, {"scale_rule", name(s.scale_rule)},
        {"head_dim", s.head_dim},     {"group", s.group},    {"window", s.window},           {"conditioned", s.conditioned},
        {"head_norms", s.head_norms}, {"experts", s.experts}};
}

// Tries all numbers, since only formats that this program knows have names.
GgmlType parse_format(const std::string& text) {
    for (uint32_t number = 0; number < 64; number++)
        if (block_format(GgmlType(number)) != nullptr && type_name(GgmlType(number)) == text) return GgmlType(number);
    fail("\"{}\" is no weight format", printable(text));
}

} // namespace

std::string Subject::text() const { return to_json(*this).dump(); }

Subject subject_of(const Config& config, const Weights& weights, const KvOptions& kv) {
    Subject s;
    for_each_tensor(weights, [&](const Tensor& tensor) {
        if (tensor.rows > 1) s.weights.push_back(tensor.type);
    });
    std::ranges::sort(s.weights);
    s.weights.erase(std::ranges::unique(s.weights).begin(), s.weights.end());
    for (uint32_t layer = 0; layer < config.num_hidden_layers; layer++) {
        const KvTypes pair = kv.at(layer, config.num_hidden_layers);
        if (std::ranges::find(s.caches, pair) == s.caches.end()) s.caches.push_back(pair);
    }
    s.rotation = kv.rotation;
    s.scale_rule = kv.scale_rule;
    s.head_dim = config.head_dim;
    s.group = config.num_attention_heads / config.num_key_value_heads;
    s.window = kv.window != 0;
    s.conditioned = kv.conditioning.kind != KeyConditioning::Kind::none;
    s.head_norms = config.head_norm_eps().has_value();
    s.experts = config.num_experts != 0;
    return s;
}

// The text comes from a parent of the same build. It is checked all the same: a head size that no row has would prove nothing and
// pass.
Subject parse_subject(std::string_view text) {
    try {
        const Json all = Json::parse(text);
        Subject s;
        for (const Json& one : all.at("weights")) s.weights.push_back(parse_format(one));
        for (const Json& pair : all.at("caches"))
            s.caches.push_back({parse_kv_type(pair.at(0).get<std::string>()), parse_kv_type(pair.at(1).get<std::string>())});
        s.rotation = parse_rotation(all.at("rotation").get<std::string>());
        s.scale_rule = parse_scale_rule(all.at("scale_rule").get<std::string>());
        s.head_dim = all.at("head_dim");
        s.group = all.at("group");
        s.window = all.at("window");
        s.conditioned = all.at("conditioned");
        s.head_norms = all.at("head_norms");
        s.experts = all.at("experts");
        if ((s.head_dim != 64 && s.head_dim != 128 && s.head_dim != 256) || s.group == 0 || s.group > 16)
            fail("heads of {}, {} to a kv head", s.head_dim, s.group);
        return s;
    } catch (const Json::exception& error) {
        fail("what is to be proved cannot be read: {}", error.what());
    }
}

// At most max_kind_rows of the `count` rows of a kind stay: row `number` does if the share number / (count - 1), in thirds, has
// grown since the row before. Sampling rows of all temperatures are one kind. Attention's rows are not selected but made, for the
// model's own pair of types.
Rows subject_rows(const Capabilities& device, const Subject& subject) {
    Rows all = all_rows(device);
    std::erase_if(all, std::not_fn(RowFilter(subject)));
    std::map<std::string, size_t> counts, seen; // by kernel and type
    const auto group = [](const Row& row) { return row.kernel + row.variant.substr(0, row.variant.find(", temperature")); };
    for (const Row& row : all) counts[group(row)]++;
    Rows rows;
    for (Row& row : all) {
        const size_t count = counts[group(row)], number = seen[group(row)]++; // evenly, with the first and the last
        if (count <= max_kind_rows || number == 0 ||
            number * (max_kind_rows - 1) / (count - 1) != (number - 1) * (max_kind_rows - 1) / (count - 1))
            rows.push_back(std::move(row));
    }
    add_attention_of(rows, device, subject);
    return rows;
}

} // namespace tq::conformance
