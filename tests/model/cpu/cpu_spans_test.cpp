// Several sequences on the CPU path, each with the logits, bit for bit, that it has alone.
#include "base/system_memory.h"
#include "model/cpu/fixed_point.h"
#include "model/cpu/forward.h"
#include "model/cpu/kernels.h"
#include "model/cpu/stage.h"
#include "model/reference/forward.h"
#include "model/stages/split_forward.h"
#include "tests/support/golden.h"
#include "tests/support/hybrids.h"
#include "tests/support/skip.h"
#include "tests/support/spans.h"
#include <algorithm>

using namespace tq;

namespace {

std::unique_ptr<Forward> make(const ForwardOptions& options) {
    static const SmallModel model;
    return make_cpu_forward(model.config, model.weights, options);
}

// A model whose rows are long enough for integer products.
struct WideModel {
    test::TemporaryFile path;
    Config config = test::small_config();
    std::unique_ptr<ModelFile> file;
    Weights weights;

    explicit WideModel(GgmlType type) {
        config.hidden_size = 256;
        config.intermediate_size = 512;
        config.num_attention_heads = 8;
        config.num_key_value_heads = 4;
        test::write_random_model(path.path(), {config, type, true, 3, {}});
        file = std::make_unique<ModelFile>(read_gguf(path.path()));
        weights = read_weights(*file, config);
    }
};

std::unique_ptr<Forward> make_wide(const ForwardOptions& options) {
    static const WideModel model(GgmlType::Q4_K);
    auto forward = make_cpu_forward(model.config, model.weights, options);
    CHECK(forward->max_separate_rows() == (cpu::has_fixed_point(GgmlType::Q4_K, 256) ? 16 : 8));
    return forward;
}

MakeForward maker(const SmallModel& model) {
    return [&](const ForwardOptions& options) { return make_cpu_forward(model.config, model.weights, options); };
}

// Half of the layers on each of two stages; the head is with the first.
template <class Model> std::unique_ptr<Forward> on_two_stages(const Model& model, const ForwardOptions& options) {
    const auto make_stage = [&](const Cache& cache, const ForwardOptions& part) {
        return make_cpu_stage(model.config, model.weights, cache, part);
    };
    const std::array<MakeStage, 2> stages{make_stage, make_stage};
    std::vector<uint32_t> device_of(2 * model.config.num_hidden_layers + 1);
    std::fill_n(device_of.begin() + model.config.num_hidden_layers, model.config.num_hidden_layers, 1);
    return make_split_forward(model.config, model.weights, options, Split(device_of, 2), stages);
}

} // namespace

TEST_CASE("hybrids: in company as alone, however the ids are divided, and restored into another slot") {
    for (const char* type : test::hybrid_types) {
        CAPTURE(type);
        const SmallModel model(test::small_config(*find_model_type(type)));
        check_company(maker(model), {all_types()[0], all_types()[3]});
        check_deterministic(maker(model), {all_types()[0], all_types()[3]});
        check_hidden(maker(model), 4);
        check_restored(maker(model));
    }
}

TEST_CASE("in company as alone: the logits of each sequence, with pages in any order") {
    check_company(make, all_types());
    check_company(make_wide, {all_types()[0], all_types()[3]});
}

TEST_CASE("in company as alone: 1 to 17 sequences, with weights of every format") {
    constexpr uint32_t max = 17;
    for (const GgmlType type : weight_formats) {
        CAPTURE(type_name(type));
        const WideModel model(type);
        const ForwardOptions options = options_of({KvType::tq4, KvType::tq4}, max);
        const auto together = make_cpu_forward(model.config, model.weights, options),
                   alone = make_cpu_forward(model.config, model.weights, options);
        std::mt19937 random(9);
        std::vector<Ids> ids;
        for (uint32_t slot = 0; slot < max; slot++) ids.push_back(random_ids(random, 1 + slot * 7 % 30));
        for (uint32_t n = 1; n <= max; n++) {
            std::vector<Span> spans;
            for (uint32_t slot = 0; slot < n; slot++) spans.push_back({slot, ids[slot]});
            for (const auto& [at, logits] : run(*together, spans))
                REQUIRE(logits == run_one(*alone, uint32_t(at.first), ids[at.first]));
            for (Ids& of_slot : ids) of_slot = random_ids(random, 1);
        }
    }
}

