// Models that exceed the memory on the CPU path: weights of files are left there, weights that are made must fit.
#include "model/cpu/forward.h"
#include "model/files/formats/gguf.h"
#include "model/weights/stacked_rows.h"
#include "tests/support/small_model.h"
#include <algorithm>
#include <deque>
#include <doctest/doctest.h>

using namespace tq;

namespace {

const std::vector<uint32_t> ids{5, 9, 200, 17};

struct FileModel {
    test::TemporaryFile path;
    Config config;
    std::unique_ptr<ModelFile> file;
    Weights weights;

    explicit FileModel(const char* model_type = "qwen3") : config(test::small_config(*find_model_type(model_type))) {
        test::write_random_model(path.path(), {config, GgmlType::F16, true, 3, {}});
        file = std::make_unique<ModelFile>(read_gguf(path.path()));
        weights = read_weights(*file, config);
    }
    MemoryPlan plan(const ForwardOptions& options) const { return plan_cpu_memory(config, weights, options); }

    // `read`: how many bytes of weights were read, by the progress.
    std::unique_ptr<Forward> make(ForwardOptions options, uint64_t memory_bytes, uint64_t* read = nullptr) const {
        options.memory_bytes = memory_bytes;
        return make_cpu_forward(config, weights, options, [&](uint64_t done, uint64_t total) {
            CHECK(done <= total);
            if (read != nullptr) *read = total;
            return true;
        });
    }
};

ForwardOptions tq4_options() { return small_options({KvType::tq4, KvType::tq4}); }

uint64_t bytes_of_vectors(const Weights& weights) {
    uint64_t sum = 0;
    for_each_tensor(weights, [&](const Tensor& t) { sum += t.rows == 1 ? t.bytes() : 0; });
    return sum;
}

// Makes the first weight of row 7 a NaN, in `storage`.
void damage(Tensor& tensor, std::vector<std::byte>& storage) {
    storage.assign(tensor.data.begin(), tensor.data.end());
    const uint16_t nan = 0x7e00;
    std::memcpy(&storage[7 * tensor.row_bytes()], &nan, sizeof nan);
    tensor.data = storage;
}

} // namespace

TEST_CASE("a plan counts the weights of files, and knows which of them can stay there") {
    FileModel model;
    ForwardOptions options = tq4_options();
    CHECK(model.plan(options).available > uint64_t(1) << 28); // the machine's
    options.memory_bytes = 12345678;
    MemoryPlan plan = model.plan(options);
    CHECK(plan.available == 12345678);
    CHECK(plan.weights == model.weights.bytes());
    CHECK(plan.mapped == plan.weights);
    CHECK(plan.needed() == plan.kv_cache + plan.scratch);
    plan.available = plan.total();
    CHECK(plan.fits());
    plan.available--;
    CHECK_FALSE(plan.fits());
    CHECK(plan.runs());
    plan.available = plan.needed();
    CHECK(plan.runs());
    plan.available--;
    CHECK_FALSE(plan.runs());
    quantise(model.weights, GgmlType::Q8_0);
    plan = model.plan(options);
    CHECK(plan.weights > plan.mapped);
    CHECK(plan.mapped == bytes_of_vectors(model.weights));
}

TEST_CASE("the largest context keeps the weights in memory where it can") {
    const auto largest = [](uint64_t weights, uint64_t mapped) {
        return largest_context(50, [=](uint32_t tokens) {
            return MemoryPlan{.weights = weights, .kv_cache = 10 * tokens, .scratch = 0, .mapped = mapped, .available = 1000};
        });
    };
    CHECK(largest(900, 0) == 10);
    CHECK(largest(900, 900) == 10);
    CHECK(largest(991, 991) == 50);
    CHECK(largest(1800, 1000) == 20);
    CHECK(largest(1800, 0) == 0);
}

TEST_CASE("matrices that exceed the memory are not read before they are needed, and give the same logits") {
    for (const char* type : {"qwen3", "qwen3_moe"}) {
        CAPTURE(type);
        const FileModel model(type);
        const MemoryPlan plan = model.plan(tq4_options());
        uint64_t read_whole = 0, read_less = 0, read_least = 0;
        const auto whole = model.make(tq4_options(), plan.total(), &read_whole),
                   less = model.make(tq4_options(), plan.total() - 1, &read_less),
                   least = model.make(tq4_options(), plan.needed(), &read_least);
        CHECK(read_whole == model.weights.bytes());
        CHECK(read_less == bytes_of_vectors(model.weights));
        CHECK(read_least == read_less);
        CHECK_THROWS_WITH_AS(model.make(tq4_options(), plan.needed() - 1), doctest::Contains("this machine: it needs"), Error);
        const auto logits = whole->run(ids);
        for (Forward* each : {less.get(), least.get()}) CHECK(std::ranges::equal(each->run(ids), logits));
    }
}

