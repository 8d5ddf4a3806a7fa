// The process's one Vulkan instance, and the capabilities of its devices. Private to runtime/.
#pragma once
#include "runtime/capabilities.h"
#include "runtime/device_profile.h"
#include "runtime/vulkan.h"
#include <memory>
#include <string>
#include <vector>

namespace tq {

class Instance {
  public:
    // Throws Error when there is no loader, or when validation is requested (TQ_VALIDATE=1) and not installed; NoDriver.
    Instance();
    ~Instance();
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;

    // Returns the devices in the loader's order. Throws Error when there is none.
    std::vector<VkPhysicalDevice> devices() const;
    bool debug_utils() const { return debug_utils_; }

  private:
    std::string loader_error_; // the first one, which the others follow from
    VkInstance handle_{};
    VkDebugUtilsMessengerEXT messenger_{};
    bool debug_utils_ = false;
};

// Shared by all objects that need it: volk's entry points belong to one instance at a time.
std::shared_ptr<Instance> instance();

// True if validation is on and its layer is older than `version`, whose features it would report as errors.
bool validated_by_older(uint32_t version);

bool has_extension(VkPhysicalDevice device, const char* name);
uint32_t compute_family(VkPhysicalDevice device); // the first queue family that computes; UINT32_MAX without one
Capabilities read_capabilities(VkPhysicalDevice device, const DeviceProfile& profile); // as clamped by the profile

} // namespace tq
