// Builds pipelines from reflected shaders and keeps the driver's results on disk.
// A pipeline is known by its kernel, the values of its specialisation constants and the size of its subgroups, and get() builds
// it once. Pipelines::build with a layout changes nothing here, so several threads may run it; maps and counts are changed by the
// calling thread.
#include "runtime/pipelines.h"
#include "base/ensure.h"
#include "base/thread_pool.h"
#include "runtime/pipeline_cache.h"
#include "runtime/specialise.h"
#include "runtime/subgroup_size.h"
#include <chrono>
#include <exception>
#include <optional>
#include <set>

namespace tq {
namespace {

OwnedModule make_module(VkDevice device, std::span<const uint32_t> code) {
    const VkShaderModuleCreateInfo info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, nullptr, 0, code.size_bytes(), code.data()};
    VkShaderModule module;
    check(vkCreateShaderModule(device, &info, nullptr, &module), "loading a kernel");
    return {device, module};
}

uint32_t workgroup_size(const AnyShader& shader, std::span<const uint32_t> constants, size_t axis) {
    const uint32_t id = shader.interface.workgroup_constant[axis];
    return id == Interface::literal ? shader.interface.workgroup[axis] : constants[id];
}

// The device must be able to run a workgroup of this size; kernels are chosen by capabilities, so it can.
// A driver need not check any of this, and what happens if it does not is undefined (a crash in the compiler, wrong results). So
// a kernel that a tuning should not have chosen is stopped here, with its name.
void ensure_fits(const PipelineKey& key, const Capabilities& device) {
    const AnyShader& shader = *key.shader;
    uint64_t invocations = 1;
    for (size_t axis = 0; axis < 3; axis++) {
        const uint32_t size = workgroup_size(shader, key.constants, axis);
        ENSURE(size > 0 && size <= device.max_workgroup_size[axis], "{}: workgroup of {} on axis {}", shader.name, size, axis);
        invocations *= size;
    }
    ENSURE(invocations <= device.max_workgroup_invocations, "{}: {} invocations in a workgroup, {} has at most {}", shader.name,
           invocations, device.name, device.max_workgroup_invocations);
    ENSURE(!shader.interface.cooperative || device.cooperative_matrix, "{}: {} has no cooperative matrices", shader.name,
           device.name);
    ENSURE(!shader.interface.subgroups || key.subgroup_size != 0, "{}: the size of {}'s subgroups is not known", shader.name,
           device.name);
    const uint64_t shared = shared_memory_bytes(shader, key.constants);
    ENSURE(shared <= device.shared_memory_bytes, "{}: {} bytes of shared memory, {} has {}", shader.name, shared, device.name,
           device.shared_memory_bytes);
}

// Adds the time between its construction and destruction to `seconds`.
class Timer {
  public:
    explicit Timer(double& seconds) : seconds_(seconds) {}
    ~Timer() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  private:
    double& seconds_;
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

} // namespace

VkDescriptorType descriptor_type(const Interface& interface, uint32_t binding) {
    return interface.texels >> binding & 1 ? VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
}

// The file's head is checked by read_pipeline_cache(): a driver that is given another driver's data may crash.
Pipelines::Pipelines(VkDevice device, const Capabilities& capabilities, const PipelineOptions& options)
    : device_(device), capabilities_(capabilities), options_(options) {
    if (!options.cached) return;
    path_ = pipeline_cache_path(capabilities);
    saved_ = read_pipeline_cache(path_, capabilities);
    VkPipelineCacheCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, nullptr, 0, saved_.size(), saved_.data()};
    VkPipelineCache cache;
    if (vkCreatePipelineCache(device, &info, nullptr, &cache) != VK_SUCCESS) { // a driver may still refuse its own data
        info.initialDataSize = 0;
        check(vkCreatePipelineCache(device, &info, nullptr, &cache), "creating a pipeline cache");
    }
    cache_ = {device, cache};
}

Pipelines::~Pipelines() { save(); }

std::vector<std::byte> Pipelines::cache_data() const noexcept try {
    size_t bytes = 0;
    if (vkGetPipelineCacheData(device_, cache_, &bytes, nullptr) != VK_SUCCESS) return {};
    std::vector<std::byte> data(bytes);
    if (vkGetPipelineCacheData(device_, cache_, &bytes, data.data()) != VK_SUCCESS) return {};
    data.resize(bytes);
    return data;
} catch (...) {
    return {};
}

// Nothing is written if no pipeline was built since the last time, or if all of them were in the file: many short runs would
// otherwise write the same file each time.
void Pipelines::save() noexcept {
    if (!built_ || path_.empty()) return;
    built_ = false;
    std::vector<std::byte> data = cache_data();
    if (data.empty() || data == saved_) return; // all of it came from disk
    write_pipeline_cache(path_, data);
    saved_ = std::move(data);
}

// Kernels with equal bindings and push constants share a layout. An entry whose creation failed is made again: it has no pipeline
// layout.
const Pipelines::Layout& Pipelines::layout(const Interface& interface) {
    const auto [found, fresh] = layouts_.try_emplace({interface.bindings, interface.texels, interface.push_bytes});
    Layout& out = found->second;
    if (!fresh && out.pipeline) return out;

    std::vector<VkDescriptorSetLayoutBinding> bindings;
    for (uint32_t binding = 0; binding < interface.bindings; binding++)
        bindings.push_back({binding, descriptor_type(interface, binding), 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr});
    const VkDescriptorSetLayoutCreateInfo set_info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, nullptr, 0,
                                                   uint32_t(bindings.size()), bindings.data()};
    VkDescriptorSetLayout set;
    check(vkCreateDescriptorSetLayout(device_, &set_info, nullptr, &set), "creating a descriptor layout");
    out.set = {device_, set};

    const VkPushConstantRange push{VK_SHADER_STAGE_COMPUTE_BIT, 0, interface.push_bytes};
    const VkPipelineLayoutCreateInfo info{.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                          .pNext = nullptr,
                                          .flags = 0,
                                          .setLayoutCount = 1,
                                          .pSetLayouts = &set,
                                          .pushConstantRangeCount = interface.push_bytes ? 1u : 0u,
                                          .pPushConstantRanges = &push};
    VkPipelineLayout pipeline;
    check(vkCreatePipelineLayout(device_, &info, nullptr, &pipeline), "creating a pipeline layout");
    out.pipeline = {device_, pipeline};
    return out;
}

