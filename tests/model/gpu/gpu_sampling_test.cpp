// Tokens sampled on the device are the host's, bit for bit: kernel by kernel on hostile logits, and in whole conversations.
#include "base/error.h"
#include "model/engine/serving/batch.h"
#include "model/engine/session.h"
#include "model/files/formats/gguf.h"
#include "model/gpu/forward.h"
#include "model/gpu/kernels.h"
#include "model/prefix/cache.h"
#include "tests/support/hybrids.h"
#include "tests/support/skip.h"
#include "tests/support/small_model.h"
#include <bit>
#include <cmath>

using namespace tq;

namespace {

// The kernels on logits that the host writes, recorded once: for few candidates, and for any number.
class DeviceSampler {
  public:
    DeviceSampler(Device& device, uint32_t vocab_size, uint32_t workgroup)
        : vocab_size_(vocab_size), logits_upload_(device.allocate("logits upload", 4ull * vocab_size, Memory::upload)),
          logits_(device.allocate("logits", 4ull * vocab_size)),
          sampling_upload_(device.allocate("sampling upload", gpu::sampling_bytes(vocab_size), Memory::upload)),
          sampling_(device.allocate("sampling", gpu::sampling_bytes(vocab_size))),
          candidates_(device.allocate("candidates", gpu::candidates_bytes(vocab_size))),
          context_upload_(device.allocate("context upload", 64, Memory::upload)), context_(device.allocate("context", 64)),
          ids_(device.allocate("ids", 16)), sampled_(device.allocate("sampled", gpu::sampled_bytes, Memory::readback)) {
        gpu::Tuning tuning = gpu::choose_tuning(device.capabilities());
        tuning.workgroup = workgroup;
        tuning.max_workgroup = workgroup;
        few_.emplace(record(device, tuning, true));
        many_.emplace(record(device, tuning, false));
    }

    uint32_t sample(std::span<const float> logits, const DeviceSampling& sampling) {
        std::memcpy(logits_upload_.host().data(), logits.data(), logits.size_bytes());
        std::memset(context_upload_.host().data(), 0, 64);
        std::byte* to = sampling_upload_.host().data();
        std::memset(to, 0, sampling_upload_.host().size());
        std::memcpy(to, &sampling.settings, sizeof sampling.settings);
        std::memcpy(to + sizeof sampling.settings, sampling.random.data(), sampling.random.size() * 4);
        std::ranges::copy(std::as_bytes(sampling.excluded), to + gpu::sampled_offset + gpu::sampled_bytes); // maybe none
        for (const auto& [id, use] : sampling.used) std::memcpy(to + gpu::uses_offset(vocab_size_) + id * 8, &use, 8);
        (has_few_candidates(sampling.settings) ? few_ : many_)->run();
        uint32_t id;
        std::memcpy(&id, sampled_.host().data(), 4);
        return id;
    }

  private:
    Commands record(Device& device, const gpu::Tuning& tuning, bool few) {
        const gpu::Step step{0, 1};
        Recorder recorder(device);
        gpu::Pass pass{recorder, tuning, context_, 1, 128, step};
        recorder.copy(logits_, logits_upload_);
        recorder.copy(sampling_, sampling_upload_);
        recorder.copy(context_, context_upload_);
        if (few) {
            gpu::sample_candidates(pass, candidates_, logits_, sampling_, vocab_size_);
            gpu::sample(pass, ids_, sampling_, candidates_, vocab_size_);
        } else {
            gpu::sample_all(pass, ids_, sampling_, logits_, vocab_size_);
        }
        recorder.copy(sampled_, View(sampling_, gpu::sampled_offset, gpu::sampled_bytes));
        return recorder.finish();
    }

