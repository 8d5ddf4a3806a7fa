// make_outlier_model: writes an equivalent variant of a GGUF file whose keys are hard to quantise (outlier_model.h).
#include "base/error.h"
#include "tests/support/outlier_model.h"
#include <CLI/CLI.hpp>

int main(int argc, char** argv) try {
    CLI::App app("Writes a variant of a GGUF file that says the same, with channels of keys scaled at random.");
    std::string from, to;
    double spread = 1;
    uint64_t seed = 1;
    app.add_option("from", from, "GGUF file with norms in F32")->required();
    app.add_option("to", to, "file to write")->required();
    app.add_option("--spread", spread, "standard deviation of the scales' logarithms")
        ->check(CLI::Range(0.0, 8.0))
        ->capture_default_str();
    app.add_option("--seed", seed, "seed")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    tq::test::write_outlier_model(from, to, spread, seed);
    return 0;
} catch (const tq::Error& e) {
    fmt::print(stderr, "make_outlier_model: {}\n", e.what());
    return 1;
}
