// A model on several devices: on parts of the same device it has the bits of the unsplit one, and on different ones nearly its
// logits.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/files/formats/gguf.h"
#include "model/gpu/forward.h"
#include "tests/support/spans.h"
#include "tests/support/split_devices.h"
#include <algorithm>
#include <atomic>
#include <cmath>

using namespace tq;

namespace {

// Splits of a small model's two layers and the head.
const std::vector<std::vector<uint32_t>> splits_of_devices{{0, 0, 1, 1, 1}, {0, 1, 0, 1, 0}, {0, 0, 0, 1, 0}};
const std::vector<std::vector<uint32_t>> mixed_splits{{2, 2, 0, 0, 0}, {0, 2, 0, 2, 0}, {0, 1, 2, 0, 2}, {2, 2, 2, 2, 1}};

std::string text_of(const std::vector<uint32_t>& split) {
    std::string out;
    for (const uint32_t device : split) out += char('0' + device);
    return out;
}

double max_difference(std::span<const float> a, std::span<const float> b) {
    REQUIRE(a.size() == b.size());
    double out = 0;
    for (size_t i = 0; i < a.size(); i++) out = std::max(out, std::fabs(double(a[i]) - b[i]));
    return out;
}

struct RandomModel {
    test::TemporaryFile path;
    Config config;
    std::unique_ptr<ModelFile> file;
    Weights weights;

    RandomModel(const Architecture& architecture, GgmlType type, uint32_t layers = 2) : config(test::small_config(architecture)) {
        config.num_hidden_layers = layers;
        test::write_random_model(path.path(), {config, type, true, 3, {}});
        file = std::make_unique<ModelFile>(read_gguf(path.path()));
        weights = read_weights(*file, config);
    }
};

} // namespace

TEST_CASE("on two devices of one driver every token has the bits of one device, in blocks and one by one") {
    for (const char* type : {"qwen3", "qwen3_moe"})
        for (const bool deterministic : {false, true}) {
            CAPTURE(type);
            CAPTURE(deterministic);
            RandomModel model(*find_model_type(type), GgmlType::Q8_0);
            Devices devices{model.config, model.weights};
            ForwardOptions options = options_of({KvType::tq4, KvType::tq3}, 2); // two slots: no norm is folded in the whole model
            options.deterministic = deterministic;
            std::mt19937 random(11);
            const Ids prompt = random_ids(random, 500), more = random_ids(random, 20);
            const auto whole = devices.make_whole(options);
            const std::vector<float> wanted = run_one(*whole, 1, prompt);
            for (const auto& split : splits_of_devices) {
                const std::string where = text_of(split);
                CAPTURE(where);
                const auto parts = devices.make(split, options);
                CHECK(run_one(*parts, 1, prompt) == wanted);
                CHECK(same_stored(parts->cache(), 1, whole->cache(), 1));
                for (const uint32_t id : more) REQUIRE(run_one(*parts, 1, {id}) == run_one(*whole, 1, {id}));
                whole->cache().truncate(1, uint32_t(prompt.size()));
            }
        }
}

TEST_CASE("a hybrid's states are on the devices of their layers: the bits of one device") {
    const RandomModel model(*find_model_type("qwen3_5_moe"), GgmlType::Q8_0, 3);
    Devices devices{model.config, model.weights};
    ForwardOptions options = options_of({KvType::tq4, KvType::tq3}, 3);
    options.deterministic = true; // blocks are divided in another way if one device holds the model
    std::mt19937 random(19);
    const Ids prompt = random_ids(random, 300), more = random_ids(random, 6);
    const auto whole = devices.make_whole(options);
    const std::vector<float> wanted = run_one(*whole, 1, prompt);
    const SavedSlot saved = whole->cache().save_slot(1);
    std::vector<std::vector<float>> next;
    for (const uint32_t id : more) next.push_back(run_one(*whole, 1, {id}));
    for (const std::vector<uint32_t>& split : {std::vector<uint32_t>{0, 0, 1, 1, 1, 0, 0}, {0, 1, 0, 1, 0, 1, 1}}) {
        const std::string where = text_of(split);
        CAPTURE(where);
        const auto parts = devices.make(split, options);
        run_one(*parts, 1, more); // states of before
        parts->cache().truncate(1, 0);
        CHECK(run_one(*parts, 1, prompt) == wanted);
        CHECK(parts->cache().save_slot(1).state == saved.state);
        parts->cache().fork(1, 0, 300);
        for (size_t i = 0; i < more.size(); i++)
            for (const uint32_t slot : {0u, 1u}) REQUIRE(run_one(*parts, slot, {more[i]}) == next[i]);
        CHECK(same_stored(parts->cache(), 0, whole->cache(), 1));
        parts->cache().put_slot(1, saved);
        CHECK(run_one(*parts, 1, {more[0]}) == next[0]);
    }
}