    const uint32_t vocab_size_;
    Buffer logits_upload_, logits_, sampling_upload_, sampling_, candidates_, context_upload_, context_, ids_, sampled_;
    std::optional<Commands> few_, many_;
};

float any_finite(std::mt19937& random) {
    const auto bits = uint32_t(random());
    return std::bit_cast<float>((bits & 0x7f800000) == 0x7f800000 ? bits & 0x807fffff : bits); // denormals too
}

// Bell-shaped; few values, many of them equal; falling; of every magnitude; all equal; falling in steps of 64.
std::vector<float> make_logits(std::mt19937& random, uint32_t size, uint32_t kind) {
    std::normal_distribution<float> normal(0, 4);
    std::vector<float> logits(size);
    for (uint32_t id = 0; id < size; id++) {
        const float tie = float(random() % 5) - 2;
        const float values[]{normal(random), random() % 2 ? tie : -0.0f,        -float(id) / 8, any_finite(random),
                             -1.5f,          -float(id % 64) - float(id) / 1e6f};
        logits[id] = values[kind];
    }
    return logits;
}

SamplerOptions any_options(std::mt19937& random) {
    const auto one_of = [&](std::initializer_list<float> values) { return values.begin()[random() % values.size()]; };
    SamplerOptions options;
    options.temperature = one_of({0, 0.7f, 0.7f, 1, 1.5f, 20, 100, 1e-3f, 1e-30f});
    options.top_k = uint32_t(one_of({1, 2, 20, 20, 40, 63, 64, 65, 200, 0, 0}));
    options.top_p = one_of({0, 1e-6f, 0.5f, 0.8f, 0.95f, 0.999999f, 1});
    options.min_p = one_of({0, 0, 0, 0.05f, 0.5f, 1});
    options.seed = random();
    if (random() % 2 == 0) return options;
    options.presence_penalty = one_of({0, 1.5f, -0.3f});
    options.frequency_penalty = one_of({0, 0.11f, 100});
    options.repeat_penalty = one_of({1, 1.1f, 0.7f});
    options.repeat_last_n = uint32_t(one_of({0, 1, 64, 300}));
    return options;
}

void check_vocabulary(Device& device, uint32_t size, uint32_t workgroup, uint32_t vectors) {
    CAPTURE(size);
    CAPTURE(workgroup);
    DeviceSampler on_device(device, size, workgroup);
    std::mt19937 random(size + workgroup);
    for (uint32_t i = 0; i < vectors; i++) {
        std::vector<bool> excluded(i % 3 == 0 ? 0 : size);
        for (uint32_t id = 0; id < excluded.size(); id++) excluded[id] = random() % (i % 3 == 1 ? 10 : 2) == 0;
        if (!excluded.empty()) excluded[random() % size] = false;
        const auto logits = make_logits(random, size, i % 6);
        Sampler sampler(any_options(random), excluded);
        REQUIRE(sampler.fits_device());
        std::vector<uint32_t> ids(random() % 200);
        for (uint32_t& id : ids) id = random() % std::min(size, 300u);
        const size_t answer_begin = random() % (ids.size() + 1);
        DeviceSampling sampling = sampler.device_sampling(2, ids, answer_begin);
        CAPTURE(i);
        REQUIRE(on_device.sample(logits, sampling) == sampler.sample(logits, ids, answer_begin));
        sampling.random = {sampling.random[1]};
        REQUIRE(on_device.sample(logits, sampling) == sampler.sample(logits, ids, answer_begin));
    }
}

// Reports max_sampled() as `max`, whatever the device's own choice of where to sample; 0: on the host.
class Sampling final : public Forward {
  public:
    explicit Sampling(std::unique_ptr<Forward> forward, uint32_t max) : forward_(std::move(forward)), facts_(forward_->facts()) {
        facts_.max_sampled = max;
    }

    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override {
        return forward_->run(spans, each, progress);
    }
    using Forward::run;
    const ForwardFacts& facts() const override { return facts_; }
    Cache& cache() override { return forward_->cache(); }
    std::vector<uint32_t> run_sampled(uint32_t slot, uint32_t id, uint32_t n, const DeviceSampling& sampling) override {
        batches.push_back(n);
        return forward_->run_sampled(slot, id, n, sampling);
    }

    std::vector<uint32_t> batches;

  private:
    std::unique_ptr<Forward> forward_;
    ForwardFacts facts_;
};

std::unique_ptr<Sampling> make(Device& device, const auto& model, uint32_t max, uint32_t context = small_context) {
    ForwardOptions options = small_options({KvType::tq4, KvType::tq4});
    options.context_size = context;
    return std::make_unique<Sampling>(make_gpu_forward(device, model.config, model.weights, options), max);
}

SamplerOptions warm(uint64_t seed) {
    SamplerOptions options;
    options.temperature = 1.5f;
    options.seed = seed;
    return options;
}

} // namespace

