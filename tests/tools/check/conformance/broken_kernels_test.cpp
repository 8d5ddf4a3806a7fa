// Checks that no broken kernel passes the commands that test a device: faults are planted in kernels, which the fault layer
// passes to the driver instead of the program's, and bench, validate and conformance each have to fail. Deviations that the
// specification allows a driver are planted too: conformance has to pass.
#include "tests/support/child_process.h"
#include "tests/support/fault_environment.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <iterator>

using namespace tq::test;
namespace fs = std::filesystem;

namespace {

// A module: its kernel's file, and its definitions (shaders/embed.cmake).
struct Module {
    std::string name, stem;
    std::vector<std::string> defines;
};

struct Fault {
    std::string file, right, wrong; // `right` occurs once in shaders/`file`
    std::vector<Module> modules;    // modules that include the file and may be in use, which depends on the device
    std::string rows;               // the filter of conformance's rows that find it
};

const std::vector<Module> attention{{"attention", "attention", {}},
                                    {"attention_subgroup", "attention", {"-DSUBGROUP"}},
                                    {"attention_texel", "attention", {"-DTEXEL"}},
                                    {"attention_per_lane", "attention_per_lane", {}},
                                    {"attention_coopmat", "attention_coopmat", {}}};

class Folder {
  public:
    Folder() { fs::create_directories(directory_.path() / "wrong"); }
    fs::path operator/(const std::string& name) const { return directory_.path() / name; }

  private:
    TemporaryDirectory directory_;
};

// Copies the shaders, with the fault, and compiles the modules that include the file.
void plant(const Fault& fault, const Folder& folder) {
    const fs::path sources = folder / "sources";
    fs::copy(fs::path(TQ_SOURCE_DIR) / "shaders", sources, fs::copy_options::recursive);
    std::string text = slurp(sources / fault.file);
    const size_t at = text.find(fault.right);
    REQUIRE_MESSAGE(at != std::string::npos, fault.file, " does not have: ", fault.right);
    REQUIRE(text.find(fault.right, at + 1) == std::string::npos);
    std::ofstream(sources / fault.file, std::ios::binary) << text.replace(at, fault.right.size(), fault.wrong);
    for (const Module& module : fault.modules) {
        const fs::path right = fs::path(TQ_SHADERS) / (module.name + ".spv"), wrong = folder / ("wrong/" + module.name + ".spv");
        if (!fs::exists(right)) continue; // a build without cooperative matrices
        std::vector<std::string> command{TQ_GLSLANG, "-V", "--target-env", "vulkan1.2"};
        command.insert(command.end(), module.defines.begin(), module.defines.end());
        command.insert(command.end(),
                       {"-I" + sources.string(), "-o", wrong.string(), (sources / (module.stem + ".comp")).string()});
        const Finished compiled = run({command, {}, {}});
        REQUIRE_MESSAGE(compiled.status == 0, compiled.output);
        CHECK(slurp(right) != slurp(wrong));
    }
}

struct Commands {
    Finished bench, validate, conformance;
};

// Runs a command with the layer; without a planted fault the layer changes nothing.
Finished run_with(const Folder& folder, std::vector<std::string> arguments) {
    const std::filesystem::path log = folder / (arguments[0] + ".log");
    arguments.insert(arguments.begin(), TQ_RUN);
    arguments.insert(arguments.end(), {"--device", "0"});
    auto environment = fault_environment({.replacements = folder / "wrong", .log = log});
    environment.push_back("TQ_CACHE_DIR=" + (folder / "cache").string());
    return run({std::move(arguments), {}, std::move(environment)});
}

Finished conform(const Folder& folder, const std::string& rows) {
    return run_with(folder, {"conformance", "--filter", rows, "--timeout", "300", "--dump", (folder / "dump").string()});
}

// The cache has no window, because a window would hold all tokens of so short a text: neither codes nor the first tokens would be
// read.
Commands judge(const Folder& folder, const std::string& rows) {
    return {run_with(folder, {"bench", "-p", "4", "-n", "2", "-r", "1", "--no-limits", "--kv-window", "0"}),
            run_with(folder, {"validate", "-p", "Once upon a time there was a tailor named Tom.", "-n", "4", "--kv-window", "0"}),
            conform(folder, rows)};
}

// Whether the last process of that command ran with a replaced kernel.
bool replaced(const Folder& folder, const std::string& command) {
    const std::string log = slurp(folder / (command + ".log"));
    REQUIRE(contains(log, "changed "));
    return !contains(log, "changed 0\n");
}

const char* const speed = "±"; // of bench's table

void check_caught(const Fault& fault) {
    const Folder folder;
    plant(fault, folder);
    const Commands got = judge(folder, fault.rows);
    for (const Finished* finished : {&got.bench, &got.validate, &got.conformance}) {
        CAPTURE(finished->output);
        CAPTURE(finished->error);
        CHECK(finished->status == 1);
    }
    CAPTURE(got.bench.error);
    if (!contains(got.bench.error, "fails the check of its kernels, so it is not used")) { // at the first use
        CHECK(replaced(folder, "bench"));
        CHECK(contains(got.bench.error, "the device computes wrong results, so nothing is timed"));
    }
    CHECK(replaced(folder, "validate"));
    CHECK_FALSE(contains(got.bench.output, speed));
    CHECK(contains(got.validate.output, "THEY DIFFER"));
    CHECK_FALSE(contains(got.validate.output, "they agree"));
    CHECK(contains(got.conformance.output, "NOT CONFORMANT"));
    CHECK(contains(got.conformance.output, "run it again: tq-run conformance --device 0 --filter '"));
    REQUIRE(fs::exists(folder / "dump"));
    for (const auto& row : fs::directory_iterator(folder / "dump"))
        for (const char* name : {"row.json", "result-0.bin", "expected-0.bin", "buffer-0.bin"})
            CHECK(fs::exists(row.path() / name));
}

} // namespace

