// A recorded row as an AmberScript, for people who have Google's Amber and not tq-run, such as the authors of drivers. All of the
// row is in the text: modules as SPIR-V in hexadecimal, already specialised, buffers as numbers, the dispatches in order, and
// what the results must be, each where the row read it: a later dispatch may write the same buffer. Each element must be within
// the whole norm of the difference, and the norm itself is compared by Amber's RMSE if the buffer holds only what is compared
// and guard words. RMSE alone would not do: a NaN passes it. SPIR-V capabilities become Amber's names of features, by number.
#include "tools/check/conformance/amber_script.h"
#include "base/printable.h"
#include "runtime/specialise.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <set>

namespace tq::conformance {
namespace {

constexpr size_t values_per_line = 16;

struct Feature {
    uint32_t capability; // of SPIR-V
    const char* lines;
};
constexpr Feature features[] = {
    {9, "DEVICE_FEATURE Float16Int8Features.shaderFloat16\nDEVICE_EXTENSION VK_KHR_shader_float16_int8\n"},
    {11, "DEVICE_FEATURE shaderInt64\n"},
    {22, "DEVICE_FEATURE shaderInt16\n"},
    {39, "DEVICE_FEATURE Float16Int8Features.shaderInt8\nDEVICE_EXTENSION VK_KHR_shader_float16_int8\n"},
    {61, "DEVICE_FEATURE SubgroupSupportedOperations.basic\nDEVICE_FEATURE SubgroupSupportedStages.compute\n"},
    {62, "DEVICE_FEATURE SubgroupSupportedOperations.vote\n"},
    {63, "DEVICE_FEATURE SubgroupSupportedOperations.arithmetic\n"},
    {64, "DEVICE_FEATURE SubgroupSupportedOperations.ballot\n"},
    {65, "DEVICE_FEATURE SubgroupSupportedOperations.shuffle\n"},
    {66, "DEVICE_FEATURE SubgroupSupportedOperations.shuffleRelative\n"},
    {67, "DEVICE_FEATURE SubgroupSupportedOperations.clustered\n"},
    {4433, "DEVICE_FEATURE Storage16BitFeatures.storageBuffer16BitAccess\nDEVICE_EXTENSION VK_KHR_16bit_storage\n"},
    {4448, "DEVICE_FEATURE Storage8BitFeatures.storageBuffer8BitAccess\nDEVICE_EXTENSION VK_KHR_8bit_storage\n"},
    {6019, "DEVICE_EXTENSION VK_KHR_shader_integer_dot_product\n"},
    {6022, "DEVICE_FEATURE CooperativeMatrixFeaturesKHR.cooperativeMatrix\nDEVICE_EXTENSION VK_KHR_cooperative_matrix\n"
           "DEVICE_FEATURE VulkanMemoryModelFeatures.vulkanMemoryModel\n"},
};

std::string requirements(const Recording& recording) {
    std::set<std::string> lines;
    const auto add = [&](std::string_view text) {
        for (size_t end; !text.empty(); text.remove_prefix(end + 1)) lines.emplace(text.substr(0, end = text.find('\n')));
    };
    for (const auto& [kernel, module] : recording.modules)
        spirv::each(module, [&](uint32_t op, auto in) {
            for (const Feature& feature : features)
                if (op == spirv::capability && in[1] == feature.capability) add(feature.lines);
        });
    for (const Recording::Step& step : recording.steps)
        if (step.subgroup_size != 0)
            add("DEVICE_FEATURE SubgroupSizeControl.subgroupSizeControl\nDEVICE_EXTENSION VK_EXT_subgroup_size_control\n");
    std::string text;
    for (const std::string& one : lines) text += one + '\n';
    return text;
}

// Bytes in hexadecimal. Amber reads them until END, and does not end at space before it.
std::string module_text(const std::string& name, const Words& module) {
    std::string text = fmt::format("SHADER compute {} SPIRV-HEX\n", name);
    for (size_t i = 0; i < module.size(); i++) {
        text += i == 0 ? "" : i % values_per_line == 0 ? "\n" : " ";
        for (uint32_t byte = 0; byte < 4; byte++)
            text += fmt::format("{}{:02x}", byte == 0 ? "" : " ", module[i] >> 8 * byte & 255);
    }
    return text + "END\n\n";
}

template <class Value> std::string lines_of(size_t count, Value value) {
    std::string text;
    for (size_t i = 0; i < count; i++) text += value(i) + ((i + 1) % values_per_line == 0 || i + 1 == count ? "\n" : " ");
    return text;
}

// Amber takes what has no point for a whole number. It reads NaN, but no infinity: a number beyond its floats becomes one.
std::string float_text(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "1.0e+39" : "-1.0e+39";
    std::string text = fmt::format("{:.9g}", value);
    if (text.find('.') == std::string::npos) text.insert(std::min(text.find('e'), text.size()), ".0");
    return text;
}

std::string float_text_of(uint32_t word) { return float_text(std::bit_cast<float>(word)); }

std::string float_buffer(const std::string& name, const Words& words) {
    return fmt::format("BUFFER {} DATA_TYPE float DATA\n{}END\n\n", name,
                       lines_of(words.size(), [&](size_t i) { return float_text_of(words[i]); }));
}

std::string word_buffer(const std::string& name, const char* type, const Words& words) {
    return fmt::format("BUFFER {} DATA_TYPE {} DATA\n{}END\n\n", name, type,
                       lines_of(words.size(), [&](size_t i) { return fmt::format("{}", words[i]); }));
}

// "buffer-0.bin": "buffer_0"
std::string name_of(const std::string& file) {
    std::string name = file.substr(0, file.rfind('.'));
    std::ranges::replace_if(
        name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
    return name;
}

class Script {
  public:
    explicit Script(const Recording& recording) : recording_(recording) {
        for (const Recording::Comparison& one : recording.comparisons)
            if (!one.buffer.empty() && one.floats) floats_.insert(one.buffer);
        for (const Recording::Step& step : recording.steps) {
            const Interface io = reflect(recording.modules.at(step.kernel));
            for (uint32_t i = 0; i < io.bindings; i++)
                if (io.texels >> i & 1) texels_.insert(step.bindings[i].buffer);
        }
    }

    std::string text() {
        std::string out = fmt::format("#!amber\n# {}\n\n{}SET ENGINE_DATA fence_timeout_ms 60000\n\n",
                                      printable(recording_.row, 1000), requirements(recording_));
        for (const auto& [name, words] : recording_.buffers) out += buffer(name, words);
        for (size_t i = 0; i < recording_.steps.size(); i++) out += pipeline(i);
        for (size_t step = 0, i = 0; step <= recording_.steps.size(); step++) {
            for (; i < recording_.comparisons.size() && recording_.comparisons[i].after == step; i++) out += expectation(i);
            if (step == recording_.steps.size()) break;
            const auto& groups = recording_.steps[step].groups;
            out += fmt::format("RUN pipeline_{} {} {} {}\n", step, groups[0], groups[1], groups[2]);
        }
        return out;
    }

  private:
    bool has_floats(const std::string& buffer) const { return floats_.contains(buffer) && !texels_.contains(buffer); }

    std::string buffer(const std::string& name, const Words& words) const {
        if (has_floats(name)) return float_buffer(name_of(name), words);
        return word_buffer(name_of(name), texels_.contains(name) ? "R32G32B32A32_UINT" : "uint32", words);
    }

    // Each dispatch is a pipeline of its own, as Amber binds buffers to pipelines. Equal modules with equal constants are written
    // once.
    std::string pipeline(size_t i) {
        const Recording::Step& step = recording_.steps[i];
        const Words& code = recording_.modules.at(step.kernel);
        const std::span<const uint32_t> words(code);
        const AnyShader shader{step.kernel.c_str(), &words, reflect(code)};
        const auto [found, fresh] =
            shaders_.try_emplace({step.kernel, step.constants}, fmt::format("shader_{}", shaders_.size()));
        std::string out = fresh ? module_text(found->second, specialised(shader, step.constants)) : "";
        if (!step.push.empty()) out += word_buffer(fmt::format("push_{}", i), "uint32", step.push);
        out += fmt::format("PIPELINE compute pipeline_{}\n  ATTACH {}\n", i, found->second);
        if (step.subgroup_size != 0)
            out += fmt::format("  SUBGROUP {}\n    REQUIRED_SIZE {}\n  END\n", found->second, step.subgroup_size);
        if (!step.push.empty()) out += fmt::format("  BIND BUFFER push_{} AS push_constant\n", i);
        for (uint32_t b = 0; b < step.bindings.size(); b++) {
            const Recording::Binding& binding = step.bindings[b];
            const bool is_texel = shader.interface.texels >> b & 1;
            out += fmt::format("  BIND BUFFER {} AS {} DESCRIPTOR_SET 0 BINDING {}", name_of(binding.buffer),
                               is_texel ? "uniform_texel_buffer" : "storage", b);
            const bool whole = binding.offset == 0 && binding.bytes == recording_.buffers.at(binding.buffer).size() * 4;
            out += whole || is_texel ? "\n"
                                     : fmt::format(" DESCRIPTOR_OFFSET {} DESCRIPTOR_RANGE {}\n", binding.offset, binding.bytes);
        }
        return out + "END\n\n";
    }

    std::string expectation(size_t i) const {
        const Recording::Comparison& one = recording_.comparisons[i];
        if (one.buffer.empty())
            return fmt::format("# expected-{}.bin is not compared: the result was computed from buffers\n", i);
        const Words& before = recording_.buffers.at(one.buffer);
        const std::string name = name_of(one.buffer);
        if (!has_floats(one.buffer)) return equal_words(name, one);
        if (!one.floats) return equal_floats(name, one);
        // Each difference is at most the norm of all.
        if (!only_this_is_written(one.buffer)) return equal_floats(name, one);
        Words all = before;
        std::ranges::copy(one.expected, all.begin());
        return equal_floats(name, one) + float_buffer(fmt::format("expected_{}", i), all) +
               fmt::format("EXPECT {} RMSE_BUFFER expected_{} TOLERANCE {}\n", name, i,
                           float_text(one.allowed / std::sqrt(double(all.size()))));
    }

    // Whether the rest of the buffer, after what is compared, are the guard words of an output, which no kernel may change.
    // RMSE_BUFFER compares whole buffers, so it serves only if what is not compared must be unchanged.
    bool only_this_is_written(const std::string& buffer) const {
        size_t compared = 0, count = 0;
        for (const Recording::Comparison& one : recording_.comparisons)
            if (one.buffer == buffer) compared = one.expected.size(), count++;
        const Words& before = recording_.buffers.at(buffer);
        const auto rest = std::span(before).subspan(compared);
        return count == 1 && std::ranges::all_of(rest, [&](uint32_t word) {
                   return word == rest[0] && std::isfinite(std::bit_cast<float>(word));
               });
    }

    template <class Value>
    static std::string equal(const std::string& name, const Words& expected, const std::string& how, Value value) {
        std::string out;
        for (size_t at = 0; at < expected.size(); at += values_per_line) {
            out += fmt::format("EXPECT {} IDX {} {}", name, at * 4, how);
            for (size_t i = at; i < std::min(at + values_per_line, expected.size()); i++) out += ' ' + value(expected[i]);
            out += '\n';
        }
        return out;
    }

    static std::string equal_words(const std::string& name, const Recording::Comparison& one) {
        return equal(name, one.expected, "EQ", [](uint32_t word) { return fmt::to_string(word); });
    }

    // Words are allowed to differ by 0: without a tolerance Amber would allow some.
    static std::string equal_floats(const std::string& name, const Recording::Comparison& one) {
        return equal(name, one.expected, fmt::format("TOLERANCE {} EQ", float_text(one.allowed)), float_text_of);
    }

    const Recording& recording_;
    std::set<std::string> floats_, texels_;
    std::map<std::pair<std::string, Words>, std::string> shaders_;
};

} // namespace

std::string amber_script(const Recording& recording) { return Script(recording).text(); }

} // namespace tq::conformance
