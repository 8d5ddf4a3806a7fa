// tq-run codec as its users see it: files in and out, on the CPU and on a device, and the errors for invalid ones.
#include "tests/support/child_process.h"
#include "tests/support/codec_golden.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include "tools/check/conformance/vectors/codec_vectors.h"
#include <algorithm>
#include <bit>
#include <doctest/doctest.h>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

using namespace tq;
using namespace tq::test;
using namespace tq::conformance;

namespace {

namespace fs = std::filesystem;

std::string bytes_of(std::span<const float> x) {
    std::string out;
    for (const float v : x)
        for (int i = 0; i < 4; i++) out.push_back(char(std::bit_cast<uint32_t>(v) >> (8 * i)));
    return out;
}

std::vector<float> normals(size_t size) {
    Random random{1};
    std::vector<float> x(size);
    for (float& v : x) v = random.normal();
    return x;
}

Finished codec(std::vector<std::string> arguments, std::string input = {}) {
    arguments.insert(arguments.begin(), {TQ_RUN, "codec"});
    return run({std::move(arguments), std::move(input), {}});
}

// A folder of the test's own.
struct Folder {
    TemporaryFile name;
    fs::path path = name.path().string() + "-folder";

    Folder() { fs::create_directory(path); }
    ~Folder() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
    std::string file(const char* leaf) const { return (path / leaf).string(); }
    size_t files() const { return size_t(std::distance(fs::directory_iterator(path), {})); }
};

void check_complaint(const Finished& finished, int status, const std::string& text) {
    INFO(finished.error);
    CHECK(finished.status == status);
    CHECK(finished.output == "");
    CHECK(finished.error.starts_with("tq-run: "));
    CHECK(finished.error.find(text) != std::string::npos);
}

} // namespace

TEST_CASE("encode and decode: the codec's own bytes, on the CPU and on the device") {
    const std::vector<float> x = normals(200 * 128);
    const TemporaryFile in(bytes_of(x));
    const Folder out;
    for (const char* type : {"tq4", "tq3", "tq2t", "q4_0", "f16"}) {
        CAPTURE(std::string(type));
        const KvCodec right{parse_kv_type(type), ScaleRule::norm, make_rotation(RotationKind::wht, 7, KvSide::value, 128)};
        const std::vector<std::string> flags{"--type", type, "--layer", "7", "--side", "v", "--scale-rule", "norm"};
        const auto with = [&](std::vector<std::string> more) {
            more.insert(more.end(), flags.begin(), flags.end());
            return more;
        };
        const Finished on_cpu = codec(with({"encode", "--in", in.path().string(), "--out", out.file("cpu")}));
        CHECK_MESSAGE(on_cpu.status == 0, on_cpu.error);
        CHECK(on_cpu.error.starts_with("200 vectors of 128 channels: "));
        CHECK(codec(with({"encode", "--in", in.path().string(), "--out", out.file("device"), "--device", "0"})).status == 0);
        const Stored stored = encoded(right, x);
        std::string expected;
        for (size_t n = 0; n < 200; n++) {
            for (size_t w = 0; w < right.words() * 4; w++)
                expected.push_back(char(stored.codes[n * right.words() + w / 4] >> (8 * (w % 4))));
            for (size_t s = 0; s < right.scales() * 2; s++)
                expected.push_back(char(stored.scales[n * right.scales() + s / 2] >> (8 * (s % 2))));
        }
        CHECK(slurp(out.file("cpu")) == expected);
        CHECK(slurp(out.file("device")) == expected);
        CHECK(codec(with({"decode", "--in", out.file("cpu"), "--out", out.file("x")})).status == 0);
        CHECK(codec(with({"decode", "--in", out.file("cpu"), "--out", out.file("y"), "--device", "0"})).status == 0);
        CHECK(slurp(out.file("x")) == bytes_of(decoded(right, stored)));
        CHECK(slurp(out.file("y")) == slurp(out.file("x")));
    }
    CHECK(out.files() == 4); // no temporary files are left
}

TEST_CASE("other layouts, head_dims, rotations and standard streams") {
    const std::string in = bytes_of(normals(50 * 64));
    const std::vector<std::string> common{"--head-dim", "64", "--rotation", "haar", "--in", "-", "--out", "-", "--type"};
    const auto piped = [&](const char* command, const char* type, const char* layout, const std::string& input) {
        std::vector<std::string> arguments{command};
        arguments.insert(arguments.end(), common.begin(), common.end());
        arguments.insert(arguments.end(), {type, "--layout", layout});
        const Finished finished = codec(arguments, input);
        CHECK_MESSAGE(finished.status == 0, finished.error);
        return finished.output;
    };
    const std::string planes = piped("encode", "tq3", "planes", in), decoded = piped("decode", "tq3", "planes", planes);
    CHECK(planes.size() == 50 * 26);
    for (const char* layout : {"block68", "bytes132"})
        CHECK(piped("decode", "tq3", layout, piped("encode", "tq3", layout, in)) == decoded);
    CHECK(piped("encode", "tq3", "bytes132", in).size() == 50 * 68);
    CHECK(piped("decode", "q4_0", "ggml", piped("encode", "q4_0", "ggml", in)) ==
          piped("decode", "q4_0", "planes", piped("encode", "q4_0", "planes", in)));
    std::vector<std::string> with_former{"encode"};
    with_former.insert(with_former.end(), common.begin(), common.end());
    with_former.emplace_back("a4_64");
    const Finished former = codec(with_former, in);
    CHECK((former.output == piped("encode", "tq4", "planes", in)));
    CHECK(former.error.starts_with("tq-run: a4_64 is no longer a cache type; tq4 is used instead\n"));
}