TEST_CASE("whatever the logits, the device samples what the host does") {
    Device device;
    const uint32_t max = std::min(256u, device.capabilities().max_workgroup_invocations);
    for (const uint32_t workgroup : {64u, 96u, max})
        for (const uint32_t size : {1u, 7u, 64u, 1000u, 1024u, 1025u, 4099u}) check_vocabulary(device, size, workgroup, 120);
    check_vocabulary(device, 151936, 64, 60);
    check_vocabulary(device, gpu::max_sampling_logits, 64, 6);
}

TEST_CASE("a logit that is not finite is noticed wherever it is") {
    Device device;
    for (const uint32_t size : {1u, 1000u, 5000u}) {
        DeviceSampler on_device(device, size, 64);
        std::mt19937 random(size);
        for (const float bad : {NAN, -NAN, INFINITY, -INFINITY})
            for (const uint32_t at : {0u, size / 2, size - 1}) {
                auto logits = make_logits(random, size, 0);
                logits[at] = bad;
                std::vector<bool> excluded(size, true); // even if it may not be sampled
                excluded[0] = false;
                for (const uint32_t top_k : {20u, 0u}) {
                    SamplerOptions options = warm(1);
                    options.top_k = top_k;
                    const Sampler sampler(options, excluded);
                    CHECK(on_device.sample(logits, sampler.device_sampling(1)) == NO_TOKEN);
                }
            }
    }
}

TEST_CASE("a batch of sampled tokens is the same tokens one by one, while the cache grows") {
    const SmallModel model;
    Device device;
    const auto ahead = make(device, model, 0), plain = make(device, model, 0);
    std::mt19937 random(3);
    for (const bool greedy : {false, true}) {
        SamplerOptions options = warm(5);
        if (greedy) options.temperature = 0;
        std::vector<bool> excluded(model.config.vocab_size);
        for (uint32_t id = 0; id < excluded.size(); id += 3) excluded[id] = true;
        Sampler a(options, excluded), b(options, excluded);
        ahead->truncate(0);
        plain->truncate(0);
        check_same(*ahead, *plain, random_ids(random, 7));
        uint32_t id = 1;
        for (const uint32_t n : {1u, 3u, 16u, 16u, 2u, 9u}) {
            const auto ids = ahead->run_sampled(0, id, n, a.device_sampling(n));
            a.sampled(n);
            REQUIRE(ids.size() == n);
            for (const uint32_t next : ids) {
                REQUIRE(b.sample(plain->run({&id, 1}, {})) == next);
                id = next;
            }
            CHECK(ahead->position() == plain->position());
        }
        check_same(*ahead, *plain, random_ids(random, 1));
        ahead->truncate(20);
        plain->truncate(20);
        check_same(*ahead, *plain, random_ids(random, 3)); // the stored vectors are the same too
    }
}

// Tokens are sampled in the last of three slots, up to n at a time, while the first has others, and after drafts that were
// refused.
void check_last_slot(const auto& model, uint32_t n) {
    Device device;
    ForwardOptions options = small_options({KvType::tq4, KvType::tq4});
    options.slots = 3;
    options.pending = model.config.recurrent ? 3 : 0;
    options.speculative = true;
    const auto ahead = make_gpu_forward(device, model.config, model.weights, options),
               plain = make_gpu_forward(device, model.config, model.weights, options);
    std::mt19937 random(6);
    const auto first = random_ids(random, 20), prompt = random_ids(random, 30), drafted = random_ids(random, 3);
    SamplerOptions greedy;
    greedy.temperature = 0;
    Sampler sampler(greedy);
    uint32_t next = 0;
    const auto run = [&](Forward& forward, uint32_t slot, std::span<const uint32_t> ids, uint32_t certain = UINT32_MAX) {
        const Span span{slot, ids, Span::Logits::last, certain};
        forward.run(std::span(&span, 1), [&](size_t, uint32_t, std::span<const float> logits) { next = sampler.sample(logits); });
    };
    for (Forward* forward : {ahead.get(), plain.get()}) {
        run(*forward, 0, first);
        run(*forward, 2, prompt);
        run(*forward, 2, drafted, 1);
        forward->cache().truncate(2, 32);
    }
    uint32_t id = 1;
    for (int i = 0; i < 4; i++) {
        const auto ids = ahead->run_sampled(2, id, n, sampler.device_sampling(n));
        REQUIRE(ids.size() == n);
        for (const uint32_t sampled : ids) {
            run(*plain, 2, {&id, 1});
            REQUIRE(next == sampled);
            id = sampled;
        }
        CHECK(ahead->cache().position(2) == plain->cache().position(2));
    }
    CHECK(ahead->cache().position(0) == 20);
    CHECK(ahead->cache().save_slot(2).state == plain->cache().save_slot(2).state);
    check_same(*ahead, *plain, random_ids(random, 2)); // slot 0
}

