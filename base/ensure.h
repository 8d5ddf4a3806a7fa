// ENSURE prints the place, the condition and the values of a broken invariant of our own, then aborts. Never for outside input.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>

#define ENSURE(condition, ...)                                                                                                   \
    do {                                                                                                                         \
        if (!(condition)) [[unlikely]] {                                                                                         \
            fmt::print(stderr, "{}:{}: broken promise: {}: ", __FILE__, __LINE__, #condition);                                   \
            fmt::print(stderr, "" __VA_ARGS__);                                                                                  \
            std::fputc('\n', stderr);                                                                                            \
            std::abort();                                                                                                        \
        }                                                                                                                        \
    } while (0)
