// make_stress_table: the cost of cache types where keys and values are stressed at the cache's door (tools/quality/stress.h), as
// a Markdown table: KL divergence of the next token's probabilities from those with an exact cache, and how often the most
// probable token is the same, in the second half of each chunk of a text.
//   tools/demo-model/corpus.py --seed 77 --count 32 --budget 2000 > text.txt
//   make_stress_table -m tools/demo-model/demo-q8_0.gguf -f text.txt --key-bias 10 --types tq4,tq4t
#include "base/error.h"
#include "model/cpu/forward.h"
#include "tests/support/stressed_forward.h"
#include "tools/quality/compare.h"
#include <CLI/CLI.hpp>
#include <fstream>
#include <iterator>

namespace {

using namespace tq;

struct Arguments {
    std::string model, against, text;
    std::vector<std::string> types{"tq4"}, conditioning{"norms"};
    uint32_t context = 2048, chunks = 4;
    quality::Stress stress;
    std::pair<uint32_t, float> sinks{0, 1.0f};
};

std::vector<uint32_t> read_ids(const Arguments& a, const Tokenizer& tokenizer) {
    std::ifstream file(a.text, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    std::vector<uint32_t> ids = tokenizer.encode(text);
    if (ids.size() < a.context) fail("{} cannot be read, or has fewer than {} tokens", a.text, a.context);
    ids.resize(std::min<size_t>(a.chunks, ids.size() / a.context) * a.context);
    return ids;
}

KvOptions options_of(const std::string& types, const std::string& conditioning) {
    const size_t slash = types.find('/');
    KvOptions kv{parse_kv_type(types.substr(0, slash)),
                 parse_kv_type(slash == std::string::npos ? types : types.substr(slash + 1))};
    kv.conditioning = parse_key_conditioning(conditioning);
    if (kv.conditioning.kind == KeyConditioning::Kind::measured)
        fail("keys are conditioned by norms or none, not {}", conditioning);
    return kv;
}

void measure(const Arguments& a) {
    const Model model = load_model(a.model), other = load_model(a.against.empty() ? a.model : a.against);
    const std::vector<uint32_t> ids = read_ids(a, model.tokenizer);
    const auto reference =
        make_cpu_forward(other.config, other.weights, {.kv = {KvType::f32, KvType::f32}, .context_size = a.context});
    std::vector<std::unique_ptr<Forward>> forwards;
    std::vector<std::string> names;
    for (const std::string& types : a.types)
        for (const std::string& conditioning : a.conditioning) {
            forwards.push_back(test::make_stressed_forward(model, options_of(types, conditioning), a.stress, a.context));
            names.push_back(types + " | " + conditioning);
        }
    std::vector<Forward*> measured;
    for (const auto& forward : forwards) measured.push_back(forward.get());
    std::vector<std::vector<quality::Divergence>> halves(measured.size());
    for (size_t first = 0; first < ids.size(); first += a.context) {
        const auto all = quality::compare(measured, *reference, std::span(ids).subspan(first, a.context), {});
        for (size_t m = 0; m < all.size(); m++)
            halves[m].insert(halves[m].end(), all[m].begin() + a.context / 2 - 1, all[m].end());
    }
    fmt::print("| cache | keys | KL | same top |\n|---|---|---|---|\n");
    for (size_t m = 0; m < halves.size(); m++) {
        const quality::Summary s = quality::summarise(halves[m]);
        fmt::print("| {} | {:.2e} ± {:.0e} | {:.1f} % |\n", names[m], s.kl.value, s.kl.error, 100 * s.same_top.value);
    }
}

} // namespace

int main(int argc, char** argv) try {
    CLI::App app("Measures what cache types cost where keys and values are stressed at the cache's door.");
    Arguments a;
    app.add_option("-m,--model", a.model, "GGUF file")->required();
    app.add_option("--against", a.against, "the model with an exact cache to compare with; default: the same");
    app.add_option("-f,--file", a.text, "text to measure on")->required();
    app.add_option("--types", a.types, "cache types, K/V or one for both")->delimiter(',')->capture_default_str();
    app.add_option("--kv-condition", a.conditioning, "none, norms")->delimiter(',')->capture_default_str();
    app.add_option("-c,--ctx-size", a.context, "tokens of a chunk")->check(CLI::Range(4, 1 << 20))->capture_default_str();
    app.add_option("--chunks", a.chunks, "number of chunks")->check(CLI::Range(1, 1000))->capture_default_str();
    app.add_option("--sinks", a.sinks, "the first N tokens' keys and values times FACTOR")->delimiter(',')->type_name("N,FACTOR");
    app.add_option("--key-bias", a.stress.key_bias, "a bias of keys before RoPE, that many times as large as keys");
    app.add_option("--heavy-tails", a.stress.heavy_tails, "elements of Student's t distribution of DOF degrees of freedom")
        ->check(CLI::Range(1, 1000))
        ->type_name("DOF");
    app.add_option("--head-spread", a.stress.channel_spread,
                   "factors of each kv head's channels, standard deviation of their logarithms");
    app.add_option("--token-spread", a.stress.token_spread, "factors of vectors, likewise");
    app.add_option("--layers", a.stress.layers, "numbers of the layers; default: all")->delimiter(',');
    app.add_option("--seed", a.stress.seed, "seed")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    a.stress.sinks = a.sinks.first;
    a.stress.sink_factor = a.sinks.second;
    measure(a);
    return 0;
} catch (const tq::Error& e) {
    fmt::print(stderr, "make_stress_table: {}\n", e.what());
    return 1;
}
