// Shared blocks have 16 MiB until 512 MiB are taken, and 64 MiB from then on: few allocations (drivers allow 4096), and little
// waste for a small model. Buffers above 4 MiB have an allocation of their own.
#include "runtime/memory.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/sizes.h"
#include "runtime/instance.h"
#include <algorithm>

namespace tq {

// First fit, by offset. Neighbours are merged when a range comes back, so a block that is all free is one range. Bytes that the
// alignment skips stay free.
std::optional<uint64_t> FreeList::take(uint64_t bytes, uint64_t alignment) {
    for (auto part = free_.begin(); part != free_.end(); ++part) {
        const auto [begin, length] = *part;
        const uint64_t offset = round_up(begin, alignment), skipped = offset - begin;
        if (skipped > length || bytes > length - skipped) continue;
        if (skipped)
            part->second = skipped;
        else
            free_.erase(part);
        if (const uint64_t rest = length - skipped - bytes) free_[offset + bytes] = rest;
        return offset;
    }
    return std::nullopt;
}

void FreeList::give_back(uint64_t offset, uint64_t bytes) {
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == offset + bytes) {
        bytes += next->second;
        next = free_.erase(next);
    }
    if (next != free_.begin()) {
        auto previous = std::prev(next);
        if (previous->first + previous->second == offset) {
            previous->second += bytes;
            return;
        }
    }
    free_[offset] = bytes;
}

// Weights and caches want the device's own memory, staging for uploads write-combined memory of the host, and readback cached
// memory of the host, as reading write-combined memory is very slow. The scores say so, in an order where the first term
// outweighs the others; of equal types the first is taken, as Vulkan lists faster ones first.
std::optional<uint32_t> choose_memory_type(const VkPhysicalDeviceMemoryProperties& properties, uint32_t allowed, Memory memory) {
    constexpr VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    constexpr VkMemoryPropertyFlags visible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    uint64_t largest = 0;
    for (uint32_t heap = 0; heap < properties.memoryHeapCount; heap++)
        if (properties.memoryHeaps[heap].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
            largest = std::max(largest, properties.memoryHeaps[heap].size);

    int best_score = -1;
    uint32_t best = 0;
    for (uint32_t type = 0; type < properties.memoryTypeCount; type++) {
        const VkMemoryPropertyFlags flags = properties.memoryTypes[type].propertyFlags;
        const bool writable = (flags & visible) == visible;
        const bool is_cached = flags & cached, is_local = flags & local;
        const bool is_largest = properties.memoryHeaps[properties.memoryTypes[type].heapIndex].size == largest;
        // Other flags (protected, lazily allocated, a vendor's own) need features that are not enabled.
        if (!(allowed >> type & 1) || (flags & ~(local | visible | cached))) continue;
        if (memory != Memory::device && !writable) continue;
        int score = 0;
        if (memory == Memory::device) score = 4 * is_local + 2 * (is_largest && writable) + is_largest;
        if (memory == Memory::upload) score = 2 * !is_local + !is_cached;
        if (memory == Memory::readback) score = 2 * is_cached + !is_local;
        if (score > best_score) best = type;
        best_score = std::max(best_score, score);
    }
    return best_score >= 0 ? std::optional(best) : std::nullopt;
}

Arena::Arena(VkPhysicalDevice physical, VkDevice device, uint32_t type, uint64_t max_block_bytes, const uint64_t& limit_bytes)
    : physical_(physical), device_(device), type_(type),
      has_budget_(has_extension(physical, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME)), max_block_bytes_(max_block_bytes),
      limit_bytes_(limit_bytes) {
    VkPhysicalDeviceMemoryProperties properties;
    vkGetPhysicalDeviceMemoryProperties(physical, &properties);
    heap_ = properties.memoryTypes[type].heapIndex;
    constexpr VkMemoryPropertyFlags coherent = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    visible_ = (properties.memoryTypes[type].propertyFlags & coherent) == coherent; // nothing here flushes
}

Arena::Budget Arena::budget() const {
    VkPhysicalDeviceMemoryBudgetPropertiesEXT now{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    if (has_budget_) properties.pNext = &now;
    vkGetPhysicalDeviceMemoryProperties2(physical_, &properties);
    Budget heap{properties.memoryProperties.memoryHeaps[heap_].size, allocated_bytes_};
    if (has_budget_) heap = {now.heapBudget[heap_], now.heapUsage[heap_]};
    const Budget limit{limit_bytes_, allocated_bytes_};
    return limit_bytes_ != 0 && limit.left() < heap.left() ? limit : heap;
}

uint64_t Arena::available_bytes() const { return budget().left(); }

// Returns null when memory is full. It asks the budget first: not all drivers fail, some move memory to the host (slow).
Arena::Block* Arena::add_block(uint64_t bytes) {
    if (bytes > budget().left()) return nullptr;
    const VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, bytes, type_};
    VkDeviceMemory memory;
    const VkResult result = vkAllocateMemory(device_, &info, nullptr, &memory);
    if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY) return nullptr;
    check(result, "allocating memory");
    OwnedMemory owned(device_, memory);
    void* mapped = nullptr;
    if (visible_) check(vkMapMemory(device_, memory, 0, VK_WHOLE_SIZE, 0, &mapped), "mapping memory");
    allocated_bytes_ += bytes;
    return &blocks_.emplace_back(Block{std::move(owned), bytes, static_cast<std::byte*>(mapped), FreeList(bytes)});
}