TEST_CASE("the logits are the reference's, at and across the ends of pages") {
    const SmallModel model;
    std::vector<KvOptions> types = all_types();
    types.push_back({KvType::f32, KvType::f32});
    for (const KvOptions& kv : types) {
        CAPTURE(describe(kv));
        const double limit = kv.k == KvType::f32 ? 1e-4 : 8e-3; // a code may differ by one level
        std::mt19937 random(2);
        const auto forward = make_cpu_forward(model.config, model.weights, options_of(kv, 3));
        const auto reference = make_reference_forward(model.config, model.weights, options_of(kv, 2));
        mix_pages(forward->cache(), random);
        run_one(*forward, 0, random_ids(random, 300)); // so that its pages are not the first
        for (const uint32_t length : {255u, 256u, 257u}) {
            const auto serial = make_cpu_forward(model.config, model.weights, options_of(kv, 1));
            forward->cache().truncate(2, 0);
            reference->cache().truncate(1, 0);
            for (const uint32_t count : {length, 1u, 1u, 2u, 20u}) {
                const Ids ids = random_ids(random, count);
                const auto logits = run_one(*forward, 2, ids);
                CHECK(logits == run_one(*serial, 0, ids));
                CHECK(relative_error(logits, run_one(*reference, 1, ids)) < limit);
            }
        }
    }
}

TEST_CASE("a fork, cut anywhere, goes on as a serial run") { check_fork(make, all_types()); }

TEST_CASE("deterministic: however the ids are divided among runs") {
    check_deterministic(make, all_types());
    check_deterministic(make_wide, {all_types()[0], all_types()[3]});
}

TEST_CASE("a model on two stages has the bits of one, however its prompts are divided") {
    const SmallModel small;
    const WideModel wide(GgmlType::Q4_K);
    for (const uint32_t batch : {2u, 7u, 8u, 12u, 13u, 24u, 64u})
        for (const uint32_t count : {1u, 8u, 9u, 12u, 13u, 16u, 17u, 33u, 100u}) {
            CAPTURE(batch);
            CAPTURE(count);
            std::mt19937 random(count);
            ForwardOptions options = options_of({KvType::tq4, KvType::tq4}, 1);
            options.batch_size = batch;
            const Ids ids = random_ids(random, count);
            CHECK(run_one(*on_two_stages(small, options), 0, ids) == run_one(*maker(small)(options), 0, ids));
            const auto whole = make_cpu_forward(wide.config, wide.weights, options);
            CHECK(run_one(*on_two_stages(wide, options), 0, ids) == run_one(*whole, 0, ids));
        }
}

TEST_CASE("with integer products a row has the bits in a block that it has alone") {
    if (!cpu::has_fixed_point_blocks(GgmlType::Q4_K, 256)) return test::skip("this processor has no such products for blocks");
    for (const std::string type : {"qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_moe", "qwen3_next"}) {
        CAPTURE(type);
        Config config = test::small_config(*find_model_type(type));
        config.hidden_size = type == "qwen3" ? 448 : 256; // also rows that end in a part of a group
        config.intermediate_size = 512;
        if (config.num_experts != 0) config.moe_intermediate_size = 256;
        if (config.shared_expert_intermediate_size != 0) config.shared_expert_intermediate_size = 256;
        const test::Hybrid model(config, type == "qwen3" ? GgmlType::Q8_0 : GgmlType::Q4_K, {}, false);
        const MakeForward make_blocks = [&](ForwardOptions options) {
            options.deterministic = false;
            auto forward = make_cpu_forward(model.config, model.weights, options);
            CHECK(forward->block_kernels().block == options.batch_size);
            CHECK(forward->block_kernels().many == 1);
            return forward;
        };
        check_deterministic(make_blocks, type == "qwen3" ? all_types() : std::vector{all_types()[0], all_types()[3]});
        const MakeForward make_divided = [&](const ForwardOptions& options) { return on_two_stages(model, options); };
        check_deterministic(make_divided, {all_types()[3]});
    }
}

