// The placement of a model's halves on devices: what users wish, what fits, and what is predicted of it.
#include "model/stages/placement.h"
#include "model/weights/synthetic/synthetic.h"
#include <doctest/doctest.h>

using namespace tq;

namespace {

constexpr uint32_t layers = 8;

// A device on which a layer's attention takes 1, its feed-forward network 3 and the head 2.
Candidate device_of(uint64_t bytes, double share = 0) {
    return {bytes,
            [](const HeldHalves& held) {
                uint64_t sum = held.head() ? 2 : 0;
                for (uint32_t i = 0; i < layers; i++) sum += (held.attention(i) ? 1 : 0) + (held.feed_forward(i) ? 3 : 0);
                return sum;
            },
            share};
}

std::string text(const PlacementWishes& wishes, const std::vector<Candidate>& candidates) {
    const Split split = place(layers, wishes, candidates);
    std::string out;
    for (uint32_t device = 0; device < split.devices(); device++)
        out += (device == 0 ? "" : " | ") + describe_part(split, device);
    return out;
}

} // namespace

TEST_CASE("a device that is large enough has everything") {
    CHECK(text({}, {device_of(34)}) == "layers 0-7; head | nothing");
    CHECK(place(layers, {}, std::vector{device_of(34)}).is_whole_on(0));
}

TEST_CASE("memory is filled in the order attention, head, feed-forward networks of the last layers") {
    CHECK(text({}, {device_of(33)}) == "attention of layers 0-7; feed-forward of layers 1-7; head | feed-forward of layers 0");
    CHECK(text({}, {device_of(16)}) == "attention of layers 0-7; feed-forward of layers 6-7; head | feed-forward of layers 0-5");
    CHECK(text({}, {device_of(9)}) == "attention of layers 0-7 | feed-forward of layers 0-7; head");
    CHECK(text({}, {device_of(3)}) == "attention of layers 5-7 | attention of layers 0-4; feed-forward of layers 0-7; head");
    CHECK(text({}, {device_of(0)}) == "nothing | layers 0-7; head");
    CHECK(text({}, {}) == "layers 0-7; head");
}

TEST_CASE("-ngl gives devices the last layers, and the head with one more; --n-cpu-moe keeps the first networks on the CPU") {
    CHECK(text({.gpu_layers = 3}, {device_of(99)}) == "layers 5-7 | layers 0-4; head");
    CHECK(text({.gpu_layers = 8}, {device_of(99)}) == "layers 0-7 | head");
    CHECK(text({.gpu_layers = 9}, {device_of(99)}) == "layers 0-7; head | nothing");
    CHECK(text({.gpu_layers = 0}, {device_of(99)}) == "nothing | layers 0-7; head");
    CHECK(text({.cpu_feed_forwards = 2}, {device_of(99)}) ==
          "attention of layers 0-7; feed-forward of layers 2-7; head | feed-forward of layers 0-1");
    CHECK(text({.cpu_feed_forwards = UINT32_MAX}, {device_of(99)}) ==
          "attention of layers 0-7; head | feed-forward of layers 0-7");
    CHECK(text({.gpu_layers = 3, .fit = false}, {device_of(1)}) == "layers 5-7 | layers 0-4; head");
}

TEST_CASE("several devices share the layers by their memory, or as -ts says") {
    CHECK(text({}, {device_of(60), device_of(20)}) == "layers 0-5 | layers 6-7; head | nothing");
    CHECK(text({}, {device_of(60, 1), device_of(60, 3)}) == "layers 0-1 | layers 2-7; head | nothing");
    CHECK(text({}, {device_of(60, 1), device_of(60, 0)}) == "layers 0-7; head | nothing | nothing");
    CHECK(text({}, {device_of(8), device_of(8)}) ==
          "attention of layers 0-3; feed-forward of layers 3 | attention of layers 4-7; head | feed-forward of layers 0-2, 4-7");
}

TEST_CASE("layers that do not fit a device go to those beside it that have room for them, and only then to the CPU") {
    CHECK(text({}, {device_of(8, 1), device_of(60, 1)}) == "layers 0-1 | layers 2-7; head | nothing");
    CHECK(text({}, {device_of(60, 1), device_of(9, 1)}) == "layers 0-6 | layers 7; head | nothing");
    CHECK(text({}, {device_of(8, 1), device_of(11, 1), device_of(60, 1)}) ==
          "layers 0-1 | layers 2-3 | layers 4-7; head | nothing");
    CHECK(text({}, {device_of(60, 1), device_of(9, 1), device_of(6, 1)}) == "layers 0-4 | layers 5-6 | layers 7; head | nothing");
    CHECK(text({}, {device_of(60, 1), device_of(0, 1)}) == "layers 0-7; head | nothing | nothing");
    CHECK(text({}, {device_of(8, 1), device_of(22, 1)}) == // which has room for one more
          "attention of layers 0-2; feed-forward of layers 2 | layers 3-7; head | feed-forward of layers 0-1");
    CHECK(text({.cpu_feed_forwards = 2}, {device_of(4, 1), device_of(60, 1)}) ==
          "attention of layers 0-1 | layers 2-7; head | feed-forward of layers 0-1");
    CHECK(text({.fit = false}, {device_of(8, 1), device_of(60, 1)}) == "layers 0-3 | layers 4-7; head | nothing");
}

