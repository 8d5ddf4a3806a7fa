// make_stressed_model: makes a variant of a model that says the same, with keys and values that are hard to quantise: by its
// weights (stressed_model.h), and for what weights cannot express at the cache's door (tests/support/stress.h). It writes the
// model, where weights hold all of the stress, and measures caches of it: a Markdown table of the KL divergence of the next
// token's probabilities from an exact cache's, and of how often the most probable token is the same, in the second half of each
// chunk of a text.
// With --real-keys it makes another model, of random weights with the keys of trained ones (real_keys.h).
//   make_stressed_model -m tools/demo-model/demo-q8_0.gguf --key-spread 1 -o stressed.gguf
//   tools/demo-model/corpus.py --seed 77 --count 32 --budget 2000 > text.txt
//   make_stressed_model -m tools/demo-model/demo-q8_0.gguf --value-spread 1 --key-bias 10 -f text.txt --caches tq4,tq4t/tq3t+16
#include "base/error.h"
#include "base/printable.h"
#include "model/cpu/forward.h"
#include "tests/support/stressed_forward.h"
#include "tests/support/stressed_model.h"
#include "tools/check/quality/compare.h"
#include <CLI/CLI.hpp>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>

namespace {

using namespace tq;

struct Arguments {
    std::string model, output, against, text;
    std::vector<std::string> caches{"tq4"}, conditioning{"norms"};
    uint32_t context = 2048, chunks = 4;
    test::WeightStress weights;
    quality::Stress door; // with the layers and seed of the weights
};

// Adds a flag N,FACTOR.
template <class N, class F> CLI::Option* add_factor(CLI::App& app, const char* flag, N& count, F& factor, const char* help) {
    return app
        .add_option_function<std::pair<uint32_t, double>>(
            flag, [&](const std::pair<uint32_t, double>& given) { count = given.first, factor = F(given.second); }, help)
        ->type_name("N,FACTOR")
        ->delimiter(',');
}

template <class T> CLI::Option* add_spread(CLI::App& app, const char* flag, T& spread, const char* help) {
    return app.add_option(flag, spread, help)->check(CLI::Range(0.0, 8.0))->type_name("S");
}

CLI::Option* add_tails(CLI::App& app, const char* flag, uint32_t& degrees, const char* help) {
    return app.add_option(flag, degrees, help)->check(CLI::Range(1, 1000))->type_name("DOF");
}

void add_weight_flags(CLI::App& app, test::WeightStress& s) {
    add_spread(app, "--key-spread", s.key_spread,
               "keys: factors of RoPE's pairs of channels, standard deviation of their logarithms");
    add_factor(app, "--key-outliers", s.key_outliers.count, s.key_outliers.factor, "keys: N pairs of channels times FACTOR");
    add_spread(app, "--value-spread", s.value_spread, "values: factors of channels, standard deviation of their logarithms");
    add_factor(app, "--value-outliers", s.value_outliers.count, s.value_outliers.factor,
               "values: N channels of each kv head times FACTOR");
    add_spread(app, "--value-directions", s.value_directions, "values: factors along random directions, likewise");
    add_tails(app, "--spread-tails", s.tails,
              "the logarithms of all these have Student's t distribution of DOF degrees of freedom");
    app.add_option_function<uint32_t>(
           "--real-keys", [&](uint32_t id) { s.real_keys.emplace().first_token = id; },
           "another model: a random one gets the keys of trained models, and the token ID one unlike all others")
        ->type_name("ID");
    app.add_flag("--balance-values", s.balance_values, "then balance values and attn_output, channel by channel");
}

// Returns the flags of what is done at the cache's door.
std::vector<CLI::Option*> add_door_flags(CLI::App& app, quality::Stress& s) {
    return {
        app.add_option("--key-bias", s.key_bias, "door: a bias of keys before RoPE, that many times as large as keys"),
        add_spread(app, "--head-spread", s.channel_spread,
                   "door: factors of each kv head's channels, standard deviation of their logarithms"),
        add_spread(app, "--token-spread", s.token_spread, "door: factors of vectors, likewise"),
        add_tails(app, "--heavy-tails", s.heavy_tails, "door: elements have Student's t distribution of DOF degrees of freedom"),
        add_factor(app, "--sinks", s.sinks, s.sink_factor, "door: the first N tokens' keys and values times FACTOR")};
}

std::vector<uint32_t> read_ids(const Arguments& a, const Tokenizer& tokenizer) {
    std::ifstream file(a.text, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    std::vector<uint32_t> ids = tokenizer.encode(text);
    if (ids.size() < a.context) fail("{} cannot be read, or has fewer than {} tokens", a.text, a.context);
    ids.resize(std::min<size_t>(a.chunks, ids.size() / a.context) * a.context);
    return ids;
}

// K/V or one for both, then +N for a window.
KvOptions options_of(const std::string& cache, const std::string& conditioning) {
    const size_t plus = cache.find('+'), slash = cache.find('/');
    const std::string types = cache.substr(0, plus);
    KvOptions kv{parse_kv_type(types.substr(0, slash)), parse_kv_type(slash < plus ? types.substr(slash + 1) : types)};
    if (plus != std::string::npos) {
        const char *begin = cache.data() + plus + 1, *end = cache.data() + cache.size();
        if (const auto [stop, error] = std::from_chars(begin, end, kv.window);
            error != std::errc() || stop != end || kv.window == 0)
            fail("cache '{}': + is followed by the tokens of a window, as in tq4t/tq3t+16", printable(cache));
    }
    kv.conditioning = parse_key_conditioning(conditioning);
    if (kv.conditioning.kind == KeyConditioning::Kind::measured)
        fail("keys are conditioned by norms or none, not {}", printable(conditioning));
    return kv;
}

void measure(const Arguments& a) {
    const Model model = test::make_stressed_model(a.model, a.weights);
    const std::optional<Model> against = a.against.empty() ? std::nullopt : std::optional(load_model(a.against));
    const Model& other = against ? *against : model;
    const std::vector<uint32_t> ids = read_ids(a, model.tokenizer);
    const auto reference =
        make_cpu_forward(other.config, other.weights, {.kv = {KvType::f32, KvType::f32}, .context_size = a.context});
    std::vector<std::unique_ptr<Forward>> forwards;
    std::vector<std::string> names;
    for (const std::string& cache : a.caches)
        for (const std::string& conditioning : a.conditioning) {
            forwards.push_back(test::make_stressed_forward(model, options_of(cache, conditioning), a.door, a.context));
            names.push_back(cache + " | " + conditioning);
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
    CLI::App app("Makes a variant of a model that says the same, with keys and values that are hard to quantise; writes it, and "
                 "measures caches of it. Stress is that of weights, and where a flag says so of vectors at the cache's door.");
    Arguments a;
    app.add_option("-m,--model", a.model, "model to stress")->required();
    app.add_option("-o,--output", a.output, "GGUF file to write, of a GGUF file, with stress of weights alone");
    app.add_option("-f,--file", a.text, "text to measure caches on");
    app.add_option("--caches", a.caches, "types, or keys/values, and +N for a window")->delimiter(',')->capture_default_str();
    app.add_option("--kv-condition", a.conditioning, "none, norms")->delimiter(',')->capture_default_str();
    app.add_option("--against", a.against, "the model with an exact cache to compare with; default: the stressed one");
    app.add_option("-c,--ctx-size", a.context, "tokens of a chunk")->check(CLI::Range(4, 1 << 20))->capture_default_str();
    app.add_option("--chunks", a.chunks, "number of chunks")->check(CLI::Range(1, 1000))->capture_default_str();
    add_weight_flags(app, a.weights);
    const std::vector<CLI::Option*> door = add_door_flags(app, a.door);
    app.add_option("--layers", a.weights.layers, "numbers of the layers; default: all")->delimiter(',')->type_name("LIST");
    app.add_option("--seed", a.weights.seed, "seed")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    a.door.layers = a.weights.layers;
    a.door.seed = a.weights.seed;
    if (a.output.empty() && a.text.empty())
        fail("nothing to do: say -o FILE to write the model, or -f TEXT to measure caches of it");
    for (const CLI::Option* flag : door)
        if (!a.output.empty() && flag->count() > 0)
            fail("{} is done at the cache's door, and no file of weights can hold it: measure it with -f TEXT, without -o",
                 flag->get_name());
    if (!a.output.empty()) test::write_stressed_model(a.model, a.output, a.weights);
    if (!a.text.empty()) measure(a);
    return 0;
} catch (const tq::Error& e) {
    fmt::print(stderr, "make_stressed_model: {}\n", e.what());
    return 1;
}
