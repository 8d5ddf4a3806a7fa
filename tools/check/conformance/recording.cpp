// Reads a folder that --dump has written. It may come from a stranger's bug report, so nothing in it is believed: names of files
// have no directory, sizes are limited, and the module's interface must be that of the recorded dispatch, with buffers within
// their bounds, before any driver sees it (check_interface).
#include "tools/check/conformance/recording.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/json.h"
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

namespace tq::conformance {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t max_json_bytes = 64u << 20, max_file_bytes = 64u << 20;

Words read_words(const fs::path& file) {
    const MappedFile mapped(file);
    const auto bytes = mapped.bytes();
    if (bytes.size() % 4 != 0 || bytes.size() > max_file_bytes)
        fail("{} has {} bytes: they must be words of four, and at most {}", printable(utf8_text(file), 300), bytes.size(),
             max_file_bytes);
    Words words(bytes.size() / 4);
    std::memcpy(words.data(), bytes.data(), bytes.size());
    check_mapped_files();
    return words;
}

// A file's name without a directory: a folder may come from somebody else.
std::string plain_name(const std::string& name) {
    const bool plain = !name.empty() && name.find_first_of("/\\:") == std::string::npos && name != "." && name != "..";
    if (!plain) fail("\"{}\" is not the name of a file in the folder", printable(name, 80));
    return name;
}

Recording::Step read_step(const json& from) {
    Recording::Step step{.kernel = plain_name(from.at("kernel").get<std::string>()),
                         .groups = from.at("groups").get<std::array<uint32_t, 3>>(),
                         .constants = from.at("specialisation").get<Words>(),
                         .push = from.at("push_constants").get<Words>(),
                         .subgroup_size = from.at("subgroup_size").get<uint32_t>(),
                         .bindings = {}};
    for (const json& one : from.at("buffers"))
        step.bindings.push_back(
            {plain_name(one.at("before").get<std::string>()), one.at("offset").get<uint64_t>(), one.at("bytes").get<uint64_t>()});
    return step;
}

Recording::Comparison read_comparison(const json& from, const fs::path& folder) {
    Recording::Comparison one{.buffer = from.contains("buffer") ? plain_name(from.at("buffer").get<std::string>()) : "",
                              .after = from.at("after_dispatches").get<size_t>(),
                              .floats = from.at("type") == "float32",
                              .allowed = 0,
                              .expected = {},
                              .result = {}};
    if (!one.floats && from.at("type") != "uint32") fail("a comparison is of neither float32 nor uint32");
    if (one.floats) one.allowed = from.at("allowed_norm_of_difference").get<double>();
    one.expected = read_words(folder / utf8_path(plain_name(from.at("expected").get<std::string>())));
    one.result = read_words(folder / utf8_path(plain_name(from.at("result").get<std::string>())));
    if (from.contains("fp16_pairs"))
        for (const auto& [begin, count] : from.at("fp16_pairs").get<std::vector<std::array<size_t, 2>>>()) {
            if (begin > one.expected.size() || count > one.expected.size() - begin)
                fail("a comparison of {} words has fp16 numbers in the {} from {} on", one.expected.size(), count, begin);
            one.halves.push_back({begin, count});
        }
    return one;
}

// Each module and each buffer is read once, though several dispatches name it. The values are from before the first dispatch. A
// replay runs all dispatches in their order and compares between them, because a later one may write the same buffer. A
// comparison names one of these buffers, or has none.
void read_all(Recording& out, const json& from, const fs::path& folder) {
    out.row = from.at("row").get<std::string>();
    if (!from.value("complete", false))
        fail("not everything that the row ran was kept: it has too many dispatches, or large buffers");
    for (const json& one : from.at("dispatches")) {
        const Recording::Step& step = out.steps.emplace_back(read_step(one));
        if (!out.modules.contains(step.kernel)) out.modules[step.kernel] = read_module(folder / utf8_path(step.kernel + ".spv"));
        for (const Recording::Binding& binding : step.bindings)
            if (!out.buffers.contains(binding.buffer))
                out.buffers[binding.buffer] = read_words(folder / utf8_path(binding.buffer));
    }
    for (const json& one : from.at("comparisons")) {
        Recording::Comparison comparison = read_comparison(one, folder);
        if (!out.buffers.contains(comparison.buffer)) comparison.buffer.clear();
        const bool fits = comparison.buffer.empty() || out.buffers[comparison.buffer].size() >= comparison.expected.size();
        if (!fits || comparison.expected.empty() || comparison.result.size() != comparison.expected.size())
            fail("a comparison has {} expected words of a result of {}", comparison.expected.size(), comparison.result.size());
        const size_t earlier = out.comparisons.empty() ? 0 : out.comparisons.back().after;
        if (comparison.after < earlier || comparison.after > out.steps.size())
            fail("a comparison is after {} of {} dispatches, and the one before it after {}", comparison.after, out.steps.size(),
                 earlier);
        out.comparisons.push_back(std::move(comparison));
    }
}

} // namespace

Words read_module(const fs::path& file) {
    constexpr uint32_t magic = 0x07230203;
    Words words = read_words(file);
    if (words.size() < spirv::header_words || words[0] != magic)
        fail("{} is not a SPIR-V module", printable(utf8_text(file), 300));
    return words;
}

// The module's own declarations are what a driver believes, so they must agree with what is recorded: the number of constants, of
// bytes pushed and of buffers. Each binding must lie within its buffer; the sum of offset and size is not formed, since it could
// overflow. That the code itself stays within its buffers cannot be seen here.
void check_interface(const Recording& recording, const std::string& kernel) {
    const Interface io = reflect(recording.modules.at(kernel));
    if (io.foreign || io.gaps || io.bindings > max_bindings)
        fail("the module of {} has other resources than up to {} buffers of set 0", printable(kernel), max_bindings);
    for (const Recording::Step& step : recording.steps) {
        if (step.kernel != kernel) continue;
        if (step.constants.size() != io.constants || step.push.size() * 4 != io.push_bytes || step.bindings.size() != io.bindings)
            fail("the module of {} has {} specialisation constants, {} bytes of push constants and {} buffers, but {}, {} and {} "
                 "were recorded",
                 printable(kernel), io.constants, io.push_bytes, io.bindings, step.constants.size(), step.push.size() * 4,
                 step.bindings.size());
        for (uint32_t i = 0; i < io.bindings; i++) {
            const Recording::Binding& b = step.bindings[i];
            const uint64_t whole = recording.buffers.at(b.buffer).size() * 4, unit = io.texels >> i & 1 ? 16 : 4;
            if (b.bytes == 0 || b.bytes % unit != 0 || b.offset > whole || b.bytes > whole - b.offset)
                fail("{} is {} bytes at {} of {} with {}", printable(kernel), b.bytes, b.offset, printable(b.buffer), whole);
        }
    }
}

Recording read_recording(const fs::path& folder) {
    const fs::path file = folder / "row.json";
    const json from = read_json_file(file, max_json_bytes);
    Recording recording;
    try {
        read_all(recording, from, folder);
        for (const auto& [kernel, module] : recording.modules) check_interface(recording, kernel);
    } catch (const json::exception& error) {
        fail("{} is damaged, or from an older tq-run: {}", printable(utf8_text(file), 300), error.what());
    } catch (const Error& error) {
        fail("{}: {}", printable(utf8_text(file), 300), error.what());
    }
    return recording;
}

} // namespace tq::conformance
