// A promise of our own that broke prints where, what and the values, then aborts. Never for input from outside.
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
