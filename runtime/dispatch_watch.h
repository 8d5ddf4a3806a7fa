// Who is told of every dispatch that is recorded: for reports on what went wrong.
#pragma once
#include "runtime/recorder.h"
#include <functional>
#include <span>

namespace tq {

// Valid during the call.
struct Dispatch {
    const AnyShader& shader;
    Groups groups;
    std::span<const uint32_t> constants; // by id
    std::span<const std::byte> push;
    std::span<const View> views; // by binding
};

// While it lives, `watcher` is called before each dispatch is recorded, on the thread that records. One at a time (ENSURE).
class DispatchWatch {
  public:
    explicit DispatchWatch(std::function<void(const Dispatch&)> watcher);
    ~DispatchWatch();
    DispatchWatch(const DispatchWatch&) = delete;
    DispatchWatch& operator=(const DispatchWatch&) = delete;
};

void tell_watch(const Dispatch& dispatch); // by the Recorder

} // namespace tq
