// A model that is made again, with less of it on its devices, where their memory runs short in a run: what was computed so far
// is kept, since the bytes of pages are the same on all devices.
#pragma once
#include "model/forward.h"

namespace tq {

// Makes the model again, after this error. Throws OutOfMemory where it fits nowhere.
using Remake = std::function<std::unique_ptr<Forward>(const OutOfMemory& error)>;

// The cache of what `remake` returns has the shape of first->cache(), and its pages' bytes can be read and written.
// Full-precision windows begin anew when the model moves. Where `remake` fails, its error is thrown by that run and all later
// ones.
std::unique_ptr<Forward> make_placed_forward(std::unique_ptr<Forward> first, Remake remake);

} // namespace tq
