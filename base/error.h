// A failure from outside (a bad file, no memory, a lost device, a wrong flag) is a tq::Error: one sentence that names what
// happened, with the numbers, and what to do. It is caught where work can go on without what failed (pages on disk, another
// machine, a device that is opened again, one request of several), else by the tools, which print it. Errors of our own code are
// for base/ensure.h.
#pragma once
#include <fmt/format.h>
#include <stdexcept>
#include <utility>

namespace tq {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Thrown when memory that is needed now is not available. Earlier allocations stay: work can go on with less.
struct OutOfMemory : Error {
    using Error::Error;
};

// Thrown when a device has stopped for good: the content of its memory is lost.
struct DeviceLost : Error {
    using Error::Error;
};

// Throws an Error whose text is `format` filled in with `args`.
template <class... Args> [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
    throw Error(fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args> [[noreturn]] void fail_out_of_memory(fmt::format_string<Args...> format, Args&&... args) {
    throw OutOfMemory(fmt::format(format, std::forward<Args>(args)...));
}

} // namespace tq
