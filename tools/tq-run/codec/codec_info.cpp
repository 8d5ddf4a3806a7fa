// tq-run codec info: the structure of the types, and the size of their errors. Three kinds of figures:
// - bytes and layouts, by arithmetic;
// - the codebook, scaled to a standard normal variable, with its mean squared error in closed form (normalised). Level c of the
//   interval [a, b] adds the integral of (z - c)^2 - z^2 over the density to the variance 1; both signs are counted;
// - measured errors on random unit vectors after rotation, for each scale rule: the squared error, the mean factor of inner
//   products (1 is unbiased), and the length of decoded vectors.
#include "model/kv/layouts.h"
#include "model/kv/trellis.h"
#include "model/kv/turboquant.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/codec/codec.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <numbers>
#include <random>
#include <utility>

namespace tq {
namespace {

using Json = nlohmann::ordered_json;

const char* family_name(KvType type) {
    switch (family(type)) {
    case KV_TURBOQUANT: return is_unequal(type) ? "TurboQuant, unequal" : is_trellis(type) ? "TurboQuant, trellis" : "TurboQuant";
    case KV_BLOCKS: return "ggml blocks";
    default: return "plain";
    }
}

// Normal components give a direction that is uniform on the sphere. Standard distributions are not used, since libraries differ
// in them.
std::vector<float> unit_vector(std::mt19937_64& random, uint32_t head_dim) {
    std::vector<double> x;
    double norm2 = 0;
    while (x.size() < head_dim) { // the Box-Muller transform
        const double radius2 = -2 * std::log(double(random() >> 11 | 1) * 0x1p-53), turn = double(random() >> 11) * 0x1p-53;
        x.push_back(std::sqrt(radius2) * std::cos(2 * std::numbers::pi * turn));
        norm2 += x.back() * x.back();
    }
    std::vector<float> out;
    for (const double v : x) out.push_back(float(v / std::sqrt(norm2)));
    return out;
}

// Measured on random unit vectors x and their decoded vectors. The slope is that of inner products <q, x^> over <q, x>,
// averaged over all directions of q, which is <x, x^>.
struct Measured {
    double error = 0, slope = 0, length = 0;
};

Measured measure(const KvCodec& codec, uint32_t vectors, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<uint32_t> codes(codec.words());
    std::vector<uint16_t> scales(codec.scales());
    std::vector<float> decoded(codec.head_dim());
    Measured sum;
    for (uint32_t n = 0; n < vectors; n++) {
        const std::vector<float> x = unit_vector(random, codec.head_dim());
        encode(codec, codes, scales, x);
        decode(codec, decoded, codes, scales);
        double square = 0;
        for (size_t i = 0; i < x.size(); i++) {
            sum.error += (double(x[i]) - double(decoded[i])) * (double(x[i]) - double(decoded[i]));
            sum.slope += double(x[i]) * double(decoded[i]);
            square += double(decoded[i]) * double(decoded[i]);
        }
        sum.length += std::sqrt(square);
    }
    return {sum.error / vectors, sum.slope / vectors, sum.length / vectors};
}

// The codebook in standard deviations of a normal variable, and the mean squared error of a variable that is coded with it.
// Thresholds are stored as squares over 128 channels (t^2 / 128), so that sqrt(B * 128) is one in standard deviations. Levels are
// divided by level_units(). The last interval ends at 40 standard deviations, beyond which a double has no density left.
struct Normalised {
    std::vector<double> centroids, thresholds;
    double distortion;
};

Normalised normalised(KvType type) {
    const uint32_t bits = magnitude_bits(type) + 1;
    const Codebook& book = codebook(bits - 1);
    const auto density = [](double z) { return std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi); };
    const auto tail = [](double z) { return std::erfc(z / std::numbers::sqrt2) / 2; };
    Normalised out{{}, {}, 1};
    for (const uint32_t level : book.levels) out.centroids.push_back(level / level_units(bits));
    for (const uint32_t word : book.thresholds) out.thresholds.push_back(std::sqrt(double(std::bit_cast<float>(word)) * 128));
    for (size_t i = 0; i < out.centroids.size(); i++) {
        const double low = i == 0 ? 0 : out.thresholds[i - 1], high = i < out.thresholds.size() ? out.thresholds[i] : 40;
        const double c = out.centroids[i];
        out.distortion += 2 * (c * c * (tail(low) - tail(high)) - 2 * c * (density(low) - density(high)));
    }
    return out;
}

bool has_codebook(KvType type) {
    return is_turboquant(type) && !is_trellis(type) && !is_unequal(type) && magnitude_bits(type) >= 1 &&
           magnitude_bits(type) <= 5;
}

// A trellis has levels of both signs in its states; the positive ones are shown, as for the other types.
std::vector<uint32_t> magnitudes(KvType type) {
    if (!is_trellis(type)) return codebook(magnitude_bits(type)).levels;
    std::vector<uint32_t> out;
    for (const int level : trellis_levels(code_bits(type)))
        if (level > 0) out.push_back(uint32_t(level));
    std::ranges::sort(out);
    return out;
}

std::vector<ScaleRule> rules_of(KvType type) {
    if (!is_turboquant(type)) return {ScaleRule::norm};
    return {ScaleRule::norm, ScaleRule::least_squares, ScaleRule::unbiased};
}

double ratio_to_f16(KvType type, uint32_t head_dim) {
    return double(kv_vector_bytes(KvType::f16, head_dim)) / kv_vector_bytes(type, head_dim);
}

Json describe(const CodecInfoArguments& a, KvType type) {
    Json bytes, layouts = Json::array(), measured = Json::array();
    for (const uint32_t d : {64u, 128u, 256u}) bytes[std::to_string(d)] = kv_vector_bytes(type, d);
    for (const KvLayout layout : {KvLayout::planes, KvLayout::block68, KvLayout::bytes132, KvLayout::ggml})
        if (has_layout(type, layout))
            layouts.push_back({{"name", name(layout)}, {"bytes", layout_bytes(layout, type, a.head_dim)}});
    Json out{{"type", name(type)},
             {"family", family_name(type)},
             {"rotated", is_turboquant(type)},
             {"vector_bytes", bytes},
             {"head_dim", a.head_dim},
             {"bits_per_value", kv_vector_bytes(type, a.head_dim) * 8.0 / a.head_dim},
             {"times_smaller_than_f16", ratio_to_f16(type, a.head_dim)},
             {"layouts", layouts}};
    const uint32_t b = is_unequal(type) ? code_bits(type) : 0;
    for (uint32_t bits = b + 2; b != 0 && bits >= b - 2; bits--) // of the quarters, that which RoPE turns slowest first
        if (bits != b) out["quarters"].push_back({{"bits", bits}, {"levels", codebook(bits - 1).levels}});
    if (is_turboquant(type) && !is_unequal(type)) out["levels"] = magnitudes(type);
    if (has_codebook(type)) {
        const Normalised book = normalised(type);
        out["centroids"] = book.centroids;
        out["thresholds"] = book.thresholds;
        out["normal_distortion"] = book.distortion;
    }
    for (const ScaleRule rule : rules_of(type)) {
        KvCodec codec = a.codec(type);
        codec.scale_rule = rule;
        const Measured m = measure(codec, a.vectors, a.seed);
        Json row{{"error", m.error}, {"slope", m.slope}, {"length", m.length}};
        if (is_turboquant(type)) row["scale_rule"] = name(rule);
        measured.push_back(row);
    }
    out["measured"] = measured;
    return out;
}

std::string join(const Json& numbers, const char* format) {
    std::string text;
    for (const Json& v : numbers) text += fmt::format(fmt::runtime(format), v.get<double>());
    return text;
}

void print_details(const CodecInfoArguments& a, const Json& info) {
    const auto line = [](const std::string& label, const std::string& text) {
        write_text(fmt::format("{:<26}{}\n", label, text));
    };
    const Json& bytes = info["vector_bytes"];
    line("type", fmt::format("{} ({})", info["type"].get<std::string>(), info["family"].get<std::string>()));
    line("bytes of a vector", fmt::format("{} / {} / {} of 64 / 128 / 256 channels", bytes["64"].get<int>(),
                                          bytes["128"].get<int>(), bytes["256"].get<int>()));
    line("bits per value", fmt::format("{:.4g} at head_dim {}", info["bits_per_value"].get<double>(), a.head_dim));
    line("times smaller than f16", fmt::format("{:.2f}", info["times_smaller_than_f16"].get<double>()));
    for (const Json& layout : info["layouts"])
        line("layout " + layout["name"].get<std::string>(), fmt::format("{} bytes", layout["bytes"].get<int>()));
    if (info.contains("levels") && info["levels"].size() <= 32) line("levels, +-", join(info["levels"], "{} "));
    if (info.contains("levels") && info["levels"].size() > 32)
        line("levels, +-", "1 3 5 ... 255, of 256ths of the largest component");
    for (const Json& quarter : info.value("quarters", Json::array()))
        line(fmt::format("a quarter's {} bits, +-", quarter["bits"].get<int>()), join(quarter["levels"], "{} "));
    if (info.contains("centroids")) {
        line("centroids, +-", join(info["centroids"], "{:.4f} ") + "standard deviations");
        line("thresholds", join(info["thresholds"], "{:.4f} ") + "standard deviations");
        line("distortion of a normal", fmt::format("{:.6f} (by its codebook)", info["normal_distortion"].get<double>()));
    }
    for (const Json& m : info["measured"])
        line(m.contains("scale_rule") ? "scale " + m["scale_rule"].get<std::string>() : "measured",
             fmt::format("error {:.6f}, inner products x {:.5f}, length x {:.5f}", m["error"].get<double>(),
                         m["slope"].get<double>(), m["length"].get<double>()));
    line("", fmt::format("({} random unit vectors of {} channels, seed {})", a.vectors, a.head_dim, a.seed));
}

void print_table(const CodecInfoArguments& a, const Json& list) {
    std::vector<std::vector<std::string>> rows{
        {"type", "family", "scale rule", "at 64", "at 128", "at 256", "bits", "< f16", "error", "products"}};
    for (const Json& info : list) {
        const Json& bytes = info["vector_bytes"];
        std::vector<std::string> row{info["type"],
                                     info["family"],
                                     "",
                                     bytes["64"].dump(),
                                     bytes["128"].dump(),
                                     bytes["256"].dump(),
                                     fmt::format("{:.4g}", info["bits_per_value"].get<double>()),
                                     fmt::format("{:.2f}x", info["times_smaller_than_f16"].get<double>()),
                                     "",
                                     ""};
        for (const Json& m : info["measured"]) {
            row[2] = m.value("scale_rule", "-");
            row[8] = fmt::format("{:.3g}", m["error"].get<double>());
            row[9] = fmt::format("x {:.5f}", m["slope"].get<double>());
            rows.push_back(std::exchange(row, std::vector<std::string>(row.size())));
        }
    }
    write_output(aligned(std::move(rows), 3, text_columns(), {1}));
    write_text(fmt::format("Bytes of vectors of 64, 128 and 256; squared error, and what inner products are multiplied by. Bits, "
                           "ratio and errors at head_dim {}; errors of {} random unit vectors, seed {}.\n",
                           a.head_dim, a.vectors, a.seed));
}

} // namespace

int codec_info(const CodecInfoArguments& arguments) {
    Json list = Json::array();
    for (const KvTypeName& known : kv_types)
        if (arguments.type.empty() || parse_kv_type(arguments.type) == known.type)
            list.push_back(describe(arguments, known.type));
    if (arguments.json)
        write_output(list.dump(2) + "\n");
    else if (list.size() == 1)
        print_details(arguments, list[0]);
    else
        print_table(arguments, list);
    return 0;
}

} // namespace tq