TEST_CASE("tokens are sampled in any slot, those of a hybrid one by one") {
    check_last_slot(SmallModel(), 5);
    for (const char* type : test::hybrid_types) {
        CAPTURE(type);
        check_last_slot(test::Hybrid(type), 1);
    }
}

TEST_CASE("a page that sampled tokens fill is kept at once") {
    Device device;
    const test::Hybrid model("qwen3_5");
    const auto forward = make(device, model, 1, 2 * page_tokens);
    const CacheOwner owner{model.config, forward->kv(), "a fingerprint", "a model", forward->computation()};
    PrefixCache prefix(*forward, owner_texts(owner), {.memory_bytes = 1 << 24});
    serving::Batch batch({forward.get(), &prefix}, {}, {});
    auto sequence = std::make_unique<serving::Sequence>();
    sequence->ids = sequence->request.prompt = test::ids_of(5, page_tokens - 10);
    sequence->request.max_tokens = 20;
    sequence->own_sampler.emplace(warm(2), std::vector<bool>(model.config.vocab_size));
    sequence->stream = std::make_shared<serving::Stream>();
    batch.add(std::move(sequence));
    while (batch.status().decoded_tokens < 12) batch.step();
    CHECK(forward->position() == page_tokens + 1);
    CHECK(prefix.statistics().device_pages == 1);
    CHECK(forward->batches.size() == 11); // the first token is the prompt's
}

// Penalties see each token that the device sampled ahead.
void check_conversation(const SamplerOptions& sampling, const auto& model, uint32_t max) {
    Device device;
    const auto ahead = make(device, model, max), plain = make(device, model, 0);
    Session a(*ahead), b(*plain);
    Sampler sampler_a(sampling), sampler_b(sampling);
    std::mt19937 random(4);
    std::vector<uint32_t> prompt = random_ids(random, 5);
    for (const uint32_t end : {400u, 11u, 160u, 201u}) { // the first is not a token
        CAPTURE(end);
        const GenerateOptions options{.max_tokens = 40, .is_end = [&](uint32_t id) { return id % 8 == end % 8 && end < 320; }};
        const Generated x = a.generate(prompt, sampler_a, options), y = b.generate(prompt, sampler_b, options);
        REQUIRE(x.ids == y.ids);
        CHECK(x.stop == y.stop);
        CHECK(x.timings.reused_tokens == y.timings.reused_tokens);
        CHECK(x.timings.prompt_tokens == y.timings.prompt_tokens);
        CHECK(x.timings.decoded_tokens == y.timings.decoded_tokens);
        REQUIRE(a.cached_ids() == b.cached_ids());
        CHECK(ahead->position() == plain->position());
        CHECK(ahead->cache().free_pages() == plain->cache().free_pages());
        prompt = a.cached_ids();
        prompt.push_back(end % 300);
    }
    const GenerateOptions endless{};
    const Generated x = a.generate(prompt, sampler_a, endless), y = b.generate(prompt, sampler_b, endless);
    CHECK(x.stop == Stop::context_full);
    CHECK(x.ids == y.ids);
    CHECK(a.cached_ids() == b.cached_ids());
    CHECK(plain->batches.empty());
    REQUIRE(!ahead->batches.empty());
    CHECK(ahead->batches[0] == 1);
}

