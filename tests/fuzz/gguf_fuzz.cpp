// libFuzzer: any bytes either read as a model whose every row decodes, or throw an Error of one line.
// clang++, -DTQ_FUZZ=ON; then: gguf_fuzz CORPUS_DIRECTORY, begun with a small file of make_random_model.
#include "base/error.h"
#include "model/formats/gguf.h"
#include "model/load.h"
#include <cstdlib>
#include <fstream>
#include <unistd.h>

namespace {

// MappedFile wants a file: one of this process, in memory where the system has that.
const std::filesystem::path& input_path() {
    static const auto path = std::filesystem::path(std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp") /
                             ("gguf_fuzz." + std::to_string(::getpid()));
    static const bool registered = std::atexit([] { std::filesystem::remove(input_path()); }) == 0;
    static_cast<void>(registered);
    return path;
}

void decode_first_rows(const tq::Weights& weights) {
    for (const tq::Tensor* t : {&weights.token_embd, &weights.output_norm, &weights.output}) {
        std::vector<float> row(t->cols);
        tq::decode_row(t->type, row, t->row(t->rows - 1));
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::ofstream(input_path(), std::ios::binary).write(reinterpret_cast<const char*>(data), std::streamsize(size));
    try {
        const tq::ModelFile file = tq::read_gguf(input_path());
        const tq::Config config = tq::read_config(file);
        const tq::Weights weights = tq::read_weights(file, config);
        decode_first_rows(weights);
        tq::ThreadPool pool(1);
        tq::load_weights(pool, weights);
    } catch (const tq::Error& e) {
        if (std::string_view(e.what()).find('\n') != std::string_view::npos) std::abort();
    }
    return 0;
}
