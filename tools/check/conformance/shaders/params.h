// Push constants of the shaders that only conformance rows use.
#ifdef __cplusplus
#pragma once
#include <cstdint>
namespace tq {
using uint = uint32_t;
#endif

struct words_params {
    uint count;
    uint from;
    uint to;
    uint add;
};
struct floats_params {
    uint count;
};
struct integers_params {
    uint count;
};
struct workgroup_params {
    uint count;
};

#ifdef __cplusplus
} // namespace tq
#endif
