// Builds kernels for `tq-run shaders` and reads the driver's statistics of them with VK_KHR_pipeline_executable_properties:
// registers, spills, code size, and, if asked, the assembly. Each driver has its own names and numbers for these; statistics.cpp
// makes them comparable. One pipeline may be several programs. Vulkan's calls come in pairs, one for the count and one for the
// content.
#include "runtime/compiler.h"
#include "runtime/open_device.h"
#include "runtime/pipelines.h"

namespace tq {
namespace {

Statistic read(const VkPipelineExecutableStatisticKHR& from) {
    Statistic out{from.name, from.description, false};
    switch (from.format) {
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR: out.value = from.value.b32 != VK_FALSE; break;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR: out.value = from.value.i64; break;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR: out.value = from.value.u64; break;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR: out.value = from.value.f64; break;
    default: break;
    }
    return out;
}

std::vector<Statistic> read_program(VkDevice device, VkPipeline pipeline, uint32_t index) {
    const VkPipelineExecutableInfoKHR info{VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, nullptr, pipeline, index};
    uint32_t count = 0;
    check(vkGetPipelineExecutableStatisticsKHR(device, &info, &count, nullptr), "counting a kernel's statistics");
    std::vector<VkPipelineExecutableStatisticKHR> found(count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR});
    check(vkGetPipelineExecutableStatisticsKHR(device, &info, &count, found.data()), "reading a kernel's statistics");
    std::vector<Statistic> out;
    for (const VkPipelineExecutableStatisticKHR& one : found) out.push_back(read(one));
    return out;
}

std::vector<Representation> read_representations(VkDevice device, VkPipeline pipeline, uint32_t index) {
    const VkPipelineExecutableInfoKHR info{VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, nullptr, pipeline, index};
    const auto get = vkGetPipelineExecutableInternalRepresentationsKHR;
    uint32_t count = 0;
    check(get(device, &info, &count, nullptr), "counting a kernel's representations");
    std::vector<VkPipelineExecutableInternalRepresentationKHR> found(
        count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR});
    check(get(device, &info, &count, found.data()), "reading the sizes of a kernel's representations");
    std::vector<std::string> texts(count);
    for (uint32_t i = 0; i < count; i++) {
        texts[i].resize(found[i].dataSize);
        found[i].pData = texts[i].data();
    }
    check(get(device, &info, &count, found.data()), "reading a kernel's representations");
    std::vector<Representation> out;
    for (uint32_t i = 0; i < count; i++) {
        if (found[i].isText == VK_FALSE) continue;
        out.push_back({found[i].name, texts[i].substr(0, texts[i].find('\0'))});
    }
    return out;
}

std::vector<KernelStatistics> read_statistics(VkDevice device, VkPipeline pipeline, bool representations) {
    const VkPipelineInfoKHR info{VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, nullptr, pipeline};
    uint32_t count = 0;
    check(vkGetPipelineExecutablePropertiesKHR(device, &info, &count, nullptr), "counting a kernel's programs");
    std::vector<VkPipelineExecutablePropertiesKHR> found(count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR});
    check(vkGetPipelineExecutablePropertiesKHR(device, &info, &count, found.data()), "reading a kernel's programs");
    std::vector<KernelStatistics> out;
    for (uint32_t index = 0; index < count; index++) {
        KernelStatistics& program = out.emplace_back(
            KernelStatistics{found[index].name, found[index].subgroupSize, read_program(device, pipeline, index), {}});
        program.summary = summarise(program.all);
        if (representations) program.representations = read_representations(device, pipeline, index);
    }
    return out;
}

} // namespace

struct Compiler::Impl {
    OpenDevice device;
    const bool representations;
    Pipelines pipelines;

    static VkPipelineCreateFlags flags(bool statistics, bool representations) {
        if (!statistics) return 0;
        return VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
               (representations ? VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR : 0);
    }

    Impl(std::string_view selector, std::string_view profile, bool representations)
        : device(open_device(selector, profile, Use::compile)), representations(representations),
          pipelines(
              device.handle, device.capabilities,
              {.named = device.instance->debug_utils(), .cached = false, .flags = flags(device.statistics, representations)}) {}
};

Compiler::Compiler(std::string_view selector, std::string_view profile, bool representations)
    : impl_(std::make_unique<Impl>(selector, profile, representations)) {}
Compiler::~Compiler() = default;

const Capabilities& Compiler::capabilities() const { return impl_->device.capabilities; }
bool Compiler::has_statistics() const { return impl_->device.statistics; }

std::vector<KernelStatistics> Compiler::compile(const AnyShader& shader, std::span<const uint32_t> constants) {
    const Pipeline built = impl_->pipelines.build(shader, constants);
    if (!has_statistics()) return {};
    return read_statistics(impl_->device.handle, built.handle, impl_->representations);
}

} // namespace tq
