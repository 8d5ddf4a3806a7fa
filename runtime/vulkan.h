// The only access to Vulkan: entry points through volk (nothing links the loader), results as errors, RAII handles. Included by
// runtime/*.cpp and its private headers only.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <volk.h>

namespace tq {

// Returns if `result` is VK_SUCCESS, else throws an Error with the failed action ("allocating memory") and what to do about it.
void check(VkResult result, const char* doing);

// Returns "VK_ERROR_DEVICE_LOST" and so on, or the number of an unknown result.
const char* name(VkResult result);

// From here on no child of the device is destroyed, nor the device itself: it did not answer, and may still use them.
void abandon(VkDevice device);
bool is_abandoned(VkDevice device);

// Owns one child object of a device. The object is left alone if the device is abandoned. `destroy` is volk's pointer, which is
// set when the loader is loaded.
template <class T, auto& destroy> class Owned {
  public:
    Owned() = default;
    Owned(VkDevice device, T handle) : device_(device), handle_(handle) {}
    Owned(Owned&& other) noexcept : device_(other.device_), handle_(std::exchange(other.handle_, T{})) {}
    Owned& operator=(Owned&& other) noexcept {
        std::swap(device_, other.device_);
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Owned() {
        if (handle_ && !is_abandoned(device_)) destroy(device_, handle_, nullptr);
    }
    operator T() const { return handle_; }

  private:
    VkDevice device_{};
    T handle_{};
};

using OwnedBuffer = Owned<VkBuffer, vkDestroyBuffer>;
using OwnedBufferView = Owned<VkBufferView, vkDestroyBufferView>;
using OwnedMemory = Owned<VkDeviceMemory, vkFreeMemory>;
using OwnedFence = Owned<VkFence, vkDestroyFence>;
using OwnedCommandPool = Owned<VkCommandPool, vkDestroyCommandPool>;
using OwnedDescriptorPool = Owned<VkDescriptorPool, vkDestroyDescriptorPool>;
using OwnedQueryPool = Owned<VkQueryPool, vkDestroyQueryPool>;
using OwnedSetLayout = Owned<VkDescriptorSetLayout, vkDestroyDescriptorSetLayout>;
using OwnedPipelineLayout = Owned<VkPipelineLayout, vkDestroyPipelineLayout>;
using OwnedPipelineCache = Owned<VkPipelineCache, vkDestroyPipelineCache>;
using OwnedPipeline = Owned<VkPipeline, vkDestroyPipeline>;
using OwnedModule = Owned<VkShaderModule, vkDestroyShaderModule>;

OwnedFence make_fence(VkDevice device);
OwnedCommandPool make_command_pool(VkDevice device, uint32_t family);
VkCommandBuffer allocate_commands(VkDevice device, VkCommandPool pool); // freed with the pool
void begin_commands(VkCommandBuffer commands, VkCommandBufferUsageFlags usage = 0);
void end_commands(VkCommandBuffer commands);

constexpr VkPipelineStageFlags kernel_stage = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, copy_stage = VK_PIPELINE_STAGE_TRANSFER_BIT,
                               host_stage = VK_PIPELINE_STAGE_HOST_BIT, work_stages = kernel_stage | copy_stage;

// Which accesses a barrier names.
// - narrow: those of its stages. Naming any access makes NVIDIA's driver flush and wait for more than storage buffers need;
//   llama.cpp has used narrow barriers with all vendors' drivers since 2024 (ggml-org/llama.cpp#8943).
// - full: any memory access, of kernels and copies, for a driver that ignores narrow ones.
enum class BarrierForm { narrow, full };

// Records a barrier for all memory between earlier commands in stages `from` and later ones in stages `to`.
void barrier(VkCommandBuffer commands, VkPipelineStageFlags from, VkPipelineStageFlags to, BarrierForm form);

} // namespace tq
