// Selects, from the environment, the call of a Vulkan function that fails, and how; and reports what happened.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include <vulkan/vulkan.h>

namespace tq::fault {

// The functions that can fail, as TQ_FAULT names them.
#define TQ_FAULT_FUNCTIONS(X)                                                                                                    \
    X(vkAllocateMemory)                                                                                                          \
    X(vkMapMemory)                                                                                                               \
    X(vkBindBufferMemory)                                                                                                        \
    X(vkCreateBuffer)                                                                                                            \
    X(vkCreateBufferView)                                                                                                        \
    X(vkCreateFence)                                                                                                             \
    X(vkResetFences)                                                                                                             \
    X(vkWaitForFences)                                                                                                           \
    X(vkGetFenceStatus)                                                                                                          \
    X(vkQueueSubmit)                                                                                                             \
    X(vkQueueWaitIdle)                                                                                                           \
    X(vkCreateCommandPool)                                                                                                       \
    X(vkResetCommandPool)                                                                                                        \
    X(vkAllocateCommandBuffers)                                                                                                  \
    X(vkBeginCommandBuffer)                                                                                                      \
    X(vkEndCommandBuffer)                                                                                                        \
    X(vkCreateShaderModule)                                                                                                      \
    X(vkCreatePipelineCache)                                                                                                     \
    X(vkGetPipelineCacheData)                                                                                                    \
    X(vkCreatePipelineLayout)                                                                                                    \
    X(vkCreateComputePipelines)                                                                                                  \
    X(vkCreateDescriptorSetLayout)                                                                                               \
    X(vkCreateDescriptorPool)                                                                                                    \
    X(vkAllocateDescriptorSets)                                                                                                  \
    X(vkCreateQueryPool)                                                                                                         \
    X(vkGetQueryPoolResults)

enum class Function : uint32_t {
#define TQ_FAULT_ENUM(name) name,
    TQ_FAULT_FUNCTIONS(TQ_FAULT_ENUM)
#undef TQ_FAULT_ENUM
        vkCreateDevice,
    vkCreateInstance,
    vkEnumeratePhysicalDevices,
    count
};

struct Fault {
    VkResult result;
    bool hangs;           // never returns, or with VK_TIMEOUT when the caller's timeout is over
    bool crashes = false; // the process
};

class Plan {
  public:
    // Parses TQ_FAULT, "" for none: FUNCTION:N=RESULT, the N-th call (from 1), or FUNCTION:N+=RESULT, that one and all after
    // it; several with commas between. RESULT is a VkResult without VK_ERROR_ and VK_, HANG or CRASH. Ends the
    // process with a message if the text is not valid: no test may pass because nothing failed.
    explicit Plan(std::string_view text);

    // Counts a call; returns the fault to return instead of calling the driver. After DEVICE_LOST or a HANG, all other
    // functions that wait for the device or submit work return that as well, until a device is created.
    std::optional<Fault> strike(Function function);

    // "vkMapMemory 3" per function that was called, and "fault vkMapMemory 2 MEMORY_MAP_FAILED" per fault.
    std::string report() const;

  private:
    struct Entry {
        Function function;
        uint64_t first;
        bool and_after;
        std::string result;
        Fault fault;
    };
    void add(std::string_view entry);

    std::vector<Entry> entries_;
    std::optional<Fault> for_ever_;
    uint64_t calls_[size_t(Function::count)]{};
    std::string struck_;
};

} // namespace tq::fault
