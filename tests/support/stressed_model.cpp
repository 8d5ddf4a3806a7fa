#include "tests/support/stressed_model.h"
#include "base/error.h"
#include "model/config.h"
#include "model/files/formats/gguf.h"
#include "model/files/formats/gguf_writer.h"
#include "model/weights/weights.h"
#include "tests/support/value_stress.h"
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

namespace tq::test {
namespace {

// The changed tensors of a file by name, as fp32.
class ChangedTensors {
  public:
    explicit ChangedTensors(const ModelFile& file) : file_(file) {}

    // The values of a tensor, decoded when it is first asked for; null if the file has none.
    std::vector<float>* find(const std::string& name) {
        if (const auto found = values_.find(name); found != values_.end()) return &found->second;
        const auto at = std::ranges::find(file_.tensors(), name, &FileTensor::name);
        if (at == file_.tensors().end()) return nullptr;
        const BlockFormat* format = block_format(at->type);
        if (!format || !format->decode || format->has_factor)
            fail("{} is {}, which cannot be decoded", name, type_name(at->type));
        std::vector<float>& out = values_[name];
        out.resize(at->ne[0] * at->ne[1] * at->ne[2] * at->ne[3]);
        const size_t bytes = row_bytes(at->type, at->ne[0]);
        for (size_t r = 0; r < out.size() / at->ne[0]; r++)
            decode_row(at->type, std::span(out).subspan(r * at->ne[0], at->ne[0]), at->data.subspan(r * bytes, bytes));
        return &out;
    }
    std::vector<float>& at(const std::string& name) {
        std::vector<float>* found = find(name);
        if (!found) fail("tensor '{}' is missing", name);
        return *found;
    }
    // Puts them in place of the file's, which must be the one that they are of.
    void replace(ModelFile& file) const {
        for (FileTensor& t : file.mutable_tensors())
            if (const auto changed = values_.find(t.name); changed != values_.end()) {
                const std::span bytes = std::as_bytes(std::span(changed->second));
                const std::string_view own = file.add_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
                t.type = GgmlType::F32;
                t.data = std::as_bytes(std::span(own));
            }
    }

