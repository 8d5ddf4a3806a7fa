// Which tokens of a cache may be reused: checked against the kernels that every token of a run gets.
#include "model/prefix/cold.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <vector>

using namespace tq;

namespace {

// Returns the kernel of each token of a run of `total` from `begin` on: equal numbers mean equal bits. Slices of `many` tokens
// and more have one kernel; a shorter slice has one for each length and place.
std::vector<uint64_t> kernels_of(const BlockKernels& kernels, uint32_t begin, uint32_t total) {
    std::vector<uint64_t> all;
    for (uint32_t at = begin; at < total;) {
        if (kernels.block == 0) {
            all.push_back(1);
            at++;
            continue;
        }
        const uint32_t slice = kernels.slice(total - at);
        const uint64_t kernel = slice >= kernels.many ? 2 : 3 + uint64_t(slice) * 100'000 + at;
        all.insert(all.end(), slice, kernel);
        at += slice;
    }
    return all;
}

// Whether tokens that are cold, then a run of the rest, have the kernels of a cold run.
bool is_as_cold(const BlockKernels& kernels, const std::vector<uint64_t>& cached, uint32_t n, uint32_t total) {
    const auto cold = kernels_of(kernels, 0, total), rest = kernels_of(kernels, n, total);
    return std::equal(cached.begin(), cached.begin() + n, cold.begin()) && std::equal(rest.begin(), rest.end(), cold.begin() + n);
}

constexpr BlockKernels kinds[]{{0, UINT32_MAX}, {8, 3},          {8, 4},          {16, 5}, {8, 5},
                               {8, 8},          {8, UINT32_MAX}, {1, UINT32_MAX}, {5, 13}};

} // namespace

TEST_CASE("what is reused, and the rest that is run, have the kernels of a cold run, and it is all that has") {
    for (const BlockKernels& kernels : kinds)
        for (uint32_t first = 1; first < 40; first++) { // a run that left its tokens in the cache
            const uint32_t cold = cold_tokens(kernels, 0, first);
            const auto cached = kernels_of(kernels, 0, first);
            for (uint32_t total = 1; total < 60; total++) {
                CAPTURE(kernels.block);
                CAPTURE(first);
                CAPTURE(total);
                const uint32_t n = reusable_tokens(kernels, cold, total);
                REQUIRE(n <= cold);
                REQUIRE(n < total);
                REQUIRE(is_as_cold(kernels, cached, n, total));
                for (uint32_t more = n + 1; more <= std::min(cold, total - 1); more++)
                    REQUIRE_FALSE(is_as_cold(kernels, cached, more, total));
            }
        }
}

TEST_CASE("tokens stay cold over several runs that begin where the tokens before are") {
    for (const BlockKernels& kernels : kinds)
        for (uint32_t first = 1; first < 30; first++)
            for (uint32_t total = first + 1; total < 60; total++) {
                const uint32_t begin = reusable_tokens(kernels, cold_tokens(kernels, 0, first), total),
                               cold = cold_tokens(kernels, begin, total);
                auto cached = kernels_of(kernels, 0, begin == 0 ? total : first);
                cached.resize(begin);
                const auto rest = kernels_of(kernels, begin, total);
                cached.insert(cached.end(), rest.begin(), rest.end());
                CAPTURE(kernels.block);
                CAPTURE(first);
                CAPTURE(total);
                REQUIRE(cold <= total);
                for (uint32_t longer = total + 1; longer < 70; longer++)
                    REQUIRE(is_as_cold(kernels, cached, reusable_tokens(kernels, cold, longer), longer));
            }
}

TEST_CASE("single tokens that are run after a prompt are not cold, unless every row is separate") {
    CHECK(cold_tokens({8, 3}, 16, 17) == 16);
    CHECK(cold_tokens({8, 5}, 16, 17) == 16);
    CHECK(cold_tokens({8, UINT32_MAX}, 16, 17) == 16);
    CHECK(cold_tokens({}, 16, 17) == 17);
    CHECK(reusable_tokens({}, 17, 17) == 16); // logits need one
    CHECK(reusable_tokens({8, 3}, 0, 1) == 0);
}

