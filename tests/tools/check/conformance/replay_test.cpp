// The folder that --dump writes for a row that is wrong: it can be run again, with other modules and on other drivers, and its
// AmberScript has the same modules, buffers and expectations.
#include "tests/support/child_process.h"
#include "tests/support/fault_environment.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

using namespace tq::test;
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
            {{TQ_RUN, "conformance", "--device", "0", "--filter", row, "--dump", directory_.path().string()}, "", environment});
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
    for (const char* kernel : {"swiglu", "add", "matvec_q8_0"}) {
        const std::string row = row_of(kernel);
        if (row.empty()) continue;
        const std::string name = row.substr(0, row.find(' '));
        CAPTURE(row);
        const Dumped dumped(name, name == "add" ? "FAdd:1=FMul" : "FMul:1=FAdd", row);
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

// Reads an AmberScript of the kind that is written; anything else fails the test.
struct Amber {
    std::vector<Words> shaders;
    std::map<std::string, std::vector<std::string>> buffers; // values
    std::map<std::string, std::string> types;
    std::vector<std::vector<std::string>> pipelines; // lines
    std::vector<std::string> runs, expectations;

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

    // As Amber reads it: bytes in hexadecimal until END, which may not follow a space.
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
                if (amber.types.at(name) == "float") CHECK(contains(values[w], ".")); // else it is a whole number
                const bool same = amber.types.at(name) == "float"
                                      ? std::strtof(values[w].c_str(), nullptr) == number || !std::isfinite(number)
                                      : std::stoul(values[w]) == words[w];
                if (!same) CHECK_MESSAGE(same, name, " ", w, ": ", values[w]);
            }
        }
    }
    REQUIRE(!amber.expectations.empty());
    CHECK(contains(amber.expectations[0], " RMSE_BUFFER expected_0 TOLERANCE "));
    const Words expected = words_of(dumped.folder() / "expected-0.bin");
    const auto& values = amber.buffers.at("expected_0");
    for (size_t i = 0; i < expected.size(); i++)
        CHECK(std::strtof(values.at(i).c_str(), nullptr) == std::bit_cast<float>(expected[i]));
    const double tolerance = std::stod(amber.expectations[0].substr(amber.expectations[0].rfind(' ')));
    const double allowed = row.at("comparisons")[0].at("allowed_norm_of_difference");
    CHECK(tolerance * std::sqrt(double(values.size())) == doctest::Approx(allowed));
}