  private:
    const ModelFile& file_;
    std::map<std::string, std::vector<float>> values_;
};

// Rows of a matrix, or elements of a bias, times factor.
void scale_rows(std::vector<float>* x, size_t row, size_t cols, double factor) {
    if (x)
        for (size_t i = row * cols; i < (row + 1) * cols; i++) (*x)[i] = float((*x)[i] * factor);
}

// Scales the keys of a model with norms of queries and keys. scales: [head_dim / 2]; first of the pairs that RoPE turns, then
// of two neighbours each.
void scale_norms(std::vector<float>& q, std::vector<float>& k, std::span<const double> scales, size_t turned) {
    for (size_t c = 0; c < q.size(); c++) {
        const double scale = c < turned ? scales[c % (turned / 2)] : scales[c / 2];
        q[c] = float(q[c] / scale);
        k[c] = float(k[c] * scale);
    }
}

// Scales the keys of kv head `head` of a model without. neighbours: RoPE mixes rows 2 i and 2 i + 1 of the file.
void scale_key_rows(ChangedTensors& tensors, const Config& c, const std::string& blk, uint32_t head, bool neighbours,
                    std::span<const double> scales) {
    const uint32_t half = c.head_dim / 2, group = c.num_attention_heads / c.num_key_value_heads;
    const auto scale = [&](const char* name, uint32_t of, uint32_t i, double factor) {
        for (uint32_t side = 0; side < 2; side++) {
            const size_t row = size_t(of) * c.head_dim + (neighbours ? 2 * i + side : i + side * half);
            scale_rows(&tensors.at(blk + name + ".weight"), row, c.hidden_size, factor);
            scale_rows(tensors.find(blk + name + ".bias"), row, 1, factor);
        }
    };
    for (uint32_t i = 0; i < half; i++) {
        scale("attn_k", head, i, scales[i]);
        for (uint32_t h = head * group; h < (head + 1) * group; h++) scale("attn_q", h, i, 1 / scales[i]);
    }
}

// Whether a layer is to be stressed. A recurrent one stores nothing.
bool is_chosen(const WeightStress& stress, const Config& c, uint32_t layer) {
    return !c.is_recurrent(layer) && (stress.layers.empty() || std::ranges::count(stress.layers, layer) > 0);
}

bool stresses_keys(const WeightStress& s) { return s.key_spread != 0 || s.key_outliers.count > 0; }
bool stresses_values(const WeightStress& s) {
    return s.value_spread != 0 || s.value_outliers.count > 0 || s.value_directions != 0;
}

void stress_keys(ChangedTensors& tensors, const Config& c, const WeightStress& stress, uint32_t layer, bool neighbours,
                 Draws& draws) {
    const std::string blk = fmt::format("blk.{}.", layer);
    const bool chosen = is_chosen(stress, c, layer);
    for (uint32_t head = 0; head < (c.architecture->qk_norm ? 1 : c.num_key_value_heads); head++) {
        const std::vector<double> scales = draws.scales(c.head_dim / 2, stress.key_spread, stress.key_outliers);
        if (!chosen) continue;
        if (c.architecture->qk_norm)
            scale_norms(tensors.at(blk + "attn_q_norm.weight"), tensors.at(blk + "attn_k_norm.weight"), scales, c.rotary());
        else
            scale_key_rows(tensors, c, blk, head, neighbours, scales);
    }
}

ValueTensors values_of(ChangedTensors& tensors, const Config& c, uint32_t layer) {
    const std::string blk = fmt::format("blk.{}.", layer);
    return {.v = tensors.at(blk + "attn_v.weight"),
            .bias = tensors.find(blk + "attn_v.bias"),
            .output = tensors.at(blk + "attn_output.weight"),
            .hidden_size = c.hidden_size,
            .kv_heads = c.num_key_value_heads,
            .group = c.num_attention_heads / c.num_key_value_heads,
            .head_dim = c.head_dim};
}

void stress_values(ChangedTensors& tensors, const Config& c, const WeightStress& stress, uint32_t layer, Draws& draws) {
    const bool chosen = is_chosen(stress, c, layer);
    for (uint32_t head = 0; head < c.num_key_value_heads; head++) {
        const std::vector<double> along = draws.scales(c.head_dim, stress.value_directions, {}),
                                  channels = draws.scales(c.head_dim, stress.value_spread, stress.value_outliers);
        const std::vector<double> directions =
            stress.value_directions != 0 ? draws.directions(c.head_dim) : std::vector<double>();
        if (!chosen) continue;
        ValueTensors values = values_of(tensors, c, layer);
        if (!directions.empty()) stretch_values(values, head, directions, along);
        scale_values(values, head, channels);
    }
}

void give_real_keys(ChangedTensors& tensors, const Config& c, const RealKeys& traits, bool neighbours) {
    if (c.architecture->qk_norm || c.gated_attention || c.rotary() != c.head_dim)
        fail("real keys are for models without norms of keys, gates and recurrent layers");
    const HiddenDirections directions = hidden_directions(traits, c.hidden_size);
    give_mean(traits, directions, tensors.at("token_embd.weight"), c.hidden_size);
    for (uint32_t layer = 0; layer < c.num_hidden_layers; layer++) {
        const std::string blk = fmt::format("blk.{}.", layer);
        give_real_keys(traits, directions, c, layer,
                       {.q = tensors.at(blk + "attn_q.weight"),
                        .k = tensors.at(blk + "attn_k.weight"),
                        .v = tensors.at(blk + "attn_v.weight"),
                        .k_bias = tensors.find(blk + "attn_k.bias"),
                        .neighbours = neighbours});
    }
}

void change(ModelFile& file, const WeightStress& stress) {
    ChangedTensors tensors(file);
    const Config c = read_config(file);
    read_weights(file, c); // that all tensors are there and have their shapes
    for (const uint32_t layer : stress.layers)
        if (layer >= c.num_hidden_layers) fail("there is no layer {} among {}", layer, c.num_hidden_layers);
    for (const uint32_t layer : stress.layers)
        if (c.is_recurrent(layer)) fail("layer {} is recurrent, and stores neither keys nor values", layer);
    if (c.gated_attention && stress.value_directions != 0)
        fail("the gates of this model's attention are of channels, and other directions of values would pass others");
    const bool neighbours = c.architecture->gguf_pairs == RopePairs::neighbours && !file.rope_is_split();
    if (stress.real_keys) give_real_keys(tensors, c, *stress.real_keys, neighbours);
    Draws keys(stress.seed, stress.tails), values(~stress.seed, stress.tails);
    for (uint32_t layer = 0; layer < c.num_hidden_layers; layer++) {
        if (stresses_keys(stress)) stress_keys(tensors, c, stress, layer, neighbours, keys);
        if (stresses_values(stress)) stress_values(tensors, c, stress, layer, values);
        if (!stress.balance_values || c.is_recurrent(layer)) continue;
        ValueTensors balanced = values_of(tensors, c, layer);
        const std::vector<float>& norm = tensors.at(fmt::format("blk.{}.attn_norm.weight", layer));
        for (uint32_t head = 0; head < c.num_key_value_heads; head++)
            scale_values(balanced, head, balancing_scales(balanced, head, norm));
    }
    tensors.replace(file);
}

} // namespace

Model make_stressed_model(const std::filesystem::path& from, const WeightStress& stress) {
    Model model = load_model(from);
    change(model.file, stress);
    model.weights = read_weights(model.file, model.config);
    model.weights.files.clear(); // they identify other values
    return model;
}

void write_stressed_model(const std::filesystem::path& from, const std::filesystem::path& to, const WeightStress& stress) {
    ModelFile file = read_gguf(from);
    change(file, stress);
    GgufWriter writer(3, file.integer("general.alignment", 32));
    for (const auto& [key, value] : file.metadata())
        if (!key.starts_with("split.")) writer.set(key, value); // it is written as one file
    for (const FileTensor& t : file.tensors()) {
        std::vector<uint64_t> ne(t.ne.begin(), t.ne.end());
        while (ne.size() > 1 && ne.back() == 1) ne.pop_back();
        writer.add_tensor(t.name, t.type, ne);
    }
    std::ofstream out(to, std::ios::binary);
    writer.write(out, [&](size_t i, std::ostream& stream) {
        const std::span bytes = file.tensors()[i].data;
        stream.write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
    });
    if (!out.flush()) fail("{} cannot be written", to.string());
}

} // namespace tq::test