TEST_CASE("devices and the CPU together compute nearly the logits of the CPU") {
    for (const char* type : {"qwen3", "qwen3_moe", "qwen3_next"}) { // of the hybrid a layer with a state, and one with attention
        CAPTURE(type);
        RandomModel model(*find_model_type(type), GgmlType::Q8_0);
        Devices devices{model.config, model.weights};
        const ForwardOptions options = options_of({KvType::f32, KvType::f32}, 1);
        std::mt19937 random(12);
        const Ids prompt = random_ids(random, 300);
        const auto cpu = make_cpu_forward(model.config, model.weights, options);
        const std::vector<float> wanted = run_one(*cpu, 0, prompt), next = run_one(*cpu, 0, {7});
        for (const auto& split : mixed_splits) {
            const std::string where = text_of(split);
            CAPTURE(where);
            const auto parts = devices.make(split, options);
            CHECK(max_difference(run_one(*parts, 0, prompt), wanted) < 2e-2); // the CPU's products are of int8
            CHECK(max_difference(run_one(*parts, 0, {7}), next) < 2e-2);
        }
    }
}

TEST_CASE("long blocks whose weights are streamed have the bits of a device that holds them, shorter ones those of the CPU") {
    constexpr uint32_t stream_rows = 70;
    for (const char* type : {"qwen3", "qwen3_moe"})
        for (const bool two : {false, true}) {
            CAPTURE(type);
            CAPTURE(two);
            RandomModel model(*find_model_type(type), GgmlType::Q8_0, 5); // more layers than have room
            const RandomModel other(*find_model_type(type), GgmlType::Q4_0, 5);
            model.weights.layers[1].ffn_down = other.weights.layers[1].ffn_down;
            model.weights.layers[3].ffn_up = other.weights.layers[3].ffn_up;
            model.weights.layers[4] = other.weights.layers[4];
            Devices devices{model.config, model.weights};
            const uint32_t b = two ? 1 : 0;
            const std::vector<uint32_t> held{0, 0, 0, 0, b, b, b, b, b, b, 0}, streamed{0, 2, 0, 2, b, b, b, 2, b, 2, 0};
            ForwardOptions options = options_of({KvType::tq4, KvType::tq3}, 2);
            // Blocks are long enough for evened slices. With a slice of short_block tokens, as a GPU has it, the rounding of
            // attention would depend on how a block is divided, and a single device divides it in another way. A block has
            // several slices.
            options.batch_size = std::max(64u, 2 * (gpu::tuning_for(devices.first.capabilities()).short_block + 8));
            std::mt19937 random(15);
            const Ids prompt = random_ids(random, 300), more = random_ids(random, stream_rows),
                      few = random_ids(random, stream_rows - 1);
            const auto with = devices.make(streamed, options, stream_rows), without = devices.make(streamed, options),
                       wanted = devices.make(held, options);
            CHECK(with->block_kernels().many >= stream_rows);
            REQUIRE(wanted->block_kernels().evens_slices());
            for (const auto& ids : {prompt, more}) {
                const size_t tokens = ids.size();
                CAPTURE(tokens);
                CHECK(run_one(*with, 1, ids) == run_one(*wanted, 1, ids));
                CHECK(same_stored(with->cache(), 1, wanted->cache(), 1));
                CHECK(run_one(*without, 1, ids) != run_one(*wanted, 0, ids));
            }
            CHECK(same_stored(with->cache(), 1, wanted->cache(), 1));
            for (const auto& forward : {with.get(), without.get()}) forward->cache().truncate(1, 0);
            CHECK(run_one(*with, 1, few) == run_one(*without, 1, few));
            CHECK(run_one(*with, 1, {7}) == run_one(*without, 1, {7}));
        }
}

