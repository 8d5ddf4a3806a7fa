// Fills device buffers from the host: directly where the host can write them, else through two staging halves, so that the caller
// fills one while the other is copied.
#pragma once
#include "runtime/device.h"
#include <memory>
#include <span>

namespace tq {

class Uploader {
  public:
    enum class Path { best, staged }; // staged: never directly, so that a test on unified memory meets the staging path
    explicit Uploader(Device& device, Path path = Path::best);
    ~Uploader(); // waits for copies under way
    Uploader(const Uploader&) = delete;
    Uploader& operator=(const Uploader&) = delete;

    static constexpr size_t max_piece_bytes() { return size_t(16) << 20; }

    // Memory of dst.bytes (at most max_piece_bytes) to write the content of `dst` to, in any order but without reading it back
    // (it can be uncached). Kernels may not be running.
    std::span<std::byte> begin(View dst);
    void end();    // of the piece begun
    void finish(); // returns when everything is where it should be

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace tq
