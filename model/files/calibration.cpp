// Reads and writes calibrations: a scale and a mean for each channel of each kv head of each layer, as two fp32 tensors in a
// safetensors file. A key is stored as (key - mean of its page) / scale, and the scale goes into the query
// (model/kv/conditioning.h). A wrong file would therefore give wrong answers without an error. So a file is accepted only with
// the fingerprint of this very model, and each value must be one that this model can have had: a mean that no key can reach is
// damage.
// The order of the checks is that of their cost: format, version, then the fingerprint, for which the whole model may have to be
// read.
#include "model/files/calibration.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/json.h"
#include "model/files/formats/safetensors.h"
#include "model/rope.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace tq {
namespace {

constexpr const char *calibration_format = "tq-run-calibration", *calibration_version = "4";

std::string text_of(const SafetensorsMetadata& metadata, const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
}

// Returns the greatest magnitude that a key of the layer can have; without a norm any finite one. A vector divided by its rms has
// no component over sqrt(head_dim), and RoPE combines two of them.
double max_key(const Config& c, const LayerWeights& w) {
    if (!w.attn_k_norm) return std::numeric_limits<float>::max();
    double weight = 0;
    for (const float v : to_floats(*w.attn_k_norm)) weight = std::max(weight, std::fabs(double(v)));
    return weight * std::sqrt(2.0 * c.head_dim) * attention_factor(c.rope_scaling);
}

// The shapes are compared with this model's before anything is copied. `ne` is in GGUF's order, the fastest dimension first.
std::vector<float> read_values(const std::string& path, const ModelFile& file, const char* name, const Config& c) {
    const FileTensor* tensor = file.find_tensor(name);
    const std::array<uint64_t, 4> ne{c.head_dim, c.num_key_value_heads, c.num_hidden_layers, 1};
    if (!tensor || file.tensors().size() != 2)
        fail("{}: it should have the tensors \"scales\" and \"means\", and no others", path);
    if (tensor->type != GgmlType::F32 || tensor->ne != ne)
        fail("{}: \"{}\" is {} of {} x {} x {}; this model has F32 of {} x {} x {}", path, name, type_name(tensor->type),
             tensor->ne[2], tensor->ne[1], tensor->ne[0], ne[2], ne[1], ne[0]);
    std::vector<float> values(tensor->data.size() / sizeof(float));
    std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
    return values;
}

void check_values(const std::string& path, const KeyCalibration& k, const Config& c, const Weights& weights) {
    const size_t layer_values = size_t(k.kv_heads) * k.head_dim;
    for (uint32_t layer = 0; layer < k.layers; layer++) {
        const double max = max_key(c, weights.layers[layer]);
        for (size_t i = 0; i < layer_values; i++) {
            const float scale = k.scales[layer * layer_values + i], mean = k.means[layer * layer_values + i];
            const size_t head = i / k.head_dim, channel = i % k.head_dim;
            if (!(scale >= min_key_scale && scale <= max_key_scale))
                fail("{}: the scale of layer {}, kv head {}, channel {} is {}, not between {} and {}: the file is damaged", path,
                     layer, head, channel, scale, min_key_scale, max_key_scale);
            if (!(std::fabs(double(mean)) <= max))
                fail("{}: the mean of layer {}, kv head {}, channel {} is {}, but no key can exceed {:.3g}: the file is damaged",
                     path, layer, head, channel, mean, max);
        }
    }
}

} // namespace

std::string calibration_bytes(const KeyCalibration& k, const std::string& fingerprint, const CalibrationNote& note) {
    const std::vector<uint64_t> shape{k.layers, k.kv_heads, k.head_dim};
    const FloatTensor tensors[] = {{"scales", shape, k.scales}, {"means", shape, k.means}};
    return safetensors_bytes(tensors, {{"format", calibration_format},
                                       {"version", calibration_version},
                                       {"fingerprint", fingerprint},
                                       {"model", printable(note.model)},
                                       {"text_tokens", std::to_string(note.tokens)}});
}

KeyCalibration read_calibration(const std::filesystem::path& path, const Config& config, const Weights& weights,
                                const std::function<std::string()>& fingerprint) {
    const std::string shown = printable(utf8_text(path), 200);
    ModelFile file(path);
    SafetensorsMetadata metadata;
    file.mutable_tensors() = read_safetensors(file, path, &metadata);
    if (text_of(metadata, "format") != calibration_format)
        fail("{}: it is not a file of {}: make one with tq-run calibrate, or give --kv-condition none or norms", shown,
             calibration_format);
    if (text_of(metadata, "version") != calibration_version)
        fail("{}: another version of tq-run wrote it as {} {}, but this one reads {}: make it again with tq-run calibrate", shown,
             calibration_format, printable(text_of(metadata, "version")), calibration_version);
    const std::string made_for = text_of(metadata, "fingerprint"), here = fingerprint();
    if (made_for != here)
        fail("{}: it was made for another model, or with other --weights or --rope flags: \"{}\", fingerprint {}, but this model "
             "has {}: make one for it with tq-run calibrate",
             shown, printable(text_of(metadata, "model")), printable(made_for), here);
    KeyCalibration k{config.num_hidden_layers, config.num_key_value_heads, config.head_dim,
                     read_values(shown, file, "scales", config), read_values(shown, file, "means", config)};
    check_values(shown, k, config, weights);
    return k;
}

void require_file(const KeyConditioning& conditioning) {
    if (conditioning.kind == KeyConditioning::Kind::measured && !is_there(utf8_path(conditioning.file)))
        fail("--kv-condition must be auto, none, norms or an existing file, not {}", printable(conditioning.file));
}

void load_conditioning(KeyConditioning& conditioning, const Config& config, const Weights& weights, const LoadProgress& on_hash) {
    if (conditioning.kind != KeyConditioning::Kind::measured || conditioning.calibration) return;
    require_file(conditioning);
    const std::filesystem::path path = utf8_path(conditioning.file);
    const auto fingerprint = [&] { return model_fingerprint(config, weights, on_hash); };
    conditioning.calibration = std::make_shared<const KeyCalibration>(read_calibration(path, config, weights, fingerprint));
}

} // namespace tq
