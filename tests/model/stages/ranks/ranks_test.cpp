// A model whose layers are on several ranks: the bits of one process, ranks that disagree, and ranks that end.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/cpu/stage.h"
#include "model/stages/ranks/rank_group.h"
#include "model/stages/ranks/stage_messages.h"
#include "model/stages/split_forward.h"
#include "tests/support/hybrids.h"
#include "tests/support/local_transport.h"
#include "tests/support/spans.h"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

using namespace tq;

namespace {

RankFacts facts_of(const std::string& device) {
    return {"here", device, uint64_t(1) << 30, 32, {{"model", "small"}, {"version", "1"}}};
}

constexpr uint32_t refused_context = 77;

// Ranks 1 and up as threads of this process, with the CPU each.
class Workers {
  public:
    Workers(LocalRanks& ranks, const Config& config, const Weights& weights, const std::vector<RankFacts>& facts) {
        for (uint32_t rank = 1; rank < ranks.size(); rank++)
            threads_.emplace_back([this, &ranks, &config, &weights, rank, own = facts.empty() ? facts_of("CPU") : facts[rank]] {
                const auto transport = ranks.transport(rank);
                join(*transport, own);
                const RankModel model{config,
                                      [&](const Cache& cache, const ForwardOptions& options) {
                                          if (options.context_size == refused_context) fail("no memory");
                                          ForwardOptions here = options;
                                          here.threads = 2; // they decide how attention is divided
                                          return make_cpu_stage(config, weights, cache, here);
                                      },
                                      [&](const ForwardOptions& options) {
                                          return plan_cpu_memory(config, held_weights(weights, options.held), options);
                                      },
                                      [this] { renewed++; }};
                try {
                    host_stages(*transport, model);
                } catch (const RankLost&) { // it was ended
                }
            });
    }
    ~Workers() {
        for (std::thread& thread : threads_) thread.join();
    }

    std::atomic<int> renewed = 0; // devices

  private:
    std::vector<std::thread> threads_;
};

// A job, whose rank 0 is this thread.
struct Job {
    const Config& config;
    const Weights& weights;
    LocalRanks ranks;
    Workers workers;
    const std::unique_ptr<Transport> transport;
    RankGroup group;

    Job(const Config& config, const Weights& weights, uint32_t size, const std::vector<RankFacts>& facts = {})
        : config(config), weights(weights), ranks(size), workers(ranks, config, weights, facts), transport(ranks.transport(0)),
          group(*transport, facts_of("CPU")) {}

