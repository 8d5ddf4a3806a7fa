// The CPU forward pass on the larger set of tiny models: a whole one of every weight format.
#include "model/cpu/forward.h"
#include "model/reference/forward.h"
#include "tests/support/embeddings.h"

using namespace tq;

static void check_on_cpu(const Golden& golden) {
    check_golden(golden,
                 *make_cpu_forward(golden.config, golden.weights, {.kv = {KvType::f32, KvType::f32}, .context_size = 64}));
}

TEST_CASE("the CPU path gives the golden logits and greedy tokens of every weight format") {
    for (const auto& path : larger_set_golden_files()) check_on_cpu(load_golden(path));
}

TEST_CASE("the CPU path and the reference give the golden logits and greedy tokens of other architectures") {
    for (const auto& path : other_architectures()) {
        const Golden golden = load_golden(path);
        check_on_cpu(golden);
        check_golden(golden, *make_reference_forward(golden.config, golden.weights,
                                                     {.kv = {KvType::f32, KvType::f32}, .context_size = 64}, {}));
    }
}

TEST_CASE("the CPU path and the reference give the golden vectors of texts") {
    for (const GoldenEmbeddings& golden : golden_embeddings()) {
        const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 128};
        check_embeddings(golden, *make_cpu_forward(golden.model.config, golden.model.weights, options));
        check_embeddings(golden, *make_reference_forward(golden.model.config, golden.model.weights, options, {}));
    }
}

TEST_CASE("weights quantised at load run as the file of that format does; others stay") {
    const auto folder = larger_set("qwen3-tiny");
    if (!folder) return;
    Golden golden = load_golden(*folder / "tiny-q8_0.gguf");
    CHECK(quantise(golden.weights, GgmlType::Q4_0) == 0);
    const ModelFile f32 = open_model_file(*folder / "tiny-f32.gguf");
    golden.weights = read_weights(f32, golden.config);
    quantise(golden.weights, GgmlType::Q8_0);
    check_on_cpu(golden);
}
