// The folder that --dump writes for a row that is wrong: it can be run again, with other modules and on other drivers, and its
// AmberScript has the same modules, buffers and expectations.
#include "model/gpu/recurrent.h"
#include "tests/support/child_process.h"
#include "tests/support/fault_environment.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include "tools/check/conformance/evidence.h"
#include "tools/check/conformance/recording.h"
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

using namespace tq;
using namespace tq::test;
using namespace std::string_literals;
namespace fs = std::filesystem;
using nlohmann::json;
using Words = std::vector<uint32_t>;

namespace {

Words words_of(const fs::path& file) {
    const std::string bytes = slurp(file);
    Words words(bytes.size() / 4);
    std::memcpy(words.data(), bytes.data(), words.size() * 4);
    return words;
}

void write(const fs::path& file, const Words& words) {
    std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(words.data()), std::streamsize(words.size() * 4));
}

// The folder of the only row, which was wrong because the fault layer had changed the kernel.
class Dumped {
  public:
    Dumped(const std::string& kernel, const std::string& rewrite, const std::string& row) {
        auto environment = fault_environment({.kernel = kernel, .rewrite = rewrite});
        const Finished finished = run(
            {{TQ_RUN, "conformance", "--device", "0", "--filter", row, "--timeout", "20", "--dump", directory_.path().string()},
             "",
             environment});
        CAPTURE(finished.output);
        CHECK(finished.status == 1);
        for (const auto& one : fs::directory_iterator(directory_.path())) folder_ = one.path();
        REQUIRE(fs::exists(folder_ / "row.json"));
    }
    const fs::path& folder() const { return folder_; }
    json row() const { return json::parse(slurp(folder_ / "row.json")); }
    static Finished replay(const fs::path& folder, std::vector<std::string> more = {}) {
        more.insert(more.begin(), {TQ_RUN, "conformance", "--device", "0", "--replay", folder.string()});
        return run({more, "", {}});
    }

  private:
    TemporaryDirectory directory_;
    fs::path folder_;
};

// The first row of rms_norm in this build.
std::string row_of(const std::string& kernel) {
    const std::string list = run({{TQ_RUN, "conformance", "--list", "--filter", kernel + " | own*"}, "", {}}).output;
    return list.substr(0, list.find('\n'));
}

// The last kernel that a row runs on this device.
std::string kernel_of(const std::string& row) {
    REQUIRE(!row.empty());
    const TemporaryDirectory directory;
    const fs::path report = directory.path() / "report.json";
    REQUIRE(run({{TQ_RUN, "conformance", "--device", "0", "--filter", row, "--json", report.string()}, "", {}}).status == 0);
    return json::parse(slurp(report)).at("devices")[0].at("rows")[0].at("dispatches").back().at("kernel");
}

// The module with the first of its multiplications made an addition.
Words broken(Words module) {
    constexpr uint32_t fmul = 133, fadd = 129;
    for (size_t at = 5; at < module.size(); at += module[at] >> 16)
        if ((module[at] & 0xffff) == fmul) {
            module[at] = module[at] - fmul + fadd;
            return module;
        }
    FAIL("it multiplies nothing");
    return module;
}

} // namespace

TEST_CASE("a row that crashes or hangs the compiler leaves its modules and inputs") {
    for (const char* rewrite : {"CRASH", "HANG"}) {
        const Dumped dumped("rms_norm", rewrite, row_of("rms_norm"));
        CHECK(dumped.row().at("reason") == "it did not end");
        CHECK(fs::exists(dumped.folder() / "rms_norm.spv"));
        CHECK(fs::exists(dumped.folder() / "buffer-0.bin"));
        const Finished here = Dumped::replay(dumped.folder()); // on a driver that does not crash
        CHECK(contains(here.output, "rms_norm"));
        CHECK(contains(here.output, "NOT TESTED: it ran to its end here"));
        CHECK(here.status == 77);
    }
}

TEST_CASE("a recorded row is right with its own module, and as wrong as it was with the one that the driver had") {
    const Dumped dumped("rms_norm", "FMul:1=FAdd", row_of("rms_norm"));
    const Finished right = Dumped::replay(dumped.folder());
    CAPTURE(right.output);
    CAPTURE(right.error);
    CHECK(right.status == 0);
    CHECK(contains(right.output, ": right; other than the recorded result"));
    const TemporaryDirectory other;
    const fs::path module = other.path() / "rms_norm.spv";
    write(module, broken(words_of(dumped.folder() / "rms_norm.spv")));
    const Finished wrong = Dumped::replay(dumped.folder(), {"--spirv", module.string()});
    CHECK(wrong.status == 1);
    CHECK(contains(wrong.output, ": wrong, "));
    fs::copy(dumped.folder() / "rms_norm.spv", other.path() / "any-name.spv"); // the only kernel
    CHECK(Dumped::replay(dumped.folder(), {"--spirv", (other.path() / "any-name.spv").string()}).status == 0);
}

