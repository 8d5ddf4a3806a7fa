#include "tests/support/outlier_model.h"
#include "base/error.h"
#include "model/formats/gguf.h"
#include "model/weights/weights.h"
#include "tests/support/gguf_writer.h"
#include "tools/conformance/random.h"
#include <cmath>
#include <fstream>
#include <map>

namespace tq::test {
namespace {

// The norms of queries and keys by their names, scaled.
std::map<std::string, std::vector<float>> scaled_norms(const Weights& weights, double spread, uint64_t seed) {
    conformance::Random random{seed};
    std::map<std::string, std::vector<float>> out;
    for (const LayerWeights& w : weights.layers) {
        if (!w.attn_q_norm || !w.attn_k_norm) fail("a model without norms of queries and keys has none to scale");
        if (w.attn_q_norm->type != GgmlType::F32 || w.attn_k_norm->type != GgmlType::F32)
            fail("{} and {} must be F32", w.attn_q_norm->name, w.attn_k_norm->name);
        std::vector<float> q = to_floats(*w.attn_q_norm), k = to_floats(*w.attn_k_norm);
        for (size_t i = 0; i < q.size() / 2; i++) {
            const double scale = std::exp(spread * random.normal());
            for (const size_t c : {i, i + q.size() / 2}) {
                q[c] = float(q[c] / scale);
                k[c] = float(k[c] * scale);
            }
        }
        out[w.attn_q_norm->name] = std::move(q);
        out[w.attn_k_norm->name] = std::move(k);
    }
    return out;
}

} // namespace

void write_outlier_model(const std::filesystem::path& from, const std::filesystem::path& to, double spread, uint64_t seed) {
    const ModelFile file = read_gguf(from);
    const auto norms = scaled_norms(read_weights(file, read_config(file)), spread, seed);
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
        const FileTensor& t = file.tensors()[i];
        const auto scaled = norms.find(t.name);
        const std::span bytes = scaled == norms.end() ? t.data : std::as_bytes(std::span(scaled->second));
        stream.write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
    });
    if (!out.flush()) fail("{} cannot be written", to.string());
}

} // namespace tq::test
