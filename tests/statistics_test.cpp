// Drivers' own names for what they say of a kernel, and compiling kernels without running them.
#include "runtime/compiler.h"
#include "runtime/device.h"
#include "test_shaders.gen.h"
#include <cstdlib>
#include <doctest/doctest.h>
using namespace tq;

namespace {

Statistic count(const char* name, uint64_t value, const char* description = "") { return {name, description, value}; }

} // namespace

TEST_CASE("RADV's statistics") {
    const std::vector<Statistic> all{
        count("SGPRs", 128),     count("VGPRs", 64),      count("Spilled SGPRs", 3),  count("Spilled VGPRs", 4),
        count("Code size", 900), count("LDS size", 2048), count("Scratch size", 512), count("Subgroups per SIMD", 16)};
    const StatisticsSummary s = summarise(all);
    CHECK(s.vgprs == 64u);
    CHECK(s.sgprs == 128u);
    CHECK(s.spilled == 7u);
    CHECK(s.scratch_bytes == 512u);
    CHECK(s.lds_bytes == 2048u);
    CHECK(s.code_bytes == 900u);
    CHECK(s.occupancy == 16u);
}

TEST_CASE("ANV's, Turnip's and NVIDIA's, and what is not said stays empty") {
    const std::vector<Statistic> anv{count("Spill Count", 2), count("Fill Count", 5), count("Scratch Memory Size", 64),
                                     count("Max live registers", 90), count("Workgroup Memory Size", 128)};
    CHECK(summarise(anv).spilled == 2u);
    CHECK(summarise(anv).scratch_bytes == 64u);
    CHECK(summarise(anv).vgprs == 90u);
    CHECK(summarise(anv).lds_bytes == 128u);
    CHECK_FALSE(summarise(anv).sgprs);
    CHECK_FALSE(summarise(anv).occupancy);
    const std::vector<Statistic> turnip{count("Max Waves Per Core", 8), count("Registers used", 20), count("STP Count", 1),
                                        count("Code size", 100, "Total number of dwords in the final generated shader")};
    CHECK(summarise(turnip).occupancy == 8u);
    CHECK(summarise(turnip).vgprs == 20u);
    CHECK(summarise(turnip).spilled == 1u);
    CHECK(summarise(turnip).code_bytes == 400u);
    const std::vector<Statistic> nvidia{{"Register Count", "", int64_t(40)}, {"Binary Size", "", 1000.0}};
    CHECK(summarise(nvidia).vgprs == 40u);
    CHECK(summarise(nvidia).code_bytes == 1000u);
    CHECK_FALSE(summarise(nvidia).spilled);
    CHECK_FALSE(summarise({}).vgprs);
}

TEST_CASE("of several programs the worst counts") {
    std::vector<KernelStatistics> programs(3);
    programs[0].summary = {.vgprs = 10, .occupancy = 16};
    programs[1].summary = {.vgprs = 90, .spilled = 1, .occupancy = 4};
    const StatisticsSummary s = worst(programs);
    CHECK(s.vgprs == 90u);
    CHECK(s.spilled == 1u);
    CHECK(s.occupancy == 4u);
    CHECK_FALSE(s.scratch_bytes);
}

TEST_CASE("kernels compile without memory, and one that needs scratch memory is noticed") {
    Compiler compiler;
    const auto small = compiler.compile(test_shader::private_array, std::vector<uint32_t>{4});
    const auto large = compiler.compile(test_shader::private_array, std::vector<uint32_t>{4000});
    if (!compiler.has_statistics()) {
        CHECK(small.empty());
        MESSAGE("this driver has no statistics");
        return;
    }
    REQUIRE(!small.empty());
    for (const KernelStatistics& program : small) CHECK(!program.all.empty());
    if (const auto scratch = worst(large).scratch_bytes) CHECK(*scratch >= 4000 * 4);
    CHECK(worst(small).scratch_bytes.value_or(0) == 0);
    if (std::getenv("RADV_FORCE_FAMILY") == nullptr) return;
    CHECK(worst(large).scratch_bytes.has_value()); // RADV says it all
    CHECK(worst(large).vgprs.has_value());
    CHECK(worst(large).spilled.has_value());
    CHECK_THROWS_WITH(Device(), doctest::Contains("it offers no memory")); // to compile is all it can do
}
