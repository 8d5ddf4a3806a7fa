// Builds kernels for a device without running them. This needs no memory, so it also works on drivers that only compile, such
// as RADV for a GPU that is not present (RADV_FORCE_FAMILY).
#pragma once
#include "runtime/capabilities.h"
#include "runtime/shader.h"
#include "runtime/statistics.h"
#include <memory>
#include <string_view>

namespace tq {

class Compiler {
  public:
    // selector and profile as in Device, but a device without memory is accepted. representations: also asks the driver for
    // each program's assembly.
    explicit Compiler(std::string_view selector = {}, std::string_view profile = {}, bool representations = false);
    ~Compiler();
    Compiler(const Compiler&) = delete;
    Compiler& operator=(const Compiler&) = delete;

    const Capabilities& capabilities() const;
    bool has_statistics() const; // whether the driver reports statistics of its programs

    // Builds the kernel with these values of its specialisation constants, bypassing the pipeline cache. Returns the statistics
    // of each program that the driver made of it; nothing without has_statistics(). Throws Error when the driver fails.
    std::vector<KernelStatistics> compile(const AnyShader& shader, std::span<const uint32_t> constants);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace tq