TEST_CASE("the ids of short spans give what each gives alone, and blocks the same however long they are") {
    const SmallModel model;
    for (const KvOptions& kv : all_types()) {
        CAPTURE(describe(kv));
        std::mt19937 random(5);
        ForwardOptions options = options_of(kv, 2);
        options.batch_size = 300;
        const auto forward = make_cpu_forward(model.config, model.weights, options);
        Cache& cache = forward->cache();
        const Ids ids = random_ids(random, 290);
        for (uint32_t i = 0; i < 40; i++) run_one(*forward, 0, {ids[i]});
        const uint32_t max = forward->block_kernels().many - 1;                                   // separate rows
        for (uint32_t done = 0, count = 1; done < 40; done += count, count = 2 * count % max + 1) // 1, 3, 7, 15
            run_one(*forward, 1, Ids(&ids[done], &ids[std::min(done + count, 40u)])), count = std::min(count, 40 - done);
        CHECK(same_stored(cache, 0, cache, 1));
        for (const uint32_t slot : {0u, 1u}) cache.truncate(slot, 0);
        run_one(*forward, 0, ids);
        for (uint32_t done = 0; done < 290;) {
            uint32_t count = max + 1 + uint32_t(random() % 40);
            if (290 - done < count + max + 1) count = 290 - done;
            run_one(*forward, 1, Ids(ids.begin() + done, ids.begin() + done + count));
            done += count;
        }
        CHECK(same_stored(cache, 0, cache, 1));
    }
}

TEST_CASE("tokens that are taken back leave no trace") {
    const SmallModel model;
    check_cuts(storage_types_and_window(),
               [&](const ForwardOptions& options) { return make_cpu_forward(model.config, model.weights, options); });
}

TEST_CASE("a state is what the logits are computed from, alone and in company") {
    check_hidden(make, 1);
    check_hidden(make, 4);
    check_hidden(make, 12);
}

TEST_CASE("what is stored is restored into another slot, and repeated") {
    check_restored(make);
    check_repeat(make);
}

TEST_CASE("too few pages are noticed before anything is run, and progress stops between passes") { check_pages(make); }

TEST_CASE("a value that is not finite is found in its slot, and all slots are where the run began") { check_nonfinite(make); }

TEST_CASE("a cache that exceeds the machine has the pages that fit") {
    Config config = test::small_config(); // 2 MiB of cache per token
    config.num_hidden_layers = 16;
    config.num_attention_heads = config.num_key_value_heads = 64;
    config.head_dim = 256;
    const test::TemporaryFile path;
    test::write_random_model(path.path(), {config, GgmlType::Q8_0, true, 3, {}});
    const ModelFile file = read_gguf(path.path());
    const Weights weights = read_weights(file, config);
    const KvOptions kv{KvType::f32, KvType::f32};
    const uint64_t too_many = physical_memory_bytes() / kv_bytes_per_token(config, kv) + 1;
    if (too_many > 1u << 20 || physical_memory_bytes() < uint64_t(4) << 30) {
        test::skip("this machine has too much memory to be filled, or too little to begin");
        return;
    }
    const ForwardOptions options{.kv = kv, .context_size = uint32_t(too_many) + 8};
    const auto forward = make_cpu_forward(config, weights, options),
               other = make_cpu_forward(config, weights, {.kv = kv, .context_size = 32});
    CHECK(forward->cache().shape().pages < options.pages());
    CHECK(forward->cache().shape().pages >= 4);
    std::mt19937 random(1);
    check_same(*forward, *other, random_ids(random, 5));
    CHECK_THROWS_AS(forward->run(std::vector<uint32_t>(too_many, 1)), OutOfMemory);
    CHECK(forward->position() == 5);
    check_same(*forward, *other, random_ids(random, 3));
}