Pipelines::Built Pipelines::build(const PipelineKey& key, const Layout& layouts) const {
    ensure_fits(key, capabilities_);
    const AnyShader& shader = *key.shader;
    const std::vector<uint32_t>& constants = key.constants;
    const OwnedModule module = make_module(device_, shader.code());
    std::vector<VkSpecializationMapEntry> entries;
    for (uint32_t id = 0; id < constants.size(); id++) entries.push_back({id, id * 4, 4});
    const VkSpecializationInfo values{uint32_t(entries.size()), entries.data(), constants.size() * 4, constants.data()};
    VkPipelineCreationFeedbackEXT whole{}, stage{};
    const VkPipelineCreationFeedbackCreateInfoEXT feedback{VK_STRUCTURE_TYPE_PIPELINE_CREATION_FEEDBACK_CREATE_INFO_EXT, nullptr,
                                                           &whole, 1, &stage};
    VkComputePipelineCreateInfo info{VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
    if (options_.feedback) info.pNext = &feedback;
    info.stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = nullptr,
                  .flags = 0,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main",
                  .pSpecializationInfo = &values};
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT subgroup{
        VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO_EXT, nullptr, key.subgroup_size};
    if (key.subgroup_size != 0) {
        if (capabilities_.min_subgroup_size != capabilities_.max_subgroup_size) info.stage.pNext = &subgroup;
        // A workgroup with fewer invocations is one subgroup, which is not full.
        if (capabilities_.full_subgroups && workgroup_size(shader, constants, 0) % key.subgroup_size == 0)
            info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT_EXT;
    }
    info.layout = layouts.pipeline;
    info.flags = options_.flags;
    VkPipeline handle;
    check(vkCreateComputePipelines(device_, cache_, 1, &info, nullptr, &handle),
          fmt::format("compiling the kernel {}", shader.name).c_str());
    Pipeline pipeline{layouts.set, layouts.pipeline, OwnedPipeline(device_, handle)};
    if (options_.named) {
        const VkDebugUtilsObjectNameInfoEXT label{VK_STRUCTURE_TYPE_DEBUG_UTILS_OBJECT_NAME_INFO_EXT, nullptr,
                                                  VK_OBJECT_TYPE_PIPELINE, (uint64_t)handle, shader.name};
        vkSetDebugUtilsObjectNameEXT(device_, &label);
    }
    constexpr VkPipelineCreationFeedbackFlagsEXT hit =
        VK_PIPELINE_CREATION_FEEDBACK_VALID_BIT_EXT | VK_PIPELINE_CREATION_FEEDBACK_APPLICATION_PIPELINE_CACHE_HIT_BIT_EXT;
    return {std::move(pipeline), (whole.flags & hit) == hit};
}

Pipeline Pipelines::build(const AnyShader& shader, std::span<const uint32_t> constants) {
    built_ = true;
    return build(key(shader, constants), layout(shader.interface)).pipeline;
}

const Pipeline& Pipelines::add(const PipelineKey& key, Built built) {
    built_ = true;
    count_.built++;
    if (options_.feedback) count_.from_cache = count_.from_cache.value_or(0) + built.from_cache;
    return pipelines_.emplace(key, std::move(built.pipeline)).first->second;
}

PipelineKey Pipelines::key(const AnyShader& shader, std::span<const uint32_t> constants) const {
    return {&shader, {constants.begin(), constants.end()}, subgroup_size_of(shader, capabilities_)};
}

const Pipeline& Pipelines::get(const AnyShader& shader, std::span<const uint32_t> constants) {
    const PipelineKey requested = key(shader, constants);
    const auto found = pipelines_.find(requested);
    if (found != pipelines_.end()) return found->second;
    const Timer timer(count_.seconds);
    return add(requested, build(requested, layout(shader.interface)));
}

// A model needs some dozens of kernels, and drivers take from milliseconds to seconds for each. So they are compiled on all
// cores, which Vulkan allows for pipelines with one cache. The maps are changed by the calling thread alone: layouts before,
// pipelines after. If several fail, the error of the first job is thrown.
void Pipelines::build_missing(std::span<const PipelineKey> requested) {
    std::set<PipelineKey> missing;
    for (const PipelineKey& key : requested)
        if (!pipelines_.contains(key)) missing.insert(key);
    const Timer timer(count_.seconds);
    struct Job {
        PipelineKey key;
        const Layout& layouts;
        std::optional<Built> built;
        std::exception_ptr error;
    };
    std::vector<Job> jobs;
    for (const PipelineKey& key : missing) jobs.push_back({key, layout(key.shader->interface), {}, {}});
    ThreadPool pool;
    pool.each(uint32_t(jobs.size()), 1, [&](uint32_t begin, uint32_t end) {
        for (Job& job : std::span(jobs).subspan(begin, end - begin)) try {
                job.built = build(job.key, job.layouts);
            } catch (...) {
                job.error = std::current_exception();
            }
    });
    for (Job& job : jobs) {
        if (job.error) std::rethrow_exception(job.error);
        add(job.key, std::move(*job.built));
    }
}

} // namespace tq
