// Memory on a device, and the pieces of it that kernels are given.
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

// Where in the device's memory a buffer goes.
enum class Placement {
    shared, // into a large allocation, among other buffers
    own,    // an allocation of its own, which the driver has back as soon as the buffer is freed: for buffers that are replaced
};

// A buffer made by Device::allocate; freed with the object. Outlives every Commands that uses it and is outlived by its Device.
class Buffer {
  public:
    struct Impl;
    explicit Buffer(std::shared_ptr<Impl> impl);
    // On no device: nothing but its size, for Recorder::list.
    static Buffer of_size(uint64_t bytes);
    ~Buffer();
    Buffer(Buffer&&) noexcept;
    Buffer& operator=(Buffer&&) noexcept;

    uint64_t bytes() const { return bytes_; }
    // The mapped memory; empty where the host cannot see it. Memory::device may be visible, but is slow to read: use a readback
    // buffer. What kernels wrote is there after Commands::run; what the host writes before it is seen by the kernels.
    std::span<std::byte> host() const;
    Impl& impl() const { return *impl_; }
    // For a copy under way: the memory stays until this is gone too.
    std::shared_ptr<Impl> keep() const { return impl_; }

  private:
    Buffer() = default;
    std::shared_ptr<Impl> impl_;
    uint64_t bytes_ = 0;
};

// Part of a buffer. For a dispatch its offset is a multiple of Capabilities::storage_alignment and it is at most
// storage_range_bytes long; for a copy anything inside the buffer will do. Valid as long as the buffer stays where it is.
struct View {
    const Buffer* buffer;
    uint64_t offset, bytes;

    View(const Buffer& whole) : View(whole, 0, whole.bytes()) {}
    View(const Buffer& of, uint64_t offset, uint64_t bytes);
};

} // namespace tq