TEST_CASE(
    "a damaged matrix is found at loading where the weights fit, else in the results; a damaged norm always is at loading") {
    FileModel model;
    const MemoryPlan plan = model.plan(tq4_options());
    std::vector<std::byte> storage;
    damage(model.weights.layers[1].ffn_down, storage);
    const std::string error = "'blk.1.ffn_down.weight' has a weight in row 7 that is NaN or infinite";
    CHECK_THROWS_WITH_AS(model.make(tq4_options(), plan.total()), doctest::Contains(error.c_str()), Error);
    const auto forward = model.make(tq4_options(), plan.total() - 1);
    CHECK_THROWS_AS(forward->run(ids), NonFinite);
    std::vector<std::byte> norm;
    Tensor& vector = model.weights.layers[0].ffn_norm;
    norm.assign(vector.data.size(), std::byte(0xff)); // NaN
    vector.data = norm;
    CHECK_THROWS_WITH_AS(model.make(tq4_options(), plan.total() - 1), doctest::Contains("'blk.0.ffn_norm.weight'"), Error);
}

TEST_CASE("weights that are made in memory must fit into it, loaded or not") {
    FileModel model;
    quantise(model.weights, GgmlType::Q8_0);
    ForwardOptions options = tq4_options();
    const MemoryPlan plan = model.plan(options);
    CHECK(model.make(options, plan.needed())->run(ids).size() == 320);
    CHECK_THROWS_WITH_AS(model.make(options, plan.needed() - 1), doctest::Contains("this machine: it needs"), Error);
    ThreadPool pool(1);
    const auto loaded = std::make_shared<const LoadedWeights>(load_weights(pool, model.weights, {}, MappedMatrices::leave));
    CHECK(loaded->made_bytes == plan.weights - plan.mapped);
    options.memory_bytes = plan.needed();
    CHECK(make_cpu_forward(model.config, loaded, options)->run(ids).size() == 320);
    options.memory_bytes--;
    CHECK_THROWS_WITH_AS(make_cpu_forward(model.config, loaded, options), doctest::Contains("this machine: it needs"), Error);
}

TEST_CASE("experts that files have one by one are used where they are") {
    FileModel model("qwen3_moe");
    const auto before = model.make(tq4_options(), UINT64_MAX);
    const auto expected = before->run(ids);
    std::deque<std::vector<std::byte>> places;
    for (LayerWeights& layer : model.weights.layers)
        for (Tensor* stack : {&layer.ffn_gate, &layer.ffn_up, &layer.ffn_down}) {
            std::vector<Tensor> experts;
            for (uint32_t i = 0, rows = stack->rows / model.config.num_experts; i < model.config.num_experts; i++) {
                experts.push_back(stack->slice(i * rows, rows));
                experts[i].data = places.emplace_back(experts[i].data.begin(), experts[i].data.end());
            }
            *stack = stacked(stack->name, experts);
            const uint32_t rows = experts[0].rows;
            std::vector<std::byte> across;
            CHECK(stack->slice(rows + 1, 2).data.data() == experts[1].row(1).data());
            CHECK(std::ranges::equal(stack->read(rows - 1, 2, across).last(stack->row_bytes()), experts[1].row(0)));
            CHECK(std::ranges::equal(std::span(across).first(stack->row_bytes()), experts[0].row(rows - 1)));
        }
    CHECK(model.weights.mapped_bytes() == model.weights.bytes());
    for (const uint64_t memory : {model.plan(tq4_options()).total(), model.plan(tq4_options()).needed()})
        CHECK(std::ranges::equal(model.make(tq4_options(), memory)->run(ids), expected));
    ThreadPool pool(1);
    CHECK(load_weights(pool, model.weights).made.empty());
    places[1][1] = std::byte(0x7e); // expert 1 of the first stack: NaN
    CHECK_THROWS_WITH_AS(load_weights(pool, model.weights), doctest::Contains("has a weight in row 32 that is NaN"), Error);
}

TEST_CASE("where the cache does not fit, it has the pages that leave room for the weights, if there are any") {
    const FileModel model;
    ForwardOptions options = small_options({KvType::f32, KvType::f32});
    options.context_size = 20 * page_tokens;
    const uint64_t page = kv_bytes_per_token(model.config, options.kv) * page_tokens, needed = model.plan(options).needed();
    REQUIRE(model.weights.bytes() < page);
    const auto pages = [&](uint64_t memory_bytes, uint64_t& read) {
        return model.make(options, memory_bytes, &read)->cache().shape().pages;
    };
    uint64_t read = 0;
    CHECK(pages(needed, read) == 20);
    CHECK(read == bytes_of_vectors(model.weights));
    CHECK(pages(needed - 10 * page, read) == 9); // of 10
    CHECK(read == model.weights.bytes());
    CHECK(pages(needed - 16 * page, read) == 4);
    CHECK(read == bytes_of_vectors(model.weights));
    CHECK_THROWS_AS(pages(needed - 16 * page - 1, read), Error);
}

TEST_CASE("progress stops a block between layers, and nothing of it counts") {
    const FileModel model;
    KvOptions kv{KvType::tq8, KvType::tq8};
    kv.window = 5;
    const auto stopped = model.make(small_options(kv), UINT64_MAX), other = model.make(small_options(kv), UINT64_MAX);
    check_same(*stopped, *other, std::vector<uint32_t>(12, 3));
    uint32_t calls = 0;
    const auto second_layer = [&](uint32_t done, uint32_t total) {
        CHECK(done == 0);
        CHECK(total == 4);
        return ++calls < 2;
    };
    CHECK(stopped->run(std::vector<uint32_t>{8, 7, 6, 5}, second_layer).empty());
    CHECK(calls == 2);
    CHECK(stopped->position() == 12);
    check_same(*stopped, *other, ids);
}