TEST_CASE("what cannot be stored is named, and nothing is written") {
    std::vector<float> x = normals(3 * 128);
    x[128 + 17] = -std::numeric_limits<float>::infinity();
    const TemporaryFile in(bytes_of(x)), odd(std::string(1000, 'x')), empty;
    const Folder out;
    const auto encode = [&](const TemporaryFile& from, std::vector<std::string> more = {}) {
        more.insert(more.begin(), {"encode", "--type", "tq4", "--in", from.path().string(), "--out", out.file("y")});
        return codec(more);
    };
    check_complaint(encode(in), 1, "channel 17 of vector 1 in ");
    check_complaint(encode(in, {"--device", "0"}), 1, "channel 17 of vector 1 in ");
    check_complaint(encode(odd), 1, "has 1000 bytes, which is not a whole number of vectors of 128 channels in 512 bytes each");
    check_complaint(encode(empty), 1, "has 0 bytes");
    CHECK(out.files() == 0);

    CHECK(encode(in, {"--allow-nonfinite"}).status == 0);
    CHECK(slurp(out.file("y")).size() == 3 * 66);
    const std::vector<std::string> decode{"decode", "--type", "tq4", "--in", out.file("y"), "--out", out.file("x")};
    check_complaint(codec(decode), 1, "vector 1 in ");
    CHECK(out.files() == 1);
    std::vector<std::string> allowing = decode;
    allowing.push_back("--allow-nonfinite");
    CHECK(codec(allowing).status == 0);

    x[128 + 17] = 1e6f;
    const TemporaryFile large(bytes_of(x));
    check_complaint(codec({"encode", "--type", "f16", "--in", large.path().string(), "--out", out.file("z")}), 1,
                    "vector 1 in " + large.path().string() + " is too large for f16");
}

TEST_CASE("wrong files and flags") {
    const TemporaryFile in(bytes_of(normals(128)));
    const Folder out;
    const std::string file = in.path().string();
    check_complaint(codec({"encode", "--type", "tq4", "--in", file, "--out", file}), 1, "is the input itself");
    CHECK(slurp(in.path()).size() == 512);
    check_complaint(codec({"encode", "--type", "tq4", "--in", out.file("none"), "--out", out.file("y")}), 1, "cannot open");
    check_complaint(codec({"encode", "--type", "tq4", "--in", out.path.string(), "--out", out.file("y")}), 1, "is a directory");
    check_complaint(codec({"encode", "--type", "tq4", "--in", file, "--out", out.file("no/y")}), 1, "cannot write");
    check_complaint(codec({"encode", "--type", "tq3", "--layout", "ggml", "--in", file, "--out", out.file("y")}), 1,
                    "tq3 has no layout ggml, which is for q8_0, q4_0");
    check_complaint(codec({"encode", "--type", "tq7", "--in", file, "--out", out.file("y")}), 2, "unknown KV cache type 'tq7'");
    check_complaint(codec({"encode", "--type", "tq4", "--head-dim", "96", "--in", file, "--out", out.file("y")}), 2,
                    "--head-dim: it must be 64, 128 or 256, not 96");
    check_complaint(codec({"encode", "--in", file, "--out", out.file("y")}), 2,
                    "--type is required (see tq-run codec encode --help)");
    check_complaint(codec({}), 2, "see tq-run codec --help");
    CHECK(out.files() == 0);
}

TEST_CASE("info: the types and what was measured, also as JSON") {
    const Finished text = codec({"info", "--type", "tq3", "--vectors", "50"});
    CHECK(text.status == 0);
    for (const char* part : {"26 / 50 / 98", "5.12", "13 40 71 114", "block68", "least-squares", "unbiased"})
        CHECK(text.output.find(part) != std::string::npos);
    const auto json = nlohmann::json::parse(codec({"info", "--json", "--vectors", "200"}).output);
    CHECK(json.size() == kv_types.size());
    for (const auto& entry : json) {
        CHECK(entry.at("vector_bytes").at("256") == kv_vector_bytes(parse_kv_type(entry.at("type").get<std::string>()), 256));
        if (entry.at("type") != "tq4") continue;
        CHECK(entry.at("normal_distortion").get<double>() == doctest::Approx(0.009506).epsilon(0.001));
        CHECK(entry.at("measured").size() == 3);
        for (const auto& measured : entry.at("measured"))
            CHECK(measured.at("error").get<double>() == doctest::Approx(0.0092).epsilon(0.03));
    }
}

TEST_CASE("bench: one row for the CPU and one for the device") {
    const Finished finished = codec({"bench", "--type", "tq4", "--vectors", "256", "--rounds", "1", "--device", "0"});
    CHECK_MESSAGE(finished.status == 0, finished.error);
    CHECK(std::count(finished.output.begin(), finished.output.end(), '\n') == 4);
    CHECK(finished.output.find("CPU, ") != std::string::npos);
}
