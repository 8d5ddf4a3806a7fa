// A model that is made again, with less of it on the devices, if their memory runs short in a run. Pages have the same bytes on
// all devices, so computed tokens are kept. If a device is lost, the model is made again with an empty cache.
#pragma once
#include "model/forward.h"

namespace tq {

// Both make the model again after this error, when the one before is gone. They throw Error if that fails.
struct Remake {
    std::function<std::unique_ptr<Forward>(const OutOfMemory& error)> with_less;
    std::function<std::unique_ptr<Forward>(const DeviceLost& error)> on_new_device; // null: Forward::reopen() returns false
};

// The caches of what `remake` returns have the shape of first->cache(), and their pages' bytes can be read and written. If a
// function fails, its error is thrown then, and by all later runs.
std::unique_ptr<Forward> make_placed_forward(std::unique_ptr<Forward> first, Remake remake);

} // namespace tq