TEST_CASE("a share of the CPU is of the first layers") {
    CHECK(text({.cpu_share = 0.25}, {device_of(99)}) == "layers 2-7; head | layers 0-1");
    CHECK(text({.cpu_share = 0.5}, {device_of(60, 1), device_of(60, 3)}) == "layers 4 | layers 5-7; head | layers 0-3");
    CHECK(text({.cpu_share = 1}, {device_of(99, 0)}) == "head | layers 0-7");
    CHECK(text({.gpu_layers = 3, .cpu_share = 0.25}, {device_of(99)}) == "layers 5-7 | layers 0-4; head");
}

TEST_CASE("a prediction counts what each device reads, and the parts") {
    const Model model = make_synthetic(parse_synthetic("qwen3-0.6b:q8_0", 2));
    const KvOptions kv{KvType::f16, KvType::f16};
    const std::vector<AssumedSpeed> speeds{{100, 1, 10, 0, 0}, {10, 0.5, 0, 0, 0}};
    const auto seconds = [&](const std::vector<uint32_t>& device_of, uint32_t depth) {
        return predict_token_seconds(model.config, model.weights, kv, depth, Split(device_of, 2), speeds);
    };
    const double bytes = double(read_by_token(model.weights, model.config).bytes());
    CHECK(seconds({0, 0, 0, 0, 0}, 0) == doctest::Approx(1 + 2 * 7 * 10 + bytes / 100e9).epsilon(1e-3));
    CHECK(seconds({1, 1, 1, 1, 1}, 0) == doctest::Approx(0.5 + bytes / 10e9).epsilon(1e-3));
    const double cache = 2.0 * 2 * 1024 * 8 * 128 * 2; // of two layers, keys and values, 1024 tokens, 8 heads of 128 halves
    CHECK(seconds({0, 0, 0, 0, 0}, 1024) - seconds({0, 0, 0, 0, 0}, 0) == doctest::Approx(cache / 100e9).epsilon(1e-2));
    CHECK(seconds({0, 1, 0, 1, 0}, 0) == doctest::Approx(3 + 2 * 4 * 10).epsilon(1e-2)); // four parts, two attentions
}

TEST_CASE("parts of long blocks end with a network whose weights come") {
    const auto text = [](const std::vector<Part>& parts) {
        std::string out;
        for (const Part& part : parts) out += std::to_string(part.device) + ":" + std::to_string(part.halves.end) + " ";
        return out;
    };
    const Split split({0, 2, 0, 0, 0, 2, 1, 2, 2, 2, 0}, 3, 32);
    CHECK(text(split.parts()) == "0:1 2:2 0:5 2:6 1:7 2:10 ");
    CHECK(text(split.streamed_parts()) == "0:2 0:6 1:8 2:10 ");
    CHECK(split.streamed(0) == std::vector<uint32_t>{0, 2});
    CHECK(split.streamed(1) == std::vector<uint32_t>{3});
    CHECK(split.streamed(2).empty());
    CHECK(split.with_stream_rows(0).streamed(0).empty());
    CHECK(text(split.with_stream_rows(0).streamed_parts()) == text(split.parts()));
}

TEST_CASE("weights are streamed from as many rows on as they take less time than the CPU") {
    const Model model = make_synthetic(parse_synthetic("qwen3-30b-a3b:q8_0", 2));
    const auto rows = [&](double device_gflops, double upload_gb_per_s,
                          const std::vector<uint32_t>& device_of = {0, 1, 0, 1, 0}) {
        const std::vector<AssumedSpeed> speeds{{1, 0, 0, device_gflops, upload_gb_per_s}, {1, 0, 0, 100, 0}};
        return predict_stream_rows(model.config, model.weights, Split(device_of, 2), speeds);
    };
    // A layer has 128 experts of 3 x 768 x 2048 weights of 8.5 bits; 8 experts take 75.5 MFLOP.
    const double gb = 128 * 3 * 768 * 2048 * 8.5 / 8 / 1e9, gflop = 8 * 3 * 768 * 2048 * 2 / 1e9;
    CHECK(rows(400, 10) == doctest::Approx(gb / 10 / (gflop / 100 - gflop / 400)).epsilon(0.01));
    CHECK(rows(400, 10, {0, 0, 0, 1, 0}) == rows(400, 10)); // each layer by itself
    CHECK(rows(400, 1e6) == min_stream_rows);
    CHECK(rows(100, 10) == 0);
    CHECK(rows(400, 10, {0, 0, 0, 0, 0}) == 0);
    CHECK(rows(400, 10, {1, 1, 1, 1, 1}) == 0);
}
