// A GGUF file: the model in it is read, and the last row of each tensor decoded, with its factor.
#include "model/files/formats/gguf.h"
#include "model/load.h"
#include "tests/fuzz/fuzz_target.h"

static void decode_last_rows(const tq::Weights& weights) {
    std::vector<std::byte> scratch;
    tq::for_each_tensor(weights, [&](const tq::Tensor& t) {
        std::vector<float> row(t.cols);
        t.decode(t.rows - 1, row, scratch);
    });
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    tq::fuzz::write("model.gguf", tq::fuzz::text(data, size));
    return tq::fuzz::run([] {
        const tq::ModelFile file = tq::read_gguf(tq::fuzz::directory() / "model.gguf");
        const tq::Config config = tq::read_config(file);
        const tq::Weights weights = tq::read_weights(file, config);
        decode_last_rows(weights);
        tq::ThreadPool pool(1);
        tq::load_weights(pool, weights);
    });
}
