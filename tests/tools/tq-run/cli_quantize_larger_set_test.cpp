// tq-run quantize on directories of hybrids of the larger set: the order of value heads differs in GGUF files.
#include "model/files/formats/open.h"
#include "tests/support/child_process.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <cmath>
#include <doctest/doctest.h>
#include <sstream>

using namespace tq;
using namespace tq::test;

static std::vector<double> logits(const std::string& model) {
    const Finished finished = tq_run({"logits", "-m", model, "--device", "cpu", "--ids", "1,2,3,4,5,6,7,8"});
    CAPTURE(finished.error);
    CHECK(finished.status == 0);
    std::istringstream text(finished.output);
    std::vector<double> out;
    for (double one; text >> one;) out.push_back(one);
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
        const std::vector<double> expected = logits(from), given = logits(to);
        REQUIRE(given.size() == expected.size());
        double greatest = 0, most = 0;
        for (size_t i = 0; i < given.size(); i++) {
            greatest = std::max(greatest, std::fabs(expected[i]));
            most = std::max(most, std::fabs(given[i] - expected[i]));
        }
        CHECK(most < 1e-4 * greatest); // sums have another order
    }
}
