// Device memory in large blocks, from which buffers are allocated. Private to runtime/.
#pragma once
#include "runtime/buffer.h"
#include "runtime/vulkan.h"
#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <string>

namespace tq {

// The free ranges among `bytes` bytes.
class FreeList {
  public:
    explicit FreeList(uint64_t bytes) : bytes_(bytes), free_{{0, bytes}} {}
    std::optional<uint64_t> take(uint64_t bytes, uint64_t alignment); // the lowest offset that fits
    void give_back(uint64_t offset, uint64_t bytes);
    bool all_free() const { return free_.size() == 1 && free_.begin()->second == bytes_; }

  private:
    uint64_t bytes_;
    std::map<uint64_t, uint64_t> free_; // offset -> bytes, neighbours merged
};

// Returns the memory type among the set bits of `allowed` that suits `memory` best. Device memory is host-visible only if all of
// it is (unified memory, or a BAR that covers it): the 256 MB window of older machines is too small and slow for weights. Returns
// nullopt if no type fits; Vulkan guarantees one, but a driver without its hardware (RADV_FORCE_FAMILY) has none.
std::optional<uint32_t> choose_memory_type(const VkPhysicalDeviceMemoryProperties& properties, uint32_t allowed, Memory memory);

// Memory of one type.
class Arena {
  public:
    struct Block {
        OwnedMemory memory;
        uint64_t bytes;
        std::byte* mapped; // null if the host cannot see it
        FreeList free;
    };
    struct Piece {
        Block* block;
        uint64_t offset, bytes;
    };

    // `limit_bytes`: the limit of allocated_bytes(); 0: no limit. It may change, and must outlive the arena.
    Arena(VkPhysicalDevice physical, VkDevice device, uint32_t type, uint64_t max_block_bytes, const uint64_t& limit_bytes);

    // Larger buffers have an allocation of their own. block_bytes: of the next shared block, after `allocated` bytes.
    static constexpr uint64_t max_shared_bytes = 4 << 20;
    static constexpr uint64_t block_bytes(uint64_t allocated) { return allocated < uint64_t(512) << 20 ? 16 << 20 : 64 << 20; }

    // Throws OutOfMemory with the numbers, and with `label`, when there is no room.
    Piece take(const VkMemoryRequirements& need, Placement placement, const std::string& label);
    void give_back(const Piece& piece);
    uint64_t allocated_bytes() const { return allocated_bytes_; }
    uint64_t available_bytes() const; // bytes that further blocks can take, now
    size_t blocks() const { return blocks_.size(); }

  private:
    Block* add_block(uint64_t bytes);
    [[noreturn]] void fail_full(uint64_t bytes, const std::string& label) const;
    struct Budget {
        uint64_t bytes, used;
        uint64_t left() const { return bytes - std::min(used, bytes); }
    };
    Budget budget() const; // the heap's current budget, or the limit if that is less

    VkPhysicalDevice physical_;
    VkDevice device_;
    uint32_t type_, heap_;
    bool visible_, has_budget_;
    uint64_t max_block_bytes_, allocated_bytes_ = 0;
    const uint64_t& limit_bytes_;
    std::list<Block> blocks_;
};

struct Buffer::Impl {
    Arena& arena;
    Arena::Piece piece;
    OwnedBuffer handle;
    uint64_t bytes;
    std::byte* mapped;

    Impl(Arena& arena, Arena::Piece piece, OwnedBuffer handle, uint64_t bytes);
    ~Impl() {
        handle = {}; // before its memory is freed
        arena.give_back(piece);
    }
    Impl(const Impl&) = delete;
};

} // namespace tq
