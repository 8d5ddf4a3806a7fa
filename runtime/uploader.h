// Fills device buffers from the host: directly if the host can write them, else through two staging buffers, so that the caller
// fills one while the other is copied.
#pragma once
#include "runtime/device.h"
#include <memory>
#include <span>
#include <string>

namespace tq {

class Uploader {
  public:
    enum class Path { best, staged }; // staged: never directly, so that a test on unified memory covers the staging path
    explicit Uploader(Device& device, Path path = Path::best);
    ~Uploader(); // waits for copies in flight
    Uploader(const Uploader&) = delete;
    Uploader& operator=(const Uploader&) = delete;

    static constexpr size_t max_piece_bytes() { return size_t(16) << 20; }

    // Returns memory of dst.bytes (at most max_piece_bytes) for the content of `dst`, to be written in any order but not read
    // (it can be uncached). No kernel that uses dst may be running.
    std::span<std::byte> begin(View dst);
    void end();    // ends the piece begun
    void cancel(); // gives the piece up after its filling failed: its content is undefined
    void write(const Buffer& dst, std::span<const std::byte> content); // to the beginning of dst, piece by piece
    void finish();                                                     // returns when all pieces have been copied

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Returns a new buffer of the device with `content`, whose copy has ended. Throws OutOfMemory.
Buffer upload(Device&, std::string label, std::span<const std::byte> content);
inline Buffer upload(Device& device, std::string label, std::span<const float> values) {
    return upload(device, std::move(label), std::as_bytes(values));
}

} // namespace tq
