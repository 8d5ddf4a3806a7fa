#include "runtime/dispatch_watch.h"
#include "base/ensure.h"

namespace tq {
namespace {

std::function<void(const Dispatch&)> current;

} // namespace

DispatchWatch::DispatchWatch(std::function<void(const Dispatch&)> watcher) {
    ENSURE(!current, "another watch: {}", bool(current));
    current = std::move(watcher);
}

DispatchWatch::~DispatchWatch() { current = nullptr; }

void tell_watch(const Dispatch& dispatch) {
    if (current) current(dispatch);
}

} // namespace tq