TEST_CASE("without a fault the layer changes nothing") {
    const Folder folder;
    const Commands got = judge(folder, "rms_norm | ");
    for (const Finished* finished : {&got.bench, &got.validate, &got.conformance}) {
        CAPTURE(finished->output);
        CAPTURE(finished->error);
        CHECK(finished->status == 0);
    }
    for (const char* command : {"bench", "validate", "conformance"}) CHECK_FALSE(replaced(folder, command));
    CHECK(contains(got.bench.output, speed));
    CHECK(contains(got.validate.output, "they agree"));
    CHECK_FALSE(contains(got.validate.output, "DIFFER"));
}

TEST_CASE("rms_norm without the last column") {
    check_caught({"rms_norm.comp",
                  "i < p.cols; i += workgroup) ss",
                  "i < p.cols - 1; i += workgroup) ss",
                  {{"rms_norm", "rms_norm", {}}},
                  "rms_norm | "});
}

TEST_CASE("products without the last row") {
    const std::string format = "-DFORMAT_q8_0";
    check_caught({"matvec.glsl",
                  "+ first + r;\n            if (first + r >= row_count) break;",
                  "+ first + r;\n            if (first + r + 1 >= row_count) break;",
                  {{"matvec_q8_0", "matvec", {format}},
                   {"matvec_q8_0_texel", "matvec", {"-DTEXEL", format}},
                   {"matvec_q8_0_subgroup", "matvec", {"-DSUBGROUP", format}}},
                  "matvec | Q8_0"});
}

TEST_CASE("products of several sequences that take the first one's inputs: bench -np compares them with each alone") {
    const Folder folder;
    const std::string format = "-DFORMAT_q8_0";
    plant({"matvec.comp",
           "x(x_start + c * (p.cols / 4) + s * 64",
           "x(x_start + s * 64",
           {{"matvec_q8_0", "matvec", {format}},
            {"matvec_q8_0_texel", "matvec", {"-DTEXEL", format}},
            {"matvec_q8_0_subgroup", "matvec", {"-DSUBGROUP", format}}},
           {}},
          folder);
    const Finished got = run_with(folder, {"bench", "-np", "2", "-npp", "2", "-ntg", "1", "-r", "1"});
    CAPTURE(got.output);
    CAPTURE(got.error);
    CHECK(replaced(folder, "bench"));
    CHECK(got.status == 1);
    CHECK(contains(got.error, "the device computes other logits for a sequence in company than alone, so nothing is timed: of 2 "
                              "sequences, number "));
    CHECK_FALSE(contains(got.output, "|     2 |"));
}

TEST_CASE("a query that does not see its own key") {
    check_caught({"attention.glsl", "r / heads + 1; //", "max(r / heads, first_position == 0 ? 1u : 0u); //", attention,
                  "attention | tq4/tq4"});
}

TEST_CASE("a first token that is seen twice") {
    check_caught({"attention.glsl", ": p.sinks;", ": 0;", attention, "attention | tq4/tq4"});
}

TEST_CASE("queries turned by the angle of the next token") {
    check_caught({"q_norm_rope.comp",
                  "row_position(t));",
                  "row_position(t) + 1);",
                  {{"q_norm_rope", "q_norm_rope", {}}, {"q_norm_rope_subgroup", "q_norm_rope", {"-DSUBGROUP"}}},
                  "q_norm_rope | "});
}

TEST_CASE("unpackHalf2x16 that flushes denormals: the scales of a cache are not read by it") {
    const Folder folder;
    plant({"kv_load.glsl",
           "#include \"half_value.glsl\"\n",
           "#include \"half_value.glsl\"\n"
           "vec2 flushed(vec2 v) { return mix(v, vec2(0.0), lessThan(abs(v), vec2(exp2(-14.0)))); }\n"
           "#define unpackHalf2x16(word) flushed(unpackHalf2x16(word))\n",
           {attention.begin(), attention.end() - 1}, // the last takes fp16 numbers as they are
           {}},
          folder);
    const Finished got = conform(folder, "keys and values of +-0.0001");
    CAPTURE(got.output);
    CAPTURE(got.error);
    CHECK(replaced(folder, "conformance"));
    CHECK(got.status == 0);
    CHECK(contains(got.output, "that were run agree with the reference"));
}