TEST_CASE("sequences in company, forked, restored, repeated and embedded on several devices") {
    const SmallModel model;
    Devices devices{model.config, model.weights};
    for (const std::vector<uint32_t>& split : {std::vector<uint32_t>{0, 1, 0, 1, 0}, {0, 2, 1, 1, 2}}) {
        const std::string where = text_of(split);
        CAPTURE(where);
        const MakeForward make = [&](const ForwardOptions& options) { return devices.make(split, options); };
        if (split[1] == 1) check_company(make, {with_window(KvType::tq4, KvType::tq3t, 40)}); // takes the longest
        check_fork(make, {{KvType::tq4, KvType::tq4}});
        check_deterministic(make, {{KvType::tq4, KvType::tq4}});
        check_hidden(make, 3);
        check_restored(make);
        check_repeat(make);
    }
}

TEST_CASE("a page of several devices has the bytes of one device's") {
    const SmallModel model;
    Devices devices{model.config, model.weights};
    const ForwardOptions options = options_of({KvType::tq4, KvType::q8_0}, 2);
    std::mt19937 random(13);
    const Ids prompt = random_ids(random, 500); // whose last block is not short: of 400 that of the whole model alone would be
    const auto whole = devices.make_whole(options);
    run_one(*whole, 0, prompt);
    for (const auto& split : splits_of_devices) {
        const auto parts = devices.make(split, options);
        run_one(*parts, 0, prompt);
        const PageLayout layout = parts->cache().page_layout();
        std::vector<std::byte> a(layout.bytes(page_tokens)), b(a.size());
        parts->cache().read_page(parts->cache().table(0)[0], page_tokens, a);
        whole->cache().read_page(whole->cache().table(0)[0], page_tokens, b);
        CHECK(a == b);
        CHECK(same_stored(parts->cache(), 0, whole->cache(), 0));
    }
}

TEST_CASE("a run on several devices stops where it is told to, and goes on as if it had not") {
    const SmallModel model;
    Devices devices{model.config, model.weights};
    const ForwardOptions options = options_of({KvType::tq4, KvType::tq4}, 1);
    std::mt19937 random(14);
    const Ids prompt = random_ids(random, 600);
    const auto stopped = devices.make({0, 1, 0, 1, 2}, options), plain = devices.make({0, 1, 0, 1, 2}, options);
    const std::vector<float> wanted = run_one(*plain, 0, prompt);
    std::atomic<uint32_t> calls = 0;
    const Span span{0, prompt};
    const SpanLogits ignored = [](size_t, uint32_t, std::span<const float>) {};
    CHECK_FALSE(stopped->run({&span, 1}, ignored, [&](uint32_t, uint32_t) { return ++calls < 2; }));
    const uint32_t done = stopped->position();
    CHECK(done < prompt.size());
    CHECK(run_one(*stopped, 0, Ids(prompt.begin() + done, prompt.end())) == wanted);
}

TEST_CASE("a part that does not fit a device is refused before it is loaded") {
    const SmallModel model;
    Devices devices{model.config, model.weights};
    devices.second.memory_limit_bytes = 1 << 20;
    CHECK_THROWS_AS(devices.make({0, 0, 1, 1, 1}, options_of({KvType::tq4, KvType::tq4}, 1)), OutOfMemory);
}
