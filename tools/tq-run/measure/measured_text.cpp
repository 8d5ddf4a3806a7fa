// The text of a measurement, and what identifies a measurement in its log. The hash of the text keeps logs of different texts
// apart. It is SHA-256; a build without OpenSSL has 64 bits of FNV-1a, which are named so, and the two never compare equal.
#include "tools/tq-run/measure/measured_text.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/json.h"
#include "model/hub/digest.h"
#include "model/kv/options.h"
#include "tools/check/quality/calibration_text.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/engine/setup.h"
#include <nlohmann/json.hpp>

namespace tq {
namespace {

constexpr uint64_t max_text_bytes = 1 << 30;
constexpr uint32_t min_chunk_tokens = 16;

std::string hash_of(std::string_view text) {
    Digest sha256(std::string(64, '0'), 0); // its first argument only selects the checksum
    sha256.update(std::as_bytes(std::span(text)));
    if (std::string digits = sha256.finish(); !digits.empty()) return digits;
    uint64_t hash = 0xcbf29ce484222325;
    for (const char c : text) hash = (hash ^ uint8_t(c)) * 0x100000001b3;
    return fmt::format("fnv1a64:{:016x}", hash);
}

} // namespace

MeasuredText read_measured_text(const std::string& path, const Tokenizer& tokenizer, uint32_t chunk_tokens) {
    if (chunk_tokens < min_chunk_tokens)
        fail("chunks of {} tokens are too short to measure: they must have at least {}", chunk_tokens, min_chunk_tokens);
    const std::string text = path.empty() ? calibration_text : read_text_file(utf8_path(path), max_text_bytes);
    MeasuredText out{path.empty() ? "the built-in text" : printable(path), hash_of(text), tokenizer.prompt(text)};
    if (path.empty())
        write_error(fmt::format("tq-run: without -f this measures on a built-in text of {} tokens, which shows large faults "
                                "only: for small differences give a longer text, of the kind that the model is for (the demo "
                                "model: from tools/demo-model/corpus.py)\n",
                                out.ids.size()));
    if (out.ids.size() < chunk_tokens)
        fail("{} has {} tokens, and one chunk has {}: give a longer text with -f, or shorter chunks", out.name, out.ids.size(),
             chunk_tokens);
    return out;
}

std::string measurement_heading(const Setup& setup) {
    return fmt::format("model   {}, {} layers\ndevice  {}\nbuild   {}\n", printable(setup.model.name),
                       setup.model.config.num_hidden_layers, setup.device_name, build_description());
}

std::string measurement_heading(const Setup& setup, const MeasuredText& text) {
    return measurement_heading(setup) + fmt::format("text    {}, {} tokens\n", text.name, text.ids.size());
}

std::string cache_text(const Config& config, const KvOptions& kv) {
    const uint64_t bytes = kv_bytes_per_token(config, kv), f16 = kv_bytes_per_token(config, KvOptions{KvType::f16, KvType::f16});
    const double ratio = double(f16) / double(bytes);
    return fmt::format("{}, {} bytes per token{}", describe(kv), bytes,
                       ratio == 1  ? std::string()
                       : ratio > 1 ? fmt::format(", {:.2f}x smaller than f16", ratio)
                                   : fmt::format(", {:.2f}x larger than f16", 1 / ratio));
}

nlohmann::json measurement_of_cache(const char* schema, const Setup& setup, const nlohmann::json& reference) {
    return {{"schema", schema},
            {"version", 1},
            {"model", setup.model.name},
            {"weight_bytes", setup.model.weights.bytes()},
            {"kv", describe(setup.options.kv)},
            {"reference", reference},
            {"kv_bytes_per_token", kv_bytes_per_token(setup.model.config, setup.options.kv)},
            {"kv_window_bytes", kv_window_bytes(setup.model.config, setup.options.kv)},
            {"device", setup.device_name},
            {"build", release_description()}};
}

} // namespace tq
