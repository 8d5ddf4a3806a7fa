// Push constants of the shaders that only tests use.
#ifdef __cplusplus
#pragma once
#include <cstdint>
namespace tq {
using uint = uint32_t;
#endif

struct blocks_codec_params { uint codec; };
struct exact_params { uint count; };
struct scale_params { uint count; float factor; };
struct sum_params { uint count; uint add[3]; };

#ifdef __cplusplus
} // namespace tq
#endif
