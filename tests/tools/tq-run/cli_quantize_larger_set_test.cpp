// tq-run quantize on directories of hybrids of the larger set: the order of value heads differs in GGUF files.
#include "model/files/formats/open.h"
#include "tests/support/child_process.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include "tests/tools/tq-run/quantized.h"
#include <cmath>
#include <doctest/doctest.h>
#include <sstream>

using namespace tq;
using namespace tq::test;

static std::vector<double> numbers(const std::string& text) {
    std::istringstream stream(text);
    std::vector<double> out;
    for (double one; stream >> one;) out.push_back(one);
    return out;
}

TEST_CASE("hybrids of Hugging Face's form have the same logits as GGUF files") {
    const auto folder = larger_set("qwen35");
    if (!folder) return;
    const TemporaryDirectory place;
    for (const char* name : {"q35-hf", "q35moe-hf", "q3next-hf"}) {
        CAPTURE(name);
        const std::string from = (*folder / name).string(), to = (place.path() / name).string() + ".gguf";
        const Finished finished = tq_run({"quantize", from, to, "F32"});
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        const ModelFile made = open_model_file(to);
        CHECK(!made.find(architecture_of(made).key("ssm.v_head_reordered"))); // its heads are as the architecture has them
        const std::vector<double> expected = numbers(logits(from)), given = numbers(logits(to));
        REQUIRE(given.size() == expected.size());
        double largest = 0, difference = 0;
        for (size_t i = 0; i < given.size(); i++) {
            largest = std::max(largest, std::fabs(expected[i]));
            difference = std::max(difference, std::fabs(given[i] - expected[i]));
        }
        CHECK(difference < 1e-4 * largest); // sums have another order
    }
}
