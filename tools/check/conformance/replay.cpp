// A recording may come from another device, and as a file from anybody. So each step is checked against the limits of this device
// before anything is uploaded: what a driver does beyond its limits is undefined. Results are compared by the rules of the row
// that recorded them. Whether they equal the recorded result is told as well: a driver that is wrong in the same bits probably
// has the same fault.
#include "tools/check/conformance/replay.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "runtime/recorder.h"
#include "runtime/specialise.h"
#include "runtime/subgroup_size.h"
#include <cmath>

namespace tq::conformance {
namespace {

// Throws Error if the device cannot run the step.
void check_device(const AnyShader& shader, const Recording::Step& step, const Capabilities& device) {
    const std::string what = printable(step.kernel);
    uint64_t invocations = 1;
    for (size_t axis = 0; axis < 3; axis++) {
        const uint32_t id = shader.interface.workgroup_constant[axis],
                       size = id < step.constants.size() ? step.constants[id] : shader.interface.workgroup[axis];
        invocations *= size;
        if (size == 0 || size > device.max_workgroup_size[axis] || invocations > device.max_workgroup_invocations ||
            step.groups[axis] > device.max_workgroup_count[axis])
            fail("{} was recorded with {} x {} x {} workgroups of {} invocations, more than {} runs", what, step.groups[0],
                 step.groups[1], step.groups[2], invocations, printable(device.name));
    }
    if (shader.interface.cooperative && !device.cooperative_matrix)
        fail("{} needs cooperative matrices, which {} does not have", what, printable(device.name));
    if (shader.interface.subgroups && subgroup_size_of(shader, device) == 0)
        fail("{} needs subgroups of a known size, which {} does not have", what, printable(device.name));
    if (shared_memory_bytes(shader, step.constants) > device.shared_memory_bytes)
        fail("{} needs more shared memory than the {} bytes of {}", what, device.shared_memory_bytes, printable(device.name));
    for (const Recording::Binding& binding : step.bindings)
        if (binding.offset % device.storage_alignment != 0 || binding.bytes > device.storage_range_bytes)
            fail("{} has a buffer at {} of {} bytes, which {} does not bind", what, binding.offset, binding.bytes,
                 printable(device.name));
}

std::span<const float> as_floats(std::span<const uint32_t> words) {
    return {reinterpret_cast<const float*>(words.data()), words.size()};
}

Outcome judge(const Recording::Comparison& one, std::span<const uint32_t> got) {
    if (!one.floats) return compare_words(got, one.expected, one.halves);
    double squares = 0;
    for (const float value : as_floats(one.expected)) squares += double(value) * value;
    const double norm = std::sqrt(squares);
    return compare(as_floats(got), as_floats(one.expected), norm > 0 ? one.allowed / norm : 1, norm > 0 ? 0 : one.allowed);
}

} // namespace

void replace_module(Recording& recording, const std::filesystem::path& file) {
    const std::string name = utf8_text(file.stem());
    const auto named = recording.modules.find(name);
    if (named == recording.modules.end() && recording.modules.size() != 1) {
        std::string kernels;
        for (const auto& [kernel, module] : recording.modules) kernels += (kernels.empty() ? "" : ", ") + kernel;
        fail("--spirv {}: name the file after the kernel that it replaces: {}", printable(utf8_text(file), 200), kernels);
    }
    auto& [kernel, module] = named == recording.modules.end() ? *recording.modules.begin() : *named;
    module = read_module(file);
    check_interface(recording, kernel);
}

Replayed replay(Rig& rig, const Recording& recording, const std::function<void(const std::string&)>& tell) {
    std::map<std::string, std::span<const uint32_t>> words;
    std::map<std::string, AnyShader> shaders;
    for (const auto& [kernel, module] : recording.modules) {
        words[kernel] = module;
        shaders.emplace(kernel, AnyShader{kernel.c_str(), &words[kernel], reflect(module)});
    }
    std::map<std::string, Buffer> buffers;
    for (const Recording::Step& step : recording.steps) check_device(shaders.at(step.kernel), step, rig.device.capabilities());
    for (const auto& [name, content] : recording.buffers) buffers.emplace(name, rig.upload(std::as_bytes(std::span(content))));
    size_t ran = 0;
    const auto run_until = [&](size_t end) {
        if (ran == end) return;
        Recorder recorder(rig.device);
        for (; ran < end; ran++) {
            const Recording::Step& step = recording.steps[ran];
            std::vector<View> views;
            for (const Recording::Binding& one : step.bindings) views.emplace_back(buffers.at(one.buffer), one.offset, one.bytes);
            recorder.dispatch(shaders.at(step.kernel), {step.groups[0], step.groups[1], step.groups[2]}, step.constants,
                              std::as_bytes(std::span(step.push)), views);
        }
        recorder.finish().run();
    };
    Replayed out;
    for (size_t i = 0; i < recording.comparisons.size(); i++) {
        const Recording::Comparison& one = recording.comparisons[i];
        if (one.buffer.empty()) {
            out.left_out++;
            tell(fmt::format("expected-{}.bin: not compared, since the result was computed from buffers", i));
            continue;
        }
        run_until(one.after);
        Words got = rig.read(buffers.at(one.buffer));
        got.resize(one.expected.size());
        const Outcome outcome = judge(one, got);
        out.compared++;
        out.wrong += outcome.passed ? 0 : 1;
        tell(fmt::format("expected-{}.bin, {}: {}{}; {} the recorded result", i, one.buffer, outcome.passed ? "right" : "wrong",
                         outcome.reason.empty() ? "" : ", " + outcome.reason, got == one.result ? "equal to" : "other than"));
    }
    run_until(recording.steps.size());
    return out;
}

} // namespace tq::conformance
