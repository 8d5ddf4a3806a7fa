// The names that drivers give to statistics of a kernel, and compiling kernels without running them.
#include "base/error.h"
#include "runtime/compiler.h"
#include "runtime/device.h"
#include "test_shaders.gen.h"
#include "tests/support/skip.h"
#include <cstdlib>
#include <doctest/doctest.h>
#include <optional>
using namespace tq;

namespace {

Statistic count(const char* name, uint64_t value, const char* description = "") { return {name, description, value}; }

// Nothing if the driver refuses to compile as many words of private memory, as NVIDIA's does (VK_ERROR_UNKNOWN).
std::optional<std::vector<KernelStatistics>> compile_array(Compiler& compiler, uint32_t words) {
    try {
        return compiler.compile(test_shader::private_array, std::vector<uint32_t>{words});
    } catch (const Error& error) {
        test::skip(error.what());
        CHECK_MESSAGE(std::string(error.what()).find("compiling the kernel private_array") != std::string::npos, error.what());
        return std::nullopt;
    }
}

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

TEST_CASE("ANV 26 says no registers but those that are live, before Xe3") {
    std::vector<Statistic> anv{count("Instructions", 1320),
                               count("Code size", 26736),
                               count("SENDs", 9),
                               count("Spills", 0),
                               count("Fills", 0),
                               count("Scratch Memory Size", 0),
                               count("GRF registers", 0),
                               count("Push constant ranges", 1),
                               count("Max dispatch width", 16),
                               count("Max live registers", 113),
                               count("Workgroup Memory Size", 512)};
    CHECK(summarise(anv).vgprs == 113u);
    CHECK(summarise(anv).spilled == 0u);
    CHECK(summarise(anv).scratch_bytes == 0u);
    CHECK(summarise(anv).code_bytes == 26736u);
    anv[6] = count("GRF registers", 128); // from Xe3 on
    CHECK(summarise(anv).vgprs == 128u);
}

TEST_CASE("NVK's arrays in local memory are no spills, and what it spills is") {
    std::vector<Statistic> nvk{count("Instruction count", 900), count("Static cycle count", 61108), count("Max warps/SM", 28),
                               count("Spills to memory", 0),    count("Fills from memory", 0),      count("Spills to reg", 12),
                               count("Fills from reg", 12),     count("Code size", 14400),          count("Number of GPRs", 72),
                               count("SLM size", 256)};
    CHECK(summarise(nvk).spilled == 0u);
    CHECK_FALSE(summarise(nvk).scratch_bytes);
    CHECK(summarise(nvk).array_bytes == 256u);
    CHECK(summarise(nvk).vgprs == 72u);
    CHECK(summarise(nvk).occupancy == 28u);
    CHECK(summarise(nvk).code_bytes == 14400u);
    nvk[3] = count("Spills to memory", 7);
    CHECK(summarise(nvk).spilled == 7u);
}

TEST_CASE("Honeykrisp, PanVK, V3DV and Turnip say what they spill each in their words") {
    const std::vector<Statistic> honeykrisp{count("Instructions", 400), count("Code size", 3000), count("GPRs", 252),
                                            count("Uniforms", 20),      count("Scratch", 968),    count("Threads", 384),
                                            count("Spills", 30),        count("Fills", 41)};
    CHECK(summarise(honeykrisp).vgprs == 252u);
    CHECK(summarise(honeykrisp).scratch_bytes == 968u);
    CHECK(summarise(honeykrisp).spilled == 30u);
    CHECK(summarise(honeykrisp).occupancy == 384u);
    const std::vector<Statistic> panvk{count("Code size", 2048), count("Threads", 1),    count("Spills", 14),
                                       count("Fills", 20),       count("Spill cost", 3), count("Registers used", 64)};
    CHECK(summarise(panvk).vgprs == 64u);
    CHECK(summarise(panvk).spilled == 14u);
    const std::vector<Statistic> v3dv{{"Compile Strategy", "", uint64_t(2)},
                                      count("Instruction Count", 800),
                                      count("Thread Count", 2),
                                      count("Spill Size", 5632),
                                      count("TMU Spills", 0),
                                      count("TMU Fills", 0),
                                      count("QPU Read Stalls", 40)};
    CHECK(summarise(v3dv).scratch_bytes == 5632u);
    CHECK(summarise(v3dv).spilled == 0u);
    CHECK(summarise(v3dv).occupancy == 2u);
    CHECK_FALSE(summarise(v3dv).vgprs);
    const std::vector<Statistic> turnip{count("Registers used", 48), count("Half-registers used", 20), count("STP Count", 66),
                                        count("LDP Count", 80)};
    CHECK(summarise(turnip).spilled == 66u);
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
    const auto large = compile_array(compiler, 4000);
    if (!compiler.has_statistics()) {
        CHECK(small.empty());
        test::skip("this driver has no statistics");
        return;
    }
    REQUIRE(!small.empty());
    for (const KernelStatistics& program : small) CHECK(!program.all.empty());
    if (const auto scratch = worst(large.value_or(small)).scratch_bytes; large && scratch) CHECK(*scratch >= 4000 * 4);
    CHECK(worst(small).scratch_bytes.value_or(0) <= 64); // a driver may place even four words there, which RADV does not
    if (std::getenv("RADV_FORCE_FAMILY") == nullptr) return;
    CHECK(worst(small).scratch_bytes == 0u);
    REQUIRE(large); // RADV compiles it, and reports all statistics
    CHECK(worst(*large).scratch_bytes.has_value());
    CHECK(worst(*large).vgprs.has_value());
    CHECK(worst(*large).spilled.has_value());
    CHECK_THROWS_WITH(Device(), doctest::Contains("it offers no memory")); // it can only compile
}
