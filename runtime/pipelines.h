// Specialised kernels, built when first recorded. Private to runtime/.
#pragma once
#include "runtime/capabilities.h"
#include "runtime/profile.h"
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
    bool named = false;    // pipelines carry their kernel's name, for debuggers
    bool cached = true;    // the driver's pipeline cache is kept on disk between runs
    bool feedback = false; // the driver reports which pipelines it found in the cache
    VkPipelineCreateFlags flags = 0;
};

// A kernel with the values of its specialisation constants, and with the size of its subgroups (subgroup_size.h).
struct PipelineKey {
    const AnyShader* shader;
    std::vector<uint32_t> constants;
    uint32_t subgroup_size = 0;

    bool operator<(const PipelineKey& other) const {
        return std::tie(shader, constants, subgroup_size) < std::tie(other.shader, other.constants, other.subgroup_size);
    }
};

// The pipelines of one device. One thread at a time may use it: the maps have no lock. References from get() stay valid as long
// as it lives, since a map's entries do not move. If the driver does not build a kernel, get(), build() and build_missing() throw
// the Error of check(), with the kernel's name.
class Pipelines {
  public:
    Pipelines(VkDevice device, const Capabilities& capabilities, const PipelineOptions& options);
    ~Pipelines();
    Pipelines(const Pipelines&) = delete;
    Pipelines& operator=(const Pipelines&) = delete;

    PipelineKey key(const AnyShader& shader, std::span<const uint32_t> constants) const;
    const Pipeline& get(const AnyShader& shader, std::span<const uint32_t> constants);
    void build_missing(std::span<const PipelineKey> requested);                   // builds them on all cores
    Pipeline build(const AnyShader& shader, std::span<const uint32_t> constants); // always builds a new one
    const BuildCount& count() const { return count_; }
    void save() noexcept; // writes to disk, if something new was built

  private:
    struct Built {
        Pipeline pipeline;
        bool from_cache;
    };
    struct Layout {
        OwnedSetLayout set;
        OwnedPipelineLayout pipeline;
    };
    const Layout& layout(const Interface& interface);
    Built build(const PipelineKey& key, const Layout& layouts) const;
    const Pipeline& add(const PipelineKey& key, Built built);
    std::vector<std::byte> cache_data() const noexcept;

    VkDevice device_;
    const Capabilities& capabilities_;
    PipelineOptions options_;
    std::filesystem::path path_;
    std::vector<std::byte> saved_; // the content of the file
    bool built_ = false;           // something was built since the last save
    OwnedPipelineCache cache_;
    std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Layout> layouts_; // by bindings, those with texels, push-constant bytes
    std::map<PipelineKey, Pipeline> pipelines_;
    BuildCount count_;
};

} // namespace tq
