// Device memory, and the views of it that kernels are given.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace tq {

enum class Memory {
    device,   // fastest for kernels; the host writes it through an Uploader
    upload,   // written by the host, read by kernels
    readback, // written by kernels, read by the host
};

// The allocation that a buffer lies in.
enum class Placement {
    shared, // in a large allocation, among other buffers
    own,    // in an allocation of its own, returned to the driver as soon as the buffer is freed: for buffers that are replaced
};

// A buffer made by Device::allocate; freed with the object. It outlives every Commands that uses it, and its Device outlives
// it.
class Buffer {
  public:
    struct Impl;
    explicit Buffer(std::shared_ptr<Impl> impl);
    // Returns a buffer on no device, which has a size only, for Recorder::list.
    static Buffer of_size(uint64_t bytes);
    ~Buffer();
    Buffer(Buffer&&) noexcept;
    Buffer& operator=(Buffer&&) noexcept;

    uint64_t bytes() const { return bytes_; }
    // Returns the mapped memory; empty if the host cannot see it. Memory::device may be visible, but is slow to read: use a
    // readback buffer. Kernel output is visible after Commands::run; kernels see the host's writes before it.
    std::span<std::byte> host() const;
    Impl& impl() const { return *impl_; }
    // Returns a reference for a copy in progress: the memory is kept until the reference is released, too.
    std::shared_ptr<Impl> keep() const { return impl_; }

  private:
    Buffer() = default;
    std::shared_ptr<Impl> impl_;
    uint64_t bytes_ = 0;
};

// Part of a buffer. In a dispatch its offset is a multiple of Capabilities::storage_alignment and it is at most
// storage_range_bytes long; a copy may use any part of the buffer. Valid as long as the buffer is not moved.
struct View {
    const Buffer* buffer;
    uint64_t offset, bytes;

    View(const Buffer& whole) : View(whole, 0, whole.bytes()) {}
    View(const Buffer& of, uint64_t offset, uint64_t bytes);
};

} // namespace tq