TEST_CASE("where slices are evened, all but a few tokens of a known prompt are reused") {
    const BlockKernels kernels{64, 25};
    CHECK(cold_tokens(kernels, 0, 47) == 47);
    CHECK(reusable_tokens(kernels, 47, 139) == 47);
    CHECK(reusable_tokens(kernels, 202, 202) == 177);
    CHECK(reusable_tokens(kernels, 25, 26) == 1);
    CHECK(kernels.slice(65) == 40);
    CHECK(kernels.slice(88) == 63);
    CHECK(kernels.slice(89) == 64);
    CHECK(cold_tokens(kernels, 0, 24) == 0);
    CHECK(reusable_tokens(kernels, 24, 24) == 0);
}

TEST_CASE("a run that pauses for checkpoints has the kernels of one that does not") {
    for (const BlockKernels& kernels : {BlockKernels{0, UINT32_MAX}, BlockKernels{8, 3}, BlockKernels{16, 5}, BlockKernels{8, 5},
                                        BlockKernels{64, 25}, BlockKernels{10, 4}, BlockKernels{8, UINT32_MAX}})
        for (const uint32_t known : {0u, 7u, 256u, 300u, 2048u})
            for (const uint32_t total : {1u, 5u, 255u, 256u, 257u, 301u, 540u, 2309u, 5000u}) {
                if (known >= total) continue;
                const uint32_t begin = reusable_tokens(kernels, known, total);
                CAPTURE(kernels.block);
                CAPTURE(begin);
                CAPTURE(total);
                const std::vector<uint32_t> marks{3, begin, total / 2, total - std::min(total, 30u), total - 1};
                const std::vector<uint32_t> pauses = checkpoint_positions(kernels, begin, total, marks);
                std::vector<uint64_t> all;
                uint32_t done = begin;
                for (const uint32_t pause : pauses) {
                    REQUIRE(pause > done);
                    REQUIRE(pause < total);
                    const auto part = kernels_of(kernels, done, pause);
                    all.insert(all.end(), part.begin(), part.end());
                    done = pause;
                }
                const auto rest = kernels_of(kernels, done, total);
                all.insert(all.end(), rest.begin(), rest.end());
                // Slices of at least `many` are one kernel; if they are not evened, so that none is shorter.
                REQUIRE(all == kernels_of(kernels, begin, total));
            }
}

TEST_CASE("checkpoints are at the last end of a page, before marks and at them, and every 2048 tokens") {
    using Positions = std::vector<uint32_t>;
    const BlockKernels cpu{512, 25};
    CHECK(checkpoint_positions({}, 0, 700, {}) == Positions{512});
    CHECK(checkpoint_positions({}, 0, 512, {}) == Positions{256}); // a token must be left
    CHECK(checkpoint_positions({}, 256, 500, {}).empty());
    CHECK(checkpoint_positions(cpu, 0, 520, {}) == Positions{256}); // 8 tokens are too few
    CHECK(checkpoint_positions(cpu, 0, 537, {}) == Positions{512});
    CHECK(checkpoint_positions({}, 100, 9000, {}) == Positions{2048, 4096, 6144, 8192, 8448, 8960});
    const Positions marks{900, 4500};
    CHECK(checkpoint_positions({}, 0, 5000, marks) == Positions{768, 900, 2048, 4096, 4352, 4500, 4864});
    CHECK(checkpoint_positions(cpu, 0, 5000, marks) == Positions{768, 900, 2048, 4096, 4352, 4500, 4864});
    CHECK(checkpoint_positions({64, 100}, 0, 1000, Positions{500}) == Positions{256, 448, 768}); // whole blocks
    CHECK(checkpoint_positions(cpu, 0, 5000, Positions{10, 4870, 4999}) == Positions{2048, 4096, 4352, 4864, 4975});
    CHECK(checkpoint_positions(cpu, 0, 9000, Positions{4500}) == Positions{4352, 4500, 6144, 8192, 8448, 8960});
}
