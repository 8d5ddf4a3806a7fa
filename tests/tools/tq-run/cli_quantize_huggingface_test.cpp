// tq-run quantize on Hugging Face directories with settings that GGUF files, or llama.cpp, do not have.
#include "tests/support/huggingface_files.h"
#include "tests/tools/tq-run/quantized.h"

using namespace tq;
using namespace tq::test;
namespace fs = std::filesystem;

TEST_CASE("Llama 3's scaling of RoPE, which GGUF files of Qwen3 lack, is refused before a byte is written") {
    HuggingFaceFiles files = small_huggingface_model();
    files.documents["config.json"]["rope_scaling"] = {{"rope_type", "llama3"},
                                                      {"factor", 8.0},
                                                      {"low_freq_factor", 1.0},
                                                      {"high_freq_factor", 4.0},
                                                      {"original_max_position_embeddings", 64}};
    const TemporaryDirectory from;
    files.write(from);
    CHECK(logits(from.path().string()) != "");
    const Place place;
    for (const char* type : {"F16", "Q8_0"})
        check_refused(quantize({from.path().string(), place.path("out.gguf"), type}), 1,
                      "RoPE has the scaling of Llama 3, which GGUF files of 'qwen3' cannot have: run the directory itself");
    CHECK(fs::is_empty(place.directory.path()));
}
