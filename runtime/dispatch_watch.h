// An observer of every recorded dispatch, for error reports.
#pragma once
#include "runtime/recorder.h"
#include <functional>
#include <span>

namespace tq {

// One dispatch; valid during the call.
struct Dispatch {
    const AnyShader& shader;
    Groups groups;
    std::span<const uint32_t> constants; // by id
    std::span<const std::byte> push;
    std::span<const View> views; // by binding
};

// While it exists, `watcher` is called before each dispatch is recorded, on the recording thread. At most one exists (ENSURE).
class DispatchWatch {
  public:
    explicit DispatchWatch(std::function<void(const Dispatch&)> watcher);
    ~DispatchWatch();
    DispatchWatch(const DispatchWatch&) = delete;
    DispatchWatch& operator=(const DispatchWatch&) = delete;
};

void tell_watch(const Dispatch& dispatch); // called by the Recorder

} // namespace tq