    MakeStage own() const {
        return
            [this](const Cache& cache, const ForwardOptions& options) { return make_cpu_stage(config, weights, cache, options); };
    }
    std::unique_ptr<Forward> make(const Split& split, const ForwardOptions& options) {
        return group.make_forward(config, weights, options, split, own());
    }
};

// The same split in one process.
std::unique_ptr<Forward> make_here(const Config& config, const Weights& weights, const Split& split,
                                   const ForwardOptions& options) {
    const std::vector<MakeStage> make(split.devices(), [&](const Cache& cache, const ForwardOptions& part) {
        return make_cpu_stage(config, weights, cache, part);
    });
    return make_split_forward(config, weights, options, split, make);
}

const std::vector<std::vector<uint32_t>> divisions{{1, 1}, {0, 2}, {2, 0}, {1, 0, 1}, {0, 1, 1}};

std::string error_of(const std::function<void()>& f) {
    try {
        f();
    } catch (const std::exception& error) {
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("on several ranks every token has the bits of one process, in blocks and one by one") {
    const SmallModel model;
    for (const auto& layers : divisions)
        for (const bool deterministic : {false, true}) {
            CAPTURE(layers.size());
            CAPTURE(layers[0]);
            CAPTURE(deterministic);
            Job job(model.config, model.weights, uint32_t(layers.size()));
            ForwardOptions options = options_of({KvType::tq4, KvType::tq3}, 2);
            options.deterministic = deterministic;
            const Split split = split_of_ranks(layers);
            const auto remote = job.make(split, options), here = make_here(model.config, model.weights, split, options),
                       whole = make_cpu_forward(model.config, model.weights, options);
            std::mt19937 random(11);
            const Ids prompt = random_ids(random, 500), more = random_ids(random, 20);
            const std::vector<float> wanted = run_one(*whole, 1, prompt);
            CHECK(run_one(*here, 1, prompt) == wanted);
            CHECK(run_one(*remote, 1, prompt) == wanted);
            CHECK(same_stored(remote->cache(), 1, whole->cache(), 1));
            for (const uint32_t id : more) REQUIRE(run_one(*remote, 1, {id}) == run_one(*whole, 1, {id}));
            const Span all{0, prompt, Span::Logits::all};
            CHECK(run(*remote, {&all, 1}) == run(*whole, {&all, 1}));
        }
}

TEST_CASE("sequences in company, forked, restored, repeated and embedded on several ranks") {
    const SmallModel model;
    for (const auto& layers : {std::vector<uint32_t>{1, 1}, {0, 1, 1}}) {
        Job job(model.config, model.weights, uint32_t(layers.size()));
        const Split split = split_of_ranks(layers);
        const MakeForward make = [&](const ForwardOptions& options) { return job.make(split, options); };
        if (layers.size() == 2) check_company(make, {with_window(KvType::tq4, KvType::tq3t, 40)});
        check_fork(make, {{KvType::tq4, KvType::tq4}});
        check_deterministic(make, {{KvType::tq4, KvType::tq4}});
        check_hidden(make, 3);
        check_restored(make);
        check_repeat(make);
        check_nonfinite(make);
    }
}

TEST_CASE("a hybrid's states are on the ranks of their layers: the bits of one process in every division") {
    for (const char* type : test::hybrid_types) {
        CAPTURE(type);
        const SmallModel model(test::small_config(*find_model_type(type)));
        for (const auto& layers : {std::vector<uint32_t>{2, 1}, {0, 3}, {1, 1, 1}, {0, 2, 1}}) {
            CAPTURE(layers.size());
            CAPTURE(layers[0]);
            Job job(model.config, model.weights, uint32_t(layers.size()));
            const ForwardOptions options = options_of({KvType::tq4, KvType::tq3}, 4);
            const auto remote = job.make(split_of_ranks(layers), options),
                       whole = make_cpu_forward(model.config, model.weights, options);
            std::mt19937 random(31);
            const Ids prompt = random_ids(random, 300), more = random_ids(random, 7);
            for (Forward* f : {remote.get(), whole.get()}) run_one(*f, 1, random_ids(random, 7)); // states of before
            for (Forward* f : {remote.get(), whole.get()}) f->truncate(0);
            for (const uint32_t slot : {1u, 3u}) {
                for (Forward* f : {remote.get(), whole.get()}) f->cache().truncate(slot, 0);
                CHECK(run_one(*remote, slot, prompt) == run_one(*whole, slot, prompt));
                CHECK(same_stored(remote->cache(), slot, whole->cache(), slot));
            }
            for (Forward* f : {remote.get(), whole.get()}) f->cache().fork(1, 2, 300);
            const SavedSlot saved = remote->cache().save_slot(1);
            CHECK(saved.state == whole->cache().save_slot(1).state);
            for (const uint32_t id : more) REQUIRE(run_one(*remote, 1, {id}) == run_one(*whole, 1, {id}));
            CHECK(run_one(*remote, 2, more) == run_one(*whole, 2, more));
            for (Forward* f : {remote.get(), whole.get()}) f->cache().put_slot(1, saved);
            CHECK(run_one(*remote, 1, more) == run_one(*whole, 1, more));
        }
        Job job(model.config, model.weights, 2);
        const MakeForward make = [&](const ForwardOptions& options) {
            return job.make(split_of_ranks(std::vector<uint32_t>{1, 2}), options);
        };
        check_company(make, {with_window(KvType::tq4, KvType::tq3t, 40)});
        check_restored(make);
    }
}

TEST_CASE("a part of a hybrid's states that is too short or too long for a rank is refused") {
    const Config config = test::small_config(*find_model_type("qwen3_5"));
    const HeldHalves last({false, false, false, false, true, true, false});
    std::vector<std::byte> states(config.state_bytes(), std::byte(7)), zeros(config.state_bytes());
    const std::vector<std::byte> part = held_states(config, last, states);
    CHECK(part.size() == config.recurrent->state_bytes());
    put_held_states(config, last, zeros, part);
    CHECK(zeros.front() == std::byte(0));
    CHECK(zeros.back() == std::byte(7));
    for (const size_t wrong : {part.size() - 1, part.size() + 1})
        CHECK_THROWS_AS(put_held_states(config, last, zeros, std::vector<std::byte>(wrong)), Error);
    CHECK_THROWS_AS(held_states(config, last, part), Error);
}

TEST_CASE("ranks that disagree are named, with all that differs") {
    const SmallModel model;
    std::vector<RankFacts> facts(3, facts_of("CPU"));
    facts[1].device = "some GPU";
    facts[1].agreed["version"] = "2";
    facts[2].agreed["model"] = "another\nmodel";
    const std::string error = error_of([&] { Job(model.config, model.weights, 3, facts); });
    CAPTURE(error);
    CHECK(error.find("rank 1 (here: some GPU) has another version: 2, where rank 0 has 1") != error.npos);
    CHECK(error.find("rank 2 (here: CPU) has another model: another\\x0amodel, where rank 0 has small") != error.npos);
    CHECK(error.find('\n') == error.npos);
    facts = {3, facts_of("CPU")};
    facts[1].agreed.erase("model");
    CHECK(error_of([&] { Job(model.config, model.weights, 3, facts); }).find("has another model: none") != error.npos);
}

TEST_CASE("a rank that cannot take part says why, and ends with the job") {
    LocalRanks ranks(2);
    std::thread other([&] {
        const auto transport = ranks.transport(1);
        refuse_to_join(*transport, "there is no such file");
        MessageReader end(transport->receive(0));
        CHECK(end.get<RankRequest>() == RankRequest::end);
    });
    const auto transport = ranks.transport(0);
    CHECK(error_of([&] { RankGroup(*transport, facts_of("CPU")); }) ==
          "rank 1 (this process) cannot take part: there is no such file");
    other.join();
}

TEST_CASE("a rank that ends while it is waited for is an error, and the others end") {
    const SmallModel model;
    Job job(model.config, model.weights, 3);
    const auto forward = job.make(split_of_ranks(std::vector<uint32_t>{0, 1, 1}), options_of({KvType::tq4, KvType::tq4}, 1));
    std::mt19937 random(5);
    const Ids ids = random_ids(random, 40);
    run_one(*forward, 0, ids);
    job.ranks.end(2);
    CHECK_THROWS_AS(forward->run(ids), RankLost);
    CHECK_THROWS_AS(forward->run(std::span(ids).first(1)), RankLost);
}

TEST_CASE("an error of another rank has its name, and it goes on") {
    const SmallModel model;
    Job job(model.config, model.weights, 2);
    const Split split = split_of_ranks(std::vector<uint32_t>{1, 1});
    ForwardOptions options = options_of({KvType::tq4, KvType::tq4}, 1);
    options.context_size = refused_context;
    CHECK(error_of([&] { job.make(split, options); }) == "rank 1 (here: CPU): no memory");
    CHECK(job.workers.renewed == 0);
    const ForwardOptions fitting = options_of({KvType::tq4, KvType::tq4}, 1);
    auto forward = job.make(split, fitting);
    CHECK(job.workers.renewed == 1); // its device was opened anew
    CHECK(run_one(*forward, 0, {1, 2, 3}).size() == 320);
    CHECK(error_of([&] { job.make(split, options); }) == "rank 1 (here: CPU): no memory");
    const auto other = job.make(split, fitting);
    CHECK(job.workers.renewed == 1); // the first is still on it
    CHECK(run_one(*forward, 0, {4}) == (run_one(*other, 0, {1, 2, 3}), run_one(*other, 0, {4})));
}

TEST_CASE("what a stage of a rank does not have is refused before it is used, and the stage goes on") {
    const SmallModel model;
    Job job(model.config, model.weights, 2);
    RankLink link(*job.transport, 1, "rank 1");
    ForwardOptions options = options_of({KvType::tq4, KvType::tq4}, 2);
    options.held = split_of_ranks(std::vector<uint32_t>{1, 1}).held(1);
    Cache cache(cache_shape(options, model.config));
    StageOrder order(link, model.config, options);
    const auto stage = order.start(cache);
    CacheVectors& vectors = stage->vectors();
    std::vector<std::byte> page(vectors.page_layout().bytes(1));
    const uint32_t pages = cache.shape().pages;
    const auto refuses = [&](const std::string& why, const std::function<void()>& f) { CHECK(error_of(f) == "rank 1: " + why); };
    const std::string no_page = fmt::format("there are no 1 tokens in page {}", pages);
    refuses(no_page, [&] { vectors.read_page(pages, 1, page); });
    refuses(no_page, [&] { vectors.write_page(pages, 1, page); });
    refuses(no_page, [&] { vectors.copy_page(0, pages, 1); });
    refuses("there are no 257 tokens in page 0", [&] { vectors.copy_page(0, 1, page_tokens + 1); });
    refuses("there is no slot 2", [&] { vectors.copy_window(0, 2); });
    refuses("there is no slot 2", [&] { vectors.clear_state(2); });
    refuses("there is no slot 2", [&] { vectors.find_nonfinite(2); });
    refuses("slot 0 cannot repeat 2 tokens up to 4", [&] { vectors.repeat(0, 2, 4); });
    refuses("there is no side 0 of layer 0 here", [&] { vectors.stored(0, 0, KvSide::key); });
    const std::vector<uint32_t> ids{1, 2};
    std::vector<float> h(2 * model.config.hidden_size);
    const auto run = [&](uint32_t slot, uint32_t position) {
        PassRows rows;
        rows.add(slot, position, ids, 0, true);
        stage->run_separate({2, 4}, rows, h, nullptr, {});
    };
    refuses("there is no slot 2", [&] { run(2, 0); });
    refuses("there is no page for position 0 of slot 1", [&] { run(1, 0); });
    cache.reserve(1, 2);
    run(1, 0);
    refuses("there is no page for position 256 of slot 1", [&] { run(1, page_tokens); });
    PassRows rows;
    rows.add(1, 0, ids, 0, false);
    rows.spans[0].end = 3;
    refuses("rows 0 to 3 of 2", [&] { stage->run_block({2, 4}, rows, 2, h, {}); });
}

TEST_CASE("layers are divided by memory, with room for the head on rank 0, or as they are given") {
    const SmallModel model;
    const auto with = [](std::initializer_list<uint64_t> bytes) {
        std::vector<RankFacts> ranks;
        for (const uint64_t one : bytes) ranks.push_back({"h", "d", one, 32, {}});
        return ranks;
    };
    using Layers = std::vector<uint32_t>;
    Weights many = model.weights;
    many.layers.resize(20, many.layers[0]);
    double of_layer = 0;
    const auto add = [&](const Tensor& tensor) { of_layer += double(tensor.bytes()); };
    for_each_tensor_of_layer(many.layers[0], add);
    const double head = double(many.bytes()) / of_layer - 20; // as many layers
    REQUIRE(head > 0.05);
    for (const auto& memory : {std::vector<uint64_t>{100, 100, 100}, {0, 0, 0}, {1, 100, 100}, {300, 100, 200}}) {
        std::vector<RankFacts> ranks;
        for (const uint64_t bytes : memory) ranks.push_back({"h", "d", bytes, 32, {}});
        const Layers layers = divide_layers(many, {}, ranks);
        REQUIRE(layers.size() == 3);
        CHECK(layers[0] + layers[1] + layers[2] == 20);
        const double all = double(std::max<uint64_t>(3, memory[0] + memory[1] + memory[2]));
        for (uint32_t rank = 0; rank < 3; rank++) {
            const double share = double(std::max<uint64_t>(1, memory[rank])) / all * (20 + head);
            CHECK(std::abs(std::max(0.0, rank == 0 ? share - head : share) - layers[rank]) <= (memory[0] == 1 ? head : 1));
        }
    }
    CHECK(divide_layers(many, {}, with({5})) == Layers{20});
    CHECK(divide_layers(many, Layers{1, 0, 19}, with({1, 1, 1})) == Layers{1, 0, 19});
    for (const Layers& wrong : {Layers{10, 10}, {10, 10, 1}, {UINT32_MAX, 21, 0}})
        CHECK_THROWS_AS(divide_layers(many, wrong, with({1, 1, 1})), Error);
    const Split split = split_of_ranks(Layers{1, 0, 2});
    CHECK(split.parts() == std::vector<Part>{{{0, 2}, 0}, {{2, 6}, 2}});
    CHECK(split.device_of_head() == 0);
}

TEST_CASE("each rank plans its part") {
    const SmallModel model;
    Job job(model.config, model.weights, 3);
    const Split split = split_of_ranks(std::vector<uint32_t>{0, 1, 1});
    const ForwardOptions options = options_of({KvType::tq4, KvType::tq4}, 1);
    const RankModel own{model.config, {}, [&](const ForwardOptions& part) {
                            return plan_cpu_memory(model.config, held_weights(model.weights, part.held), part);
                        }};
    const std::vector<MemoryPlan> plans = job.group.plans(own, options, split);
    REQUIRE(plans.size() == 3);
    CHECK(plans[1].kv_cache > 0);
    CHECK(plans[1].kv_cache == plans[2].kv_cache);
    CHECK(plans[0].kv_cache == 0);
}

static Config config_of(uint32_t layers, uint32_t kv_heads, uint32_t head_dim) {
    Config config{};
    config.num_hidden_layers = layers;
    config.num_key_value_heads = kv_heads;
    config.head_dim = head_dim;
    return config;
}

TEST_CASE("messages that are cut short are refused") {
    const Config config = config_of(3, 2, 2);
    MessageWriter whole;
    write_options(whole, options_of({KvType::tq4, KvType::f16}, 2), 3);
    const auto bytes = whole.bytes();
    for (size_t length = 0; length < bytes.size(); length++) {
        MessageReader cut(std::vector<std::byte>(bytes.begin(), bytes.begin() + std::ptrdiff_t(length)));
        CHECK_THROWS_AS(read_options(cut, config), Error);
    }
    MessageReader all(std::vector<std::byte>(bytes.begin(), bytes.end()));
    const ForwardOptions read = read_options(all, config);
    CHECK(describe(read.kv) == "tq4/f16");
    CHECK(read.slots == 2);
    MessageWriter long_list;
    long_list.add(UINT64_MAX);
    MessageReader too_long({long_list.bytes().begin(), long_list.bytes().end()});
    CHECK_THROWS_AS(too_long.list<uint32_t>(), Error);
}

TEST_CASE("choices in a message that do not exist are refused") {
    ForwardOptions options = options_of({KvType::tq4, KvType::f16}, 2);
    options.kv.layers = {{0, 1, {KvType::tq5, KvType::tq3}}};
    options.kv.conditioning = {KeyConditioning::Kind::measured, "", nullptr};
    options.kv.conditioning.calibration =
        std::make_shared<const KeyCalibration>(KeyCalibration{3, 2, 2, std::vector<float>(12, 1), std::vector<float>(12)});
    MessageWriter whole;
    write_options(whole, options, 3);
    const std::span good = whole.bytes();
    const auto error_with = [&](size_t at, auto value) {
        std::vector<std::byte> bytes(good.begin(), good.end());
        REQUIRE(at + sizeof(value) <= bytes.size());
        std::memcpy(bytes.data() + at, &value, sizeof(value));
        MessageReader from(std::move(bytes));
        return error_of([&] { read_options(from, config_of(3, 2, 2)); });
    };
    CHECK(error_with(0, KvType::tq4) == "");
    CHECK(error_with(0, 999u) == "a message between ranks has the cache type 999, which there is not");
    CHECK(error_with(4, 0xFFFFFFFFu) == "a message between ranks has the cache type 4294967295, which there is not");
    CHECK(error_with(8, 2u) == "a message between ranks has rotation 2, of which there are 0 to 1");
    CHECK(error_with(12, 3u) == "a message between ranks has scale rule 3, of which there are 0 to 2");
    constexpr size_t layers = 24, kind = layers + sizeof(KvLayers), calibrated = kind + 12; // behind them: lengths of lists
    CHECK(error_with(layers, 3) == "layers 3:1 are not in this model: it has layers 0 to 2, or -3 to -1");
    CHECK(error_with(layers + 8, 77u) == "a message between ranks has the cache type 77, which there is not");
    CHECK(error_with(kind, 4) == "a message between ranks has conditioning of keys 4, of which there are 0 to 3");
    CHECK(error_with(kind, -1).starts_with("a message between ranks has conditioning of keys 1844674407370955"));
    CHECK(error_with(calibrated, uint8_t(2)) == "a message between ranks has flag 2, of which there are 0 to 1");
    CHECK(error_with(calibrated + 1, 4u) ==
          "a message between ranks has a calibration of 12 numbers for 4 layers of 2 kv heads of 2");
    CHECK(error_with(calibrated + 9, 0u) ==
          "a message between ranks has a calibration of 12 numbers for 3 layers of 2 kv heads of 0");
    for (const Config& other : {config_of(3, 4, 1), config_of(3, 1, 4)}) { // as many numbers
        MessageReader from({good.begin(), good.end()});
        CHECK(error_of([&] { read_options(from, other); }).starts_with("a message between ranks has a calibration for 3 layers"));
    }
}

TEST_CASE("sizes in a message that no cache has are refused") {
    const auto error_of_sizes = [](const std::function<void(ForwardOptions&)>& change) {
        ForwardOptions options = options_of({KvType::tq4, KvType::f16}, 2);
        change(options);
        MessageWriter whole;
        write_options(whole, options, 3);
        MessageReader from({whole.bytes().begin(), whole.bytes().end()});
        return error_of([&] { read_options(from, config_of(3, 2, 2)); });
    };
    CHECK(error_of_sizes([](ForwardOptions&) {}) == "");
    CHECK(error_of_sizes([](ForwardOptions& o) { o.context_size = 0; }) ==
          "a message between ranks has context size 0, not 1 to 16777216");
    CHECK(error_of_sizes([](ForwardOptions& o) { o.context_size = max_context + 1; }).find("context size") != std::string::npos);
    CHECK(error_of_sizes([](ForwardOptions& o) { o.slots = 0; }) == "a message between ranks has slots 0, not 1 to 4096");
    CHECK(error_of_sizes([](ForwardOptions& o) { o.slots = 1u << 20; }).find("slots 1048576") != std::string::npos);
    CHECK(error_of_sizes([](ForwardOptions& o) { o.batch_size = UINT32_MAX; }).find("batch size") != std::string::npos);
    CHECK(error_of_sizes([](ForwardOptions& o) { o.pending = UINT32_MAX; }).find("pending tokens") != std::string::npos);
    CHECK(error_of_sizes([](ForwardOptions& o) { o.kv.window = UINT32_MAX; }).find("window") != std::string::npos);
}
