// Blocks of a prompt get shorter and longer with the times of earlier ones. No time is measured: devices are simulated.
#include "model/gpu/block_pace.h"
#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <limits>
using namespace tq;

namespace {

// Qwen3-8B.
Config config() {
    Config c{};
    c.hidden_size = 4096;
    c.intermediate_size = 12288;
    c.num_hidden_layers = 36;
    c.num_attention_heads = 32;
    c.num_key_value_heads = 8;
    c.head_dim = 128;
    return c;
}

gpu::Tuning tuning() { return gpu::choose_tuning({.type = DeviceType::discrete, .shared_memory_bytes = 32768}); }

gpu::BlockPace pace_of(DeviceType type) { return {type, config(), tuning(), gpu::max_layer_seconds(type)}; }

// A device with a given number of operations per second; attention has its own rate.
struct Gpu {
    double products, attention;

    double attention_seconds(uint32_t position, uint32_t tokens) const { // one dispatch
        return 4.0 * 32 * 128 * tokens * (position + tokens / 2.0) / attention;
    }
    double layer_seconds(uint32_t position, uint32_t tokens) const {
        return 2.0 * 193e6 * std::max(tokens, 64u) / products + attention_seconds(position, tokens);
    }
};

constexpr Gpu uhd630{1.8e11, 4e10}, iris_xe{9e11, 2e11}, rx570{2.2e12, 5e11}, rtx4090{6e13, 4e13};

struct Run {
    uint32_t blocks = 0, min = ~0u;
    double longest_attention = 0, first_attention = 0; // seconds of a dispatch, after the first block and in it
};

Run prompt(gpu::BlockPace& pace, const Gpu& gpu, uint32_t from, uint32_t to) {
    Run out;
    for (uint32_t at = from; at < to; out.blocks++) {
        const uint32_t tokens = pace.next(at, std::min(512u, to - at));
        REQUIRE(tokens >= 1);
        const double seconds = gpu.attention_seconds(at, tokens);
        (out.blocks == 0 ? out.first_attention : out.longest_attention) =
            std::max(out.blocks == 0 ? 0 : out.longest_attention, seconds);
        pace.ran(at, tokens, 36 * gpu.layer_seconds(at, tokens));
        at += tokens;
        if (at < to) out.min = std::min(out.min, tokens);
    }
    return out;
}

} // namespace

TEST_CASE("no dispatch of attention outlives its limit, at any depth, on GPUs of very different speed") {
    for (const Gpu& gpu : {uhd630, iris_xe, rx570})
        for (const DeviceType type : {DeviceType::integrated, DeviceType::discrete}) {
            CAPTURE(gpu.products);
            const double limit = type == DeviceType::discrete ? 0.25 : 0.03;
            gpu::BlockPace pace = pace_of(type);
            const Run run = prompt(pace, gpu, 0, gpu.products < iris_xe.products ? 32768 : 131072); // or two tokens take longer
            CHECK(run.longest_attention <= limit);
            if (type == DeviceType::integrated || gpu.products >= rx570.products) CHECK(run.first_attention <= limit);
        }
    CHECK(uhd630.attention_seconds(32768, 512) > 6); // the time of a whole block there
}

TEST_CASE("a prompt that goes on at great depth begins with a block that a slow device can run") {
    gpu::BlockPace pace = pace_of(DeviceType::integrated);
    CHECK(uhd630.attention_seconds(32768, pace.next(32768, 512)) <= 0.03);
    CHECK(iris_xe.attention_seconds(131000, pace.next(131000, 512)) <= 0.03);
}

TEST_CASE("fast devices get whole blocks, the first included, and processors always do") {
    gpu::BlockPace pace = pace_of(DeviceType::discrete);
    const Run run = prompt(pace, rtx4090, 0, 32768);
    CHECK(run.blocks == 64);
    CHECK(run.min == 512);
    gpu::BlockPace processor = pace_of(DeviceType::cpu);
    for (const double seconds : {1e-9, 1e9, 3e7}) {
        processor.ran(0, 64, seconds);
        CHECK(processor.next(1 << 20, 64) == 64);
    }
}

TEST_CASE("blocks are no shorter than one tile's products, where attention is not what takes long") {
    gpu::BlockPace pace = pace_of(DeviceType::integrated);
    for (int i = 0; i < 20; i++) { // the layer takes longer than its limit with any number of tokens
        const uint32_t tokens = pace.next(0, 512);
        CHECK(tokens >= 32);
        CHECK(tokens <= 64);
        pace.ran(0, tokens, 36 * (2.0 * 193e6 * 64 / 1e11));
    }
}

TEST_CASE("whatever is measured, there is a next block of at least two tokens where so many are left") {
    constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    gpu::BlockPace pace = pace_of(DeviceType::integrated);
    for (const double seconds : {1e300, 0.0, -1.0, nan, infinity, 1e-300, 5.0, 1e300, 1e300, 1e-9})
        for (const uint32_t position : {0u, 1u, 1000000u, ~0u - 512}) {
            pace.ran(position, 512, seconds);
            for (const uint32_t left : {1u, 2u, 3u, 64u, 512u}) {
                CHECK(pace.next(position, left) <= left);
                CHECK(pace.next(position, left) >= std::min(left, 2u));
            }
        }
}

TEST_CASE("one stall is forgotten after some blocks, and one lucky time is not believed at once") {
    gpu::BlockPace pace = pace_of(DeviceType::integrated);
    prompt(pace, rtx4090, 0, 8192);
    const uint32_t usual = pace.next(8192, 512);
    CHECK(usual == 512);
    pace.ran(8192, usual, 60);
    CHECK(pace.next(8192, 512) < 64);
    CHECK(prompt(pace, rtx4090, 8192, 16384).blocks < 40);
    CHECK(pace.next(16384, 512) == 512);

    gpu::BlockPace slow = pace_of(DeviceType::integrated);
    prompt(slow, uhd630, 0, 16384);
    const uint32_t before = slow.next(16384, 512);
    slow.ran(16384, before, 0);
    CHECK(slow.next(16384, 512) < 4 * (before + 1));
}
