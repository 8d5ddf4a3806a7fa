// Specialised kernels, built when first recorded. Private to runtime/.
#pragma once
#include "runtime/capabilities.h"
#include "runtime/shader.h"
#include "runtime/vulkan.h"
#include <filesystem>
#include <map>
#include <tuple>
#include <vector>

namespace tq {

struct Pipeline {
    VkDescriptorSetLayout set;
    VkPipelineLayout layout;
    OwnedPipeline handle;
};

VkDescriptorType descriptor_type(const Interface& interface, uint32_t binding);

struct PipelineOptions {
    bool named = false; // pipelines carry their kernel's name, for debuggers
    bool cached = true; // what the driver makes is kept on disk between runs
    VkPipelineCreateFlags flags = 0;
};

class Pipelines {
  public:
    Pipelines(VkDevice device, const Capabilities& capabilities, const PipelineOptions& options);
    ~Pipelines();
    Pipelines(const Pipelines&) = delete;
    Pipelines& operator=(const Pipelines&) = delete;

    const Pipeline& get(const AnyShader& shader, std::span<const uint32_t> constants);
    Pipeline build(const AnyShader& shader, std::span<const uint32_t> constants); // always anew
    void save() noexcept;                                                         // to disk, if something new was built

  private:
    struct Layout {
        OwnedSetLayout set;
        OwnedPipelineLayout pipeline;
    };
    const Layout& layout(const Interface& interface);
    std::vector<std::byte> cache_data() const noexcept;

    VkDevice device_;
    const Capabilities& capabilities_;
    PipelineOptions options_;
    std::filesystem::path path_;
    std::vector<std::byte> saved_; // what is on disk
    bool built_ = false;           // something since the last save
    OwnedPipelineCache cache_;
    std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Layout> layouts_; // by bindings, those with texels, push-constant bytes
    std::map<std::tuple<const uint32_t*, std::vector<uint32_t>>, Pipeline> pipelines_; // by code and constants
};

} // namespace tq
