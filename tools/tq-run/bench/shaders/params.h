// Push constants of the shaders that measure the limits of a device.
#ifdef __cplusplus
#pragma once
#include <cstdint>
namespace tq {
using uint = uint32_t;
#endif

struct limits_fill_params { uint vectors; };
struct limits_copy_params { uint vectors; };
struct limits_read_params { uint vectors; };

// a = a * factor + term, `iterations` times: known only at run time, so that no compiler can evaluate it.
struct limits_fma_params { uint iterations; float factor; float term; };

// a = a + dot(bytes of a, bytes of `factors`), `iterations` times.
struct limits_dot_params { uint iterations; int factors; };

#ifdef __cplusplus
} // namespace tq
#endif
