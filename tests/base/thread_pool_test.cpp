// The pool of threads: its loops, and where the system cannot start more threads.
#include "base/splitmix64.h"
#include "base/thread_pool.h"
#include "tests/support/skip.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <doctest/doctest.h>
#include <numeric>
#include <vector>

#ifndef _WIN32
#include <cstdlib>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

using namespace tq;

namespace {

// Whether a loop visits each of its iterations once.
bool covers(ThreadPool& pool) {
    std::vector<int> visits(1000, 0);
    for (int loop = 0; loop < 3; loop++)
        pool.each(uint32_t(visits.size()), 1, [&](uint32_t begin, uint32_t end) {
            for (uint32_t i = begin; i < end; i++) visits[i]++;
        });
    return std::accumulate(visits.begin(), visits.end(), 0) == 3000 && *std::min_element(visits.begin(), visits.end()) == 3;
}

} // namespace

TEST_CASE("every iteration is visited once, by as many threads as were asked for") {
    for (const uint32_t threads : {1u, 2u, 5u}) {
        ThreadPool pool(threads);
        CHECK(pool.threads() == threads);
        CHECK(covers(pool));
    }
}

// The pauses are about as long as threads wait awake, so that every loop finds them at another step of falling asleep.
TEST_CASE("no thread sleeps through the beginning or the end of a loop") {
    const auto pause = [](uint64_t seed) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(splitmix64(seed) % 120'000);
        while (std::chrono::steady_clock::now() < end) {
        }
    };
    for (const uint32_t threads : {2u, 3u, 8u}) {
        ThreadPool pool(threads);
        std::atomic<uint32_t> visits = 0;
        for (uint64_t loop = 0; loop < 1000; loop++) {
            pool.each(2 * threads, 1, [&](uint32_t begin, uint32_t end) {
                visits += end - begin;
                pause(loop * 16 + begin);
            });
            pause(~loop);
        }
        CHECK(visits == 1000 * 2 * threads);
    }
}

#ifndef _WIN32
namespace {

// In a process of another user that may have `limit` threads in all: 0 if a pool of 8 works with fewer; 2 if there were
// enough after all; 77 if the limit cannot be set.
int pool_with_few_threads(rlim_t limit) {
    ::alarm(60); // a signal ends a deadlock
    const rlimit max{limit, limit};
    if (::setgid(65534) != 0 || ::setuid(65534) != 0 || ::setrlimit(RLIMIT_NPROC, &max) != 0) return 77;
    ThreadPool pool(8);
    if (pool.threads() == 8) return 2;
    return covers(pool) ? 0 : 1;
}

} // namespace

TEST_CASE("where the system starts fewer threads, a pool works with those") {
    if (::getuid() != 0) {
        test::skip("only root can become a user who has no other threads");
        return;
    }
    for (const rlim_t limit : {1, 2, 4}) { // none, one and three beside the caller's
        CAPTURE(limit);
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) ::_exit(pool_with_few_threads(limit));
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        REQUIRE(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77) {
            test::skip("the limit of threads cannot be set here");
            return;
        }
        CHECK(WEXITSTATUS(status) == 0);
    }
}
#endif
