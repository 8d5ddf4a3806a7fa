// Loader, instance and validation. With TQ_VALIDATE=1 the validation layer checks every call and, with synchronization
// validation, every barrier that the recorder leaves out; its first warning ends the process, so that no test can miss it.
#include "runtime/instance.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/printable.h"
#include "runtime/device.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

namespace tq {

const char* const unloadable_driver_advice =
    "install what is missing, or the driver again (NVIDIA's needs libX11, libXext, and libGL and libEGL of glvnd, and in a "
    "container NVIDIA_DRIVER_CAPABILITIES=all)";

namespace {

constexpr const char* validation_layer = "VK_LAYER_KHRONOS_validation";
constexpr const char* how_to_install =
    "install the Vulkan loader and a driver (Debian, Ubuntu: apt install libvulkan1 mesa-vulkan-drivers; Fedora: dnf install "
    "vulkan-loader mesa-vulkan-drivers; NVIDIA and Windows: the vendor's driver; macOS: MoltenVK), or use --device cpu";

bool validation_requested() { return environment_variable("TQ_VALIDATE").value_or("0") != "0"; }

VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                               const VkDebugUtilsMessengerCallbackDataEXT* data, void*) {
    std::fprintf(stderr, "Vulkan validation: %s\n", data->pMessage);
    std::abort();
}

VkDebugUtilsMessengerCreateInfoEXT messenger_info() {
    VkDebugUtilsMessengerCreateInfoEXT info{VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
    info.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
    info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
    info.pfnUserCallback = on_message;
    return info;
}

// The loader tells why a driver cannot be loaded (a missing library, say) only through a debug messenger, and vkCreateInstance
// then returns no more than VK_ERROR_INCOMPATIBLE_DRIVER. The first message is kept, since the later ones follow from it.
VkBool32 VKAPI_CALL on_loader_error(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                    const VkDebugUtilsMessengerCallbackDataEXT* data, void* first) {
    const std::string_view message = data->pMessage;
    const bool concludes = message.starts_with("vkCreateInstance: "); // "Found no drivers!", after the reasons or without one
    if (auto& text = *static_cast<std::string*>(first); text.empty() && !concludes) text = message;
    return VK_FALSE;
}

// Describes the messenger for the instance's creation. `first` must outlive the instance.
VkDebugUtilsMessengerCreateInfoEXT loader_messenger_info(std::string& first) {
    VkDebugUtilsMessengerCreateInfoEXT info{VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
    info.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
    info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT;
    info.pfnUserCallback = on_loader_error;
    info.pUserData = &first;
    return info;
}

// Returns what to do without a driver. The variables that choose drivers come first, as they may have left out what is there.
std::string driver_advice(const std::string& otherwise) {
    std::string set;
    const std::vector<std::string> all = environment_variables(); // also those that are empty
    for (const char* name : {"VK_DRIVER_FILES=", "VK_ICD_FILENAMES=", "VK_ADD_DRIVER_FILES=", "VK_LOADER_DRIVERS_SELECT=",
                             "VK_LOADER_DRIVERS_DISABLE="})
        for (const std::string& one : all)
            if (one.starts_with(name)) set += fmt::format("{}{}", set.empty() ? "" : ", ", printable(one, 300));
    return set.empty() ? otherwise : "the environment has " + set + ": correct or unset that, or use --device cpu";
}

[[noreturn]] void fail_without_driver(const std::string& reason) {
    const std::string why = printable(reason, 300);
    throw NoDriver(reason.empty() ? fmt::format("no Vulkan driver was found on this machine: {}", driver_advice(how_to_install))
                                  : fmt::format("no Vulkan driver was found that can be loaded ({}): {}", why,
                                                driver_advice(unloadable_driver_advice + std::string(", or use --device cpu"))),
                   why);
}

// Returns whether the instance, or `layer`, has the extension.
// VK_INCOMPLETE is a success (it is greater than 0): the list grew between the two calls, and the elements that were read are
// good. So only negative results are errors, here and below.
bool has_instance_extension(const char* layer, const char* extension) {
    uint32_t count = 0;
    if (vkEnumerateInstanceExtensionProperties(layer, &count, nullptr) != VK_SUCCESS) return false;
    std::vector<VkExtensionProperties> found(count);
    if (vkEnumerateInstanceExtensionProperties(layer, &count, found.data()) < 0) return false;
    found.resize(count);
    for (const VkExtensionProperties& one : found)
        if (std::strcmp(one.extensionName, extension) == 0) return true;
    return false;
}

void load() {
    if (volkInitialize() != VK_SUCCESS) fail("this machine has no Vulkan loader: {}", how_to_install);
    if (volkGetInstanceVersion() < VK_API_VERSION_1_2)
        fail("the Vulkan loader on this machine is older than Vulkan 1.2: {}", how_to_install);
    if (validation_requested() && !has_instance_extension(validation_layer, VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME))
        fail("TQ_VALIDATE is set, but {} is not installed (Debian, Ubuntu: apt install vulkan-validationlayers)",
             validation_layer);
}

} // namespace

// The chain of info.pNext is features -> of_loader -> messenger with validation, and of_loader alone without: messengers in the
// chain see the creation and the end of the instance, which a messenger object cannot. That object, made last, sees all calls
// between.
Instance::Instance() {
    load();
    const bool validate = validation_requested();
    std::vector<const char*> extensions;
    VkInstanceCreateFlags flags = 0;
    debug_utils_ = validate || has_instance_extension(nullptr, VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
    if (debug_utils_) extensions.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
    if (has_instance_extension(nullptr, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME)) { // otherwise MoltenVK is hidden
        extensions.push_back(VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME);
        flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    }

    VkDebugUtilsMessengerCreateInfoEXT messenger = messenger_info(), of_loader = loader_messenger_info(loader_error_);
    if (validate) of_loader.pNext = &messenger;
    const VkValidationFeatureEnableEXT synchronization = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
    const VkValidationFeaturesEXT features{.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
                                           .pNext = &of_loader,
                                           .enabledValidationFeatureCount = 1,
                                           .pEnabledValidationFeatures = &synchronization,
                                           .disabledValidationFeatureCount = 0,
                                           .pDisabledValidationFeatures = nullptr};
    VkApplicationInfo application{VK_STRUCTURE_TYPE_APPLICATION_INFO};
    application.pApplicationName = "tq-run";
    application.apiVersion = VK_API_VERSION_1_2;
    VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    if (debug_utils_) info.pNext = &of_loader;
    if (validate) info.pNext = &features;
    info.flags = flags;
    info.pApplicationInfo = &application;
    info.enabledLayerCount = validate ? 1 : 0;
    info.ppEnabledLayerNames = &validation_layer;
    info.enabledExtensionCount = uint32_t(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();

    const VkResult result = vkCreateInstance(&info, nullptr, &handle_);
    if (result == VK_ERROR_INCOMPATIBLE_DRIVER) fail_without_driver(loader_error_);
    if (result == VK_ERROR_OUT_OF_HOST_MEMORY) // before there is a messenger, and whatever the other manifests are
        fail_without_driver("VK_ERROR_OUT_OF_HOST_MEMORY: loaders say so of a driver's manifest that is not JSON, too");
    check(result, "creating the Vulkan instance");
    volkLoadInstance(handle_);
    if (validate) check(vkCreateDebugUtilsMessengerEXT(handle_, &messenger, nullptr, &messenger_), "starting validation");
}

Instance::~Instance() {
    if (messenger_) vkDestroyDebugUtilsMessengerEXT(handle_, messenger_, nullptr);
    vkDestroyInstance(handle_, nullptr);
}

std::vector<VkPhysicalDevice> Instance::devices() const {
    uint32_t count = 0;
    std::vector<VkPhysicalDevice> found;
    if (vkEnumeratePhysicalDevices(handle_, &count, nullptr) == VK_SUCCESS) {
        found.resize(count);
        if (vkEnumeratePhysicalDevices(handle_, &count, found.data()) < 0) count = 0;
        found.resize(count);
    }
    if (found.empty()) fail("Vulkan found no device on this machine: {}", driver_advice(how_to_install));
    return found;
}

bool validated_by_older(uint32_t version) {
    uint32_t count = 0;
    if (!validation_requested() || vkEnumerateInstanceLayerProperties(&count, nullptr) != VK_SUCCESS) return false;
    std::vector<VkLayerProperties> found(count);
    if (vkEnumerateInstanceLayerProperties(&count, found.data()) < 0) return false;
    found.resize(count);
    for (const VkLayerProperties& layer : found)
        if (std::strcmp(layer.layerName, validation_layer) == 0) return layer.specVersion < version;
    return false;
}

// All devices of a process share one instance, and the last of them ends it: a weak pointer, so that it does not outlive them as
// a static object would. Whoever comes after that gets a new one.
std::shared_ptr<Instance> instance() {
    static std::mutex mutex;
    static std::weak_ptr<Instance> current;
    const std::lock_guard lock(mutex);
    std::shared_ptr<Instance> shared = current.lock();
    if (!shared) current = shared = std::make_shared<Instance>();
    return shared;
}

} // namespace tq