void Arena::fail_full(uint64_t bytes, const std::string& label) const {
    const Budget now = budget();
    fail_out_of_memory("no room for {} ({:.1f} MiB): {:.1f} of the {:.1f} MiB of memory that this program may use on the device "
                       "are taken; use a smaller context (-c), a smaller cache type (-ctk tq3 -ctv tq3) or a smaller model, or "
                       "close other programs",
                       label, double(bytes) / mib, double(now.used) / mib, double(now.bytes) / mib);
}

// A new shared block of full size may be refused although the piece alone would fit. So the second attempt asks for the piece's
// bytes.
Arena::Piece Arena::take(const VkMemoryRequirements& need, Placement placement, const std::string& label) {
    const bool shared = placement == Placement::shared;
    if (shared)
        for (Block& block : blocks_)
            if (const auto offset = block.free.take(need.size, need.alignment)) return {&block, *offset, need.size};
    const uint64_t grown = std::min(block_bytes(allocated_bytes_), max_block_bytes_);
    Block* block = shared && need.size <= max_shared_bytes ? add_block(grown) : nullptr;
    if (!block) block = add_block(need.size);
    if (!block) fail_full(need.size, label);
    return {block, *block->free.take(need.size, need.alignment), need.size};
}

void Arena::give_back(const Piece& piece) {
    piece.block->free.give_back(piece.offset, piece.bytes);
    if (!piece.block->free.all_free()) return;
    allocated_bytes_ -= piece.block->bytes;
    blocks_.remove_if([&](const Block& block) { return &block == piece.block; });
}

Buffer::Impl::Impl(Arena& in, Arena::Piece at, OwnedBuffer made, uint64_t size)
    : arena(in), piece(at), handle(std::move(made)), bytes(size),
      mapped(at.block->mapped ? at.block->mapped + at.offset : nullptr) {}

Buffer::Buffer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)), bytes_(impl_->bytes) {}

Buffer Buffer::of_size(uint64_t bytes) {
    Buffer out;
    out.bytes_ = bytes;
    return out;
}

Buffer::~Buffer() = default;
Buffer::Buffer(Buffer&&) noexcept = default;
Buffer& Buffer::operator=(Buffer&&) noexcept = default;

std::span<std::byte> Buffer::host() const {
    if (!impl_->mapped) return {};
    return {impl_->mapped, size_t(impl_->bytes)};
}

View::View(const Buffer& of, uint64_t at, uint64_t length) : buffer(&of), offset(at), bytes(length) {
    ENSURE(length > 0 && at <= of.bytes() && length <= of.bytes() - at, "{} bytes at {} of a buffer of {}", length, at,
           of.bytes());
}

} // namespace tq
