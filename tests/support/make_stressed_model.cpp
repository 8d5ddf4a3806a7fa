// make_stressed_model: writes a variant of a GGUF file that says the same, with keys and values that are hard to quantise
// (stressed_model.h).
#include "base/error.h"
#include "tests/support/stressed_model.h"
#include <CLI/CLI.hpp>

namespace {

void add_outliers(CLI::App& app, const char* flag, std::pair<uint32_t, double>& outliers, const char* help) {
    app.add_option(flag, outliers, help)->type_name("N,FACTOR")->delimiter(',');
}

void add_spread(CLI::App& app, const char* flag, double& spread, const char* help) {
    app.add_option(flag, spread, help)->check(CLI::Range(0.0, 8.0))->type_name("S");
}

} // namespace

int main(int argc, char** argv) try {
    CLI::App app("Writes a variant of a GGUF file that says the same, with keys and values that are hard to quantise.");
    std::string from, to;
    tq::test::WeightStress stress;
    std::pair<uint32_t, double> keys{0, 1}, values{0, 1};
    app.add_option("from", from, "GGUF file")->required();
    app.add_option("to", to, "file to write")->required();
    add_spread(app, "--key-spread", stress.key_spread,
               "keys: factors of RoPE's pairs of channels, standard deviation of their logarithms");
    add_outliers(app, "--key-outliers", keys, "keys: N pairs of channels times FACTOR");
    add_spread(app, "--value-spread", stress.value_spread, "values: factors of channels, standard deviation of their logarithms");
    add_outliers(app, "--value-outliers", values, "values: N channels of each kv head times FACTOR");
    add_spread(app, "--value-directions", stress.value_directions, "values: factors along random directions, likewise");
    app.add_option("--heavy-tails", stress.tails,
                   "logarithms of factors have Student's t distribution of DOF degrees of freedom, not a normal one")
        ->check(CLI::Range(1, 1000))
        ->type_name("DOF");
    app.add_option("--layers", stress.layers, "numbers of the layers; default: all")->delimiter(',')->type_name("LIST");
    app.add_flag("--balance-values", stress.balance_values, "then balance values and attn_output, channel by channel");
    app.add_option("--seed", stress.seed, "seed")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    stress.key_outliers = {keys.first, keys.second};
    stress.value_outliers = {values.first, values.second};
    tq::test::write_stressed_model(from, to, stress);
    return 0;
} catch (const tq::Error& e) {
    fmt::print(stderr, "make_stressed_model: {}\n", e.what());
    return 1;
}
