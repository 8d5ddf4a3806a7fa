// volk's definitions, once.
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#define VOLK_IMPLEMENTATION
#include <volk.h>
