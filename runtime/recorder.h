// Records kernels into commands that can run again and again. No barrier is written by hand: the shader's readonly and
// writeonly qualifiers tell what each dispatch accesses, and a barrier is inserted exactly where two dispatches conflict.
#pragma once
#include "base/ensure.h"
#include "runtime/device.h"
#include "runtime/shader.h"
#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace tq {

struct Groups {
    uint32_t x = 1, y = 1, z = 1;
};

// The bytes that a dispatch moves and its arithmetic operations: for profiles, and to predict its time.
struct Work {
    uint64_t bytes = 0, flops = 0;       // upper bounds
    std::function<Work()> now = nullptr; // work of the latest run, if runs of one recording differ; called when profiling
    uint32_t rows = 0, cols = 0;         // of a product's matrix: each size has a row of its own in a profile
};

// When commands may be submitted again: once they have run, or while they still run (Commands::run_all). The host may read
// results of the former; results of the latter it may read only if other commands have copied them.
enum class Again { after_it_ran, at_any_time };

// A finished recording. Its buffers and its device must outlive it.
class Commands {
  public:
    ~Commands();
    Commands(Commands&&) noexcept;
    Commands& operator=(Commands&&) noexcept;

    // Runs everything and waits. The recording is divided into segments of about 100 ms (predicted). Two are in flight at a time;
    // before each further one `keep_going` is called, and if it returns false, the submitted segments are waited for and run()
    // returns false. Throws Error when the device is lost.
    bool run(const std::function<bool()>& keep_going = {});

    // The same for each of `all`, repeated ones too, in this order: the GPU never waits for the host. If none is longer than a
    // segment, all are submitted at once. Repeated ones must be recorded with Again::at_any_time. Several must not be timed.
    static bool run_all(std::span<Commands* const> all, const std::function<bool()>& keep_going = {});
    size_t segments() const;

  private:
    friend class Recorder;
    struct Impl;
    explicit Commands(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

class Recorder {
  public:
    explicit Recorder(Device& device, Again again = Again::after_it_ran);
    ~Recorder();
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

    // dispatch<shader::rms_norm>({rows}, {.workgroup = 128}, {cols, eps}, work, y, x, w): the number of buffers, the names of the
    // specialisation constants and the type of the params are checked at compile time. The views follow the shader's bindings 0,
    // 1, ...
    template <const auto& shader, std::convertible_to<View>... V>
    void dispatch(Groups groups, const ConstantsOf<shader>& constants, const ParamsOf<shader>& params, const Work& work,
                  const V&... views)
        requires(sizeof...(V) == shader.interface.bindings)
    {
        const View list[] = {View(views)...};
        const auto push = std::as_bytes(std::span(&params, 1)).first(shader.interface.push_bytes);
        record(shader, groups, constant_values(constants), push, work, list);
    }

    // The same for member number `member` of a family, which must not be null.
    template <const auto& family, std::convertible_to<View>... V>
    void dispatch(size_t member, Groups groups, const ConstantsOf<family>& constants, const ParamsOf<family>& params,
                  const Work& work, const V&... views)
        requires(sizeof...(V) == family.interface.bindings)
    {
        const View list[] = {View(views)...};
        ENSURE(member < family.members.size() && family.members[member] != nullptr, "no member {}", member);
        const AnyShader& shader = *family.members[member];
        const auto push = std::as_bytes(std::span(&params, 1)).first(shader.interface.push_bytes);
        record(shader, groups, constant_values(constants), push, work, list);
    }

    // The same for a kernel that is known only when the program runs, such as one from a file: nothing is checked when this is
    // compiled. The kernel must outlive the device.
    void dispatch(const AnyShader& shader, Groups groups, std::span<const uint32_t> constants, std::span<const std::byte> push,
                  std::span<const View> views) {
        record(shader, groups, constants, push, {}, views);
    }

    // Copies src to dst; both have the same length.
    void copy(View dst, View src);

    // Begins a named range of the recording, for debuggers such as RenderDoc.
    void begin_label(std::string label);
    void end_label();

    uint32_t barriers() const; // number so far, between commands

    // Returns the variants that `body` dispatches, without a device: each once, in order of first use. Its buffers may come
    // from Buffer::of_size().
    static std::vector<Variant> list(const std::function<void(Recorder&)>& body);

    // Builds, on all cores, the kernels that `body` dispatches; nothing is recorded. A later recording finds them built.
    static void prepare(Device& device, const std::function<void(Recorder&)>& body);

    // Ends the recording; the recorder cannot be used again.
    Commands finish();

  private:
    struct Listing;
    explicit Recorder(Listing& listing);
    void record(const AnyShader& shader, Groups groups, std::span<const uint32_t> constants, std::span<const std::byte> push,
                const Work& work, std::span<const View> views);
    struct Impl;
    std::unique_ptr<Impl> impl_; // null while listing
    Listing* listing_ = nullptr;
};

} // namespace tq