TEST_CASE("rows of several kinds can be run again") {
    const auto rows = {std::pair(row_of("swiglu"), "FMul:1=FAdd"),
                       {row_of("gated_norm"), "FMul:1=FAdd"},
                       {"kv_append | tq4, own | values of every kind, head_dim 128"s, "FMul:5=FAdd"}};
    for (const auto& [row, fault] : rows) {
        CAPTURE(row);
        const Dumped dumped(kernel_of(row), fault, row);
        const Finished finished = Dumped::replay(dumped.folder());
        CAPTURE(finished.output);
        CHECK(finished.status == 0);
    }
}

TEST_CASE("a folder that is damaged, and a module that does not fit, are refused") {
    const Dumped dumped("rms_norm", "FMul:1=FAdd", row_of("rms_norm"));
    const json row = dumped.row();
    const auto changed = [&](const char* pointer, const json& value) {
        json other = row;
        other[json::json_pointer(pointer)] = value;
        std::ofstream(dumped.folder() / "row.json") << other.dump();
        const Finished refused = Dumped::replay(dumped.folder());
        CAPTURE(pointer);
        CAPTURE(value.dump());
        CAPTURE(refused.error);
        CHECK(refused.status == 1);
        CHECK(refused.error.starts_with("tq-run: "));
        CHECK(std::ranges::count(refused.error, '\n') == 1);
    };
    changed("/dispatches/0/groups/0", 4'000'000'000u);
    changed("/dispatches/0/groups", json::array({1}));
    changed("/dispatches/0/specialisation", json::array());
    changed("/dispatches/0/specialisation/0", 0);
    changed("/dispatches/0/specialisation/0", 1u << 31);
    changed("/dispatches/0/push_constants", json::array({1}));
    changed("/dispatches/0/kernel", "../other");
    changed("/dispatches/0/kernel", "none");
    changed("/dispatches/0/buffers", json::array());
    changed("/dispatches/0/buffers/0/before", "/etc/passwd");
    changed("/dispatches/0/buffers/0/offset", 1ull << 60);
    changed("/dispatches/0/buffers/0/offset", 4);
    changed("/dispatches/0/buffers/0/bytes", 0);
    changed("/dispatches/0/buffers/0/bytes", UINT64_MAX);
    changed("/comparisons/0/expected", "buffer-0.bin");
    changed("/comparisons/0/type", 7);
    changed("/comparisons/0/after_dispatches", 9999);
    changed("/complete", false);
    std::ofstream(dumped.folder() / "row.json") << row.dump();
    REQUIRE(Dumped::replay(dumped.folder()).status == 0);
    const TemporaryDirectory other;
    const fs::path module = other.path() / "rms_norm.spv";
    const Words good = words_of(dumped.folder() / "rms_norm.spv");
    Words short_one(good.begin(), good.begin() + 5), longest = good;
    longest[5] = 0xffff0000u | (longest[5] & 0xffff);
    for (const Words& wrong : {Words{}, Words{1, 2, 3, 4, 5, 6}, short_one, longest}) {
        write(module, wrong);
        const Finished refused = Dumped::replay(dumped.folder(), {"--spirv", module.string()});
        CAPTURE(refused.error);
        CHECK(refused.status == 1);
        CHECK(std::ranges::count(refused.error, '\n') == 1);
    }
    CHECK(Dumped::replay(other.path()).status == 1);
    CHECK(Dumped::replay("/no/such/folder").status == 1);
    CHECK(run({{TQ_RUN, "conformance", "--spirv", module.string()}, "", {}}).status == 2);
}

namespace {

// A number without a point is a whole number to Amber, which reads NaN, but no infinity.
bool same_float(const std::string& text, float number) {
    if (std::isnan(number)) return text == "nan";
    return contains(text, ".") && float(std::strtod(text.c_str(), nullptr)) == number;
}

// Reads an AmberScript of the kind that is written; anything else fails the test.
struct Amber {
    std::vector<Words> shaders;
    std::map<std::string, std::vector<std::string>> buffers; // values
    std::map<std::string, std::string> types;
    std::vector<std::vector<std::string>> pipelines;       // lines
    std::vector<std::string> runs, expectations, commands; // commands: both, in their order

    explicit Amber(const std::string& text) {
        std::istringstream in(text);
        std::string line;
        std::getline(in, line);
        CHECK(line == "#!amber");
        while (std::getline(in, line)) {
            std::istringstream words(line);
            std::string word, name, type, more;
            words >> word >> type >> name >> more;
            if (word.empty() || word[0] == '#' || word == "DEVICE_FEATURE" || word == "DEVICE_EXTENSION") continue;
            if (line == "SET ENGINE_DATA fence_timeout_ms 60000") continue;
            if (word == "RUN" || word == "EXPECT") commands.push_back(line);
            if (word == "SHADER") {
                CHECK(line == "SHADER compute " + name + " SPIRV-HEX");
                read_shader(in);
            } else if (word == "BUFFER") {
                std::istringstream again(line);
                again >> word >> name >> word >> type >> more;
                CHECK(line == "BUFFER " + name + " DATA_TYPE " + type + " DATA");
                types[name] = type;
                while (std::getline(in, line) && line != "END") {
                    std::istringstream values(line);
                    for (std::string value; values >> value;) buffers[name].push_back(value);
                }
            } else if (word == "PIPELINE") {
                pipelines.emplace_back();
                while (std::getline(in, line) && line != "END") pipelines.back().push_back(line);
            } else if (word == "RUN") {
                runs.push_back(line);
            } else if (word == "EXPECT") {
                expectations.push_back(line);
            } else {
                FAIL("another statement: ", line);
            }
        }
    }

    // Reads a shader as Amber does: bytes in hexadecimal until END, which may not follow a space.
    void read_shader(std::istream& in) {
        std::string text;
        for (std::string line; std::getline(in, line);) {
            text += line + '\n';
            if (line.ends_with("END")) break;
        }
        const size_t end = text.find("END");
        REQUIRE(end != std::string::npos);
        CHECK(std::isxdigit(static_cast<unsigned char>(text[end - 1])) != 0);
        std::istringstream bytes(text.substr(0, end));
        std::vector<uint8_t> all;
        for (std::string byte; bytes >> byte;) all.push_back(uint8_t(std::stoul(byte, nullptr, 16)));
        REQUIRE(all.size() % 4 == 0);
        Words& words = shaders.emplace_back(all.size() / 4);
        std::memcpy(words.data(), all.data(), all.size());
    }
};

} // namespace

TEST_CASE("the AmberScript of a row has its modules with the values of their constants, its buffers, and what is expected") {
    const Dumped dumped("rms_norm", "FMul:1=FAdd", row_of("rms_norm"));
    const json row = dumped.row();
    const Amber amber(slurp(dumped.folder() / "row.amber"));
    REQUIRE(!amber.shaders.empty());
    const Words module = words_of(dumped.folder() / "rms_norm.spv");
    REQUIRE(amber.shaders[0].size() == module.size());
    size_t differing = 0;
    for (size_t i = 0; i < module.size(); i++) differing += amber.shaders[0][i] != module[i];
    CHECK(differing <= row.at("dispatches")[0].at("specialisation").size() + 3); // and the workgroup's size
    CHECK(differing > 0);                                                        // the workgroup's size is 1 in the module
    REQUIRE(amber.pipelines.size() == row.at("dispatches").size());
    REQUIRE(amber.runs.size() == row.at("dispatches").size());
    for (size_t i = 0; i < amber.runs.size(); i++) {
        const auto& step = row.at("dispatches")[i];
        CHECK(amber.runs[i] == fmt::format("RUN pipeline_{} {} {} {}", i, step.at("groups")[0].get<int>(),
                                           step.at("groups")[1].get<int>(), step.at("groups")[2].get<int>()));
        size_t bound = 0;
        for (const std::string& line : amber.pipelines[i]) bound += contains(line, "DESCRIPTOR_SET 0 BINDING ");
        CHECK(bound == step.at("buffers").size());
        std::vector<std::string> push;
        for (const auto& word : step.at("push_constants")) push.push_back(word.dump());
        CHECK(amber.buffers.at(fmt::format("push_{}", i)) == push);
        for (const auto& one : step.at("buffers")) {
            const std::string file = one.at("before"), name = fmt::format("buffer_{}", file.substr(7, file.find('.') - 7));
            const Words words = words_of(dumped.folder() / file);
            const auto& values = amber.buffers.at(name);
            REQUIRE(values.size() == words.size());
            for (size_t w = 0; w < words.size(); w++) {
                const float number = std::bit_cast<float>(words[w]);
                const bool same =
                    amber.types.at(name) == "float" ? same_float(values[w], number) : std::stoul(values[w]) == words[w];
                if (!same) CHECK_MESSAGE(same, name, " ", w, ": ", values[w]);
            }
        }
    }
    const auto found = std::ranges::find_if(
        amber.expectations, [](const std::string& line) { return contains(line, " RMSE_BUFFER expected_0 TOLERANCE "); });
    REQUIRE(found != amber.expectations.end());
    const std::string norm = *found;
    const Words expected = words_of(dumped.folder() / "expected-0.bin");
    const auto& values = amber.buffers.at("expected_0");
    for (size_t i = 0; i < expected.size(); i++)
        CHECK(std::strtof(values.at(i).c_str(), nullptr) == std::bit_cast<float>(expected[i]));
    const double tolerance = std::stod(norm.substr(norm.rfind(' ')));
    const double allowed = row.at("comparisons")[0].at("allowed_norm_of_difference");
    CHECK(tolerance * std::sqrt(double(values.size())) == doctest::Approx(allowed));
    std::vector<std::string> elements; // each of them, as a NaN passes the norm
    for (auto one = amber.expectations.begin(); one != found; one++) {
        std::istringstream line(*one);
        std::string word, buffer, offset, bound;
        line >> word >> buffer >> word >> offset >> word >> bound >> word;
        CHECK(std::stoul(offset) == elements.size() * 4);
        CHECK(std::stod(bound) == doctest::Approx(allowed));
        while (line >> word) elements.push_back(word);
    }
    CHECK(elements == std::vector(values.begin(), values.begin() + ptrdiff_t(expected.size())));
}

// Its dispatches write the same buffer, one after the other.
TEST_CASE("a comparison is of the buffer as it was between two dispatches, in a replay and in the AmberScript") {
    const Dumped dumped("delta_inputs", "FMul:1=FAdd", row_of("delta_inputs"));
    const Finished finished = Dumped::replay(dumped.folder());
    CAPTURE(finished.output);
    CAPTURE(finished.error);
    CHECK(finished.status == 0);
    const json row = dumped.row();
    std::vector<size_t> after;
    for (const json& one : row.at("comparisons"))
        if (one.contains("buffer")) after.push_back(one.at("after_dispatches"));
    REQUIRE(after.size() > 1);
    CHECK(after.front() < after.back());
    const Amber amber(slurp(dumped.folder() / "row.amber"));
    size_t runs = 0;
    std::vector<size_t> expected_after;
    for (const std::string& command : amber.commands) {
        if (command.starts_with("RUN ")) runs++;
        if (contains(command, " IDX 0 ")) expected_after.push_back(runs);
    }
    CHECK(expected_after == after);
}

TEST_CASE("a buffer that has the address of an earlier one is another buffer") {
    conformance::Rig rig("0", {});
    const TemporaryDirectory directory;
    constexpr uint32_t columns = 128, max_heads = 4;
    {
        conformance::Evidence evidence(rig, true);
        for (uint32_t heads = 1; heads <= max_heads; heads++) {
            const std::vector<float> ones(heads * columns, 1.0f), weights(columns, 1.0f);
            const Buffer y = rig.output(ones), gate = rig.upload(ones), weight = rig.upload(weights), context = rig.context(0, 1);
            rig.run(rig.tuning, context, 1, columns,
                    [&](gpu::Pass& pass) { gpu::gated_norm(pass, y, gate, weight, heads, 1e-6f); });
            rig.check(y, ones, 1);
        }
        evidence.write(directory.path() / "row", {{"row", "gated_norm"}});
    }
    const conformance::Recording recording = conformance::read_recording(directory.path() / "row"); // no buffer is too small
    CHECK(recording.steps.size() == max_heads);
    std::set<std::string> outputs;
    for (const auto& one : recording.comparisons) outputs.insert(one.buffer);
    CHECK(outputs.size() == max_heads);
}

TEST_CASE("words of a buffer of floats are expected as floats, and equal") {
    const std::string row =
        run({{TQ_RUN, "conformance", "--list", "--filter", "matvec, experts | F32, own | 2 of 5*"}, "", {}}).output;
    const std::string first = row.substr(0, row.find('\n'));
    const Dumped dumped(kernel_of(first), "FMul:2=FAdd", first);
    const Amber amber(slurp(dumped.folder() / "row.amber"));
    size_t exact = 0;
    for (const std::string& line : amber.expectations) {
        std::istringstream words(line);
        std::string word, buffer;
        words >> word >> buffer;
        if (amber.types.at(buffer) != "float" || contains(line, " RMSE_BUFFER ")) continue;
        exact += contains(line, " TOLERANCE 0.0 EQ ");
        while (words >> word && word != "EQ") {
        }
        while (words >> word) CHECK(contains(word, "."));
    }
    CHECK(exact > 0);
}
