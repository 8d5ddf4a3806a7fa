// Two staging buffers: while the device copies from one, the caller fills the other.
#include "runtime/uploader.h"
#include "base/ensure.h"
#include "runtime/device_impl.h"
#include <algorithm>
#include <optional>

namespace tq {

namespace {

struct Half {
    Buffer staging;
    OwnedFence fence; // signalled when the copy from it is done
    OwnedCommandPool pool;
    VkCommandBuffer commands{};
    bool busy = false;
    std::shared_ptr<Buffer::Impl> destination; // keeps the copy's destination, whose Buffer may be freed before the copy is done
};

Half make_half(Device& device) {
    const Device::Impl& impl = device.impl();
    return {device.allocate("staging", Uploader::max_piece_bytes(), Memory::upload), make_fence(impl.handle),
            make_command_pool(impl.handle, impl.family)};
}

} // namespace

struct Uploader::Impl {
    Device& device;
    const bool always_staged;
    std::vector<Half> halves; // made when first needed
    size_t turn = 0;
    std::optional<View> piece; // begun and not ended
    bool piece_staged = false;

    void wait_for(Half& half) {
        if (half.busy) device.impl().wait(half.fence);
        half.busy = false;
        half.destination.reset();
    }
};

Uploader::Uploader(Device& device, Path path)
    : impl_(new Impl{
          .device = device, .always_staged = path == Path::staged, .halves = {}, .turn = 0, .piece = {}, .piece_staged = false}) {
}

Uploader::~Uploader() {
    for (const Half& half : impl_->halves)
        if (half.busy) impl_->device.impl().wait_to_end(half.fence);
}

// If the host can write to the destination itself (unified memory, or a BAR over all of it), the caller gets that memory, and
// nothing is copied. Otherwise it fills one of two staging buffers, and waits only if the copy from that buffer is still going
// on.
std::span<std::byte> Uploader::begin(View dst) {
    ENSURE(!impl_->piece, "a piece is begun twice");
    ENSURE(dst.bytes <= max_piece_bytes(), "a piece of {} bytes", dst.bytes);
    impl_->piece = dst;
    const std::span<std::byte> mapped = dst.buffer->host();
    impl_->piece_staged = impl_->always_staged || mapped.empty();
    if (!impl_->piece_staged) return mapped.subspan(size_t(dst.offset), size_t(dst.bytes));

    if (impl_->halves.size() < 2) impl_->halves.push_back(make_half(impl_->device));
    Half& half = impl_->halves[impl_->turn];
    impl_->wait_for(half);
    return half.staging.host().first(size_t(dst.bytes));
}

// The copy is submitted and not waited for. The barrier before it orders it behind earlier submissions.
void Uploader::end() {
    ENSURE(impl_->piece, "no piece was begun");
    const View dst = *impl_->piece;
    impl_->piece.reset();
    if (!impl_->piece_staged) return;

    Device::Impl& device = impl_->device.impl();
    Half& half = impl_->halves[impl_->turn];
    check(vkResetCommandPool(device.handle, half.pool, 0), "resetting a command pool");
    if (!half.commands) half.commands = allocate_commands(device.handle, half.pool);
    begin_commands(half.commands);
    barrier(half.commands, work_stages, copy_stage, device.barrier_form());
    const VkBufferCopy region{0, dst.offset, dst.bytes};
    vkCmdCopyBuffer(half.commands, half.staging.impl().handle, dst.buffer->impl().handle, 1, &region);
    end_commands(half.commands);
    device.submit({&half.commands, 1}, half.fence);
    half.busy = true;
    half.destination = dst.buffer->keep();
    impl_->turn = 1 - impl_->turn;
}

void Uploader::cancel() { impl_->piece.reset(); }

void Uploader::write(const Buffer& dst, std::span<const std::byte> content) {
    for (size_t at = 0; at < content.size(); at += max_piece_bytes()) {
        const auto piece = content.subspan(at, std::min(max_piece_bytes(), content.size() - at));
        std::ranges::copy(piece, begin(View(dst, at, piece.size())).begin());
        end();
    }
}

void Uploader::finish() {
    ENSURE(!impl_->piece, "a piece is not ended");
    for (Half& half : impl_->halves) impl_->wait_for(half);
}

Buffer upload(Device& device, std::string label, std::span<const std::byte> content) {
    Buffer buffer = device.allocate(std::move(label), content.size());
    Uploader uploader(device);
    uploader.write(buffer, content);
    uploader.finish();
    return buffer;
}

} // namespace tq
