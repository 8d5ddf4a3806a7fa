// Builds kernels for a device without running any: it needs no memory, so it also works on drivers that only compile, such as
// RADV for a GPU that is not there (RADV_FORCE_FAMILY).
#pragma once
#include "runtime/capabilities.h"
#include "runtime/shader.h"
#include "runtime/statistics.h"
#include <memory>
#include <string_view>

namespace tq {

class Compiler {
  public:
    // Selector and profile as Device's, but a device without memory will do. representations: the driver is asked for each
    // program's assembly, too.
    explicit Compiler(std::string_view selector = {}, std::string_view profile = {}, bool representations = false);
    ~Compiler();
    Compiler(const Compiler&) = delete;
    Compiler& operator=(const Compiler&) = delete;

    const Capabilities& capabilities() const;
    bool has_statistics() const; // the driver says what it made

    // Builds the kernel with these values of its specialisation constants, bypassing the pipeline cache. Returns the statistics
    // of each program that the driver made of it, nothing without has_statistics(). Throws Error when the driver fails.
    std::vector<KernelStatistics> compile(const AnyShader& shader, std::span<const uint32_t> constants);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace tq
