// make_codec_golden: writes tests/data/codec_golden.bin. Its bytes must not change: run it again only when the format changes.
#include "base/error.h"
#include "tests/support/codec_golden.h"
#include <CLI/CLI.hpp>

int main(int argc, char** argv) try {
    CLI::App app("Writes the codec's golden vectors.");
    std::string path;
    app.add_option("file", path, "file to write")->required();
    CLI11_PARSE(app, argc, argv);
    tq::test::write_codec_golden(path, tq::test::make_codec_golden());
    return 0;
} catch (const tq::Error& e) {
    fmt::print(stderr, "make_codec_golden: {}\n", e.what());
    return 1;
}
