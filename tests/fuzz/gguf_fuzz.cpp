// A GGUF file: the model in it is read, and the last rows decoded.
#include "model/files/formats/gguf.h"
#include "model/load.h"
#include "tests/fuzz/fuzz_target.h"

static void decode_last_rows(const tq::Weights& weights) {
    for (const tq::Tensor* t : {&weights.token_embd, &weights.output_norm, &weights.output}) {
        std::vector<float> row(t->cols);
        tq::decode_row(t->type, row, t->row(t->rows - 1));
    }
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