TEST_CASE("a conversation sampled on the device is the one sampled on the host") {
    const SmallModel model;
    const auto check = [&](const SamplerOptions& options) { check_conversation(options, model, SAMPLING_STEPS); };
    check(warm(9));
    SamplerOptions penalised = warm(9);
    penalised.presence_penalty = 0.5f;
    penalised.frequency_penalty = 0.3f;
    penalised.repeat_penalty = 1.2f;
    penalised.repeat_last_n = 20;
    check(penalised);
    penalised.top_k = 0;
    check(penalised);
    penalised.temperature = 0;
    check(penalised);
    check_conversation(warm(9), test::Hybrid("qwen3_5"), 1);
}

TEST_CASE("a token whose logits are not finite ends a batch before it, and is reported by the next") {
    test::TemporaryFile path;
    const Config config = test::small_config();
    test::write_random_model(path.path(), {config, GgmlType::F32, false, 2, {}});
    const ModelFile file = read_gguf(path.path());
    Weights weights = read_weights(file, config);
    Device device;
    const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 64};
    const Sampler sampler(warm(3));
    const auto expected = make_gpu_forward(device, config, weights, options)->run_sampled(0, 1, 6, sampler.device_sampling(6));
    REQUIRE(expected.size() == 6);
    size_t third = 2;
    while (third < 5 && std::count(expected.begin(), expected.begin() + ptrdiff_t(third), expected[third]) != 0) third++;
    std::vector<std::byte> loud(weights.token_embd.data.begin(), weights.token_embd.data.end());
    for (uint32_t i = 0; i < config.hidden_size; i++) {
        const float huge = 1e30f; // its square overflows fp32
        std::memcpy(&loud[(size_t(expected[third]) * config.hidden_size + i) * 4], &huge, 4);
    }
    weights.token_embd.data = loud;
    const auto forward = make_gpu_forward(device, config, weights, options),
               plain = make_gpu_forward(device, config, weights, options);
    const auto ids = forward->run_sampled(0, 1, 6, sampler.device_sampling(6));
    CHECK(ids == std::vector(expected.begin(), expected.begin() + ptrdiff_t(third) + 1));
    CHECK(forward->position() == third + 1);
    std::vector<uint32_t> before{1};
    before.insert(before.end(), ids.begin(), ids.end() - 1);
    for (const uint32_t id : before) plain->run({&id, 1});
    const auto error_of = [&](auto&& body) {
        try {
            body();
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string("no error");
    };
    const std::string on_host = error_of([&] { plain->run({&ids.back(), 1}); });
    CHECK(on_host.find("not finite") != std::string::npos);
    CHECK(error_of([&] { forward->run_sampled(0, ids.back(), 4, sampler.device_sampling(4)); }) == on_host);
    CHECK(forward->position() == third + 1);
    forward->truncate(2);
    CHECK(forward->run_sampled(0, 7, 2, sampler.device_sampling(2)).size() == 2); // it can continue
}

TEST_CASE("profiled, each sampled token is charged by itself") {
    const SmallModel model;
    Device device;
    const auto forward = make_gpu_forward(device, model.config, model.weights, small_options({KvType::tq4, KvType::tq4}));
    const Sampler sampler(warm(3));
    const auto expected = forward->run_sampled(0, 1, 5, sampler.device_sampling(5));
    forward->truncate(0);
    device.profile = true;
    forward->record_again();
    device.take_profile();
    CHECK(forward->run_sampled(0, 1, 5, sampler.device_sampling(5)) == expected);
    const auto rows = device.take_profile();
    device.profile = false;
    forward->record_again();
    if (device.capabilities().timestamp_ns == 0) {
        test::skip("this device has no timestamps");
        return;
    }
    const auto calls = [&](const std::string& kernel) {
        for (const ProfileRow& row : rows)
            if (row.kernel == kernel) return row.calls;
        return uint64_t(0);
    };
    CHECK(calls("sample") == 5);
    CHECK(calls("sample_candidates") == 5);
}
