// Rows of the kernels that sample: which logits are the greatest, and the sampled token, bit for bit. Random words that differ
// in one unit at a boundary between two candidates tell the most, since a weight that is off by one unit moves the boundary;
// telling_words finds them by bisection of the reference. Logits are made so that ties cross the ends of stretches, that one
// column or one stretch has all of the greatest, and that both zeros occur (they are equal).
#include "model/reference/kernels.h"
#include "tools/check/conformance/rig.h"
#include "tools/check/conformance/rows.h"
#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

namespace tq::conformance {
namespace {

constexpr size_t sampled_tokens_word = 2; // of the header of shaders/context.glsl

struct VocabularyShape {
    uint32_t vocab_size, candidates;
    const char* logits;
};

struct Settings {
    float temperature, top_p, min_p;
};

// "normal"; "ties": both zeros and -1; "columns": falling by 64s, so that one column of a stretch has all
// the greatest; "lists": falling, so that the first stretch has.
std::vector<float> make_logits(Random& random, const VocabularyShape& shape) {
    const std::string_view kind = shape.logits;
    std::vector<float> logits = random.normals(shape.vocab_size, 5);
    for (uint32_t id = 0; id < logits.size(); id++) {
        if (kind == "ties") logits[id] = random.below(4) == 0 ? -1.0f : random.below(2) == 0 ? 0.0f : -0.0f;
        if (kind == "columns") logits[id] = -float(id % 64 * 4096 + id / 64);
        if (kind == "lists") logits[id] = -float(id) / 64;
    }
    return logits;
}

std::vector<uint32_t> make_excluded(Random& random, uint32_t vocab_size) {
    std::vector<uint32_t> words((vocab_size + 31) / 32);
    for (uint32_t id = 1; id < vocab_size; id++) // never 0: one is left
        if (random.below(5) == 0) words[id / 32] |= 1u << id % 32;
    return words;
}

// shaders/sampling.glsl
Buffer sampling_buffer(Rig& rig, const sampling_settings& settings, std::span<const uint32_t> random,
                       std::span<const uint32_t> excluded, std::span<const token_use> uses = {}) {
    std::vector<uint32_t> words(sizeof settings / 4);
    std::memcpy(words.data(), &settings, sizeof settings);
    words.insert(words.end(), random.begin(), random.end());
    words.resize(words.size() + SAMPLING_STEPS, poison);
    words.insert(words.end(), excluded.begin(), excluded.end());
    for (const token_use& use : uses) words.insert(words.end(), {use.count, use.end});
    return rig.upload(std::as_bytes(std::span(words)));
}

sampling_settings only_candidates(uint32_t candidates) { return make_sampling_settings(candidates, 1, 1, 0); }

constexpr size_t next_token = 1000;

// Used tokens of an answer and of a prompt, recent ones and others, and tokens that were never used.
std::vector<token_use> make_uses(Random& random, uint32_t vocab_size) {
    std::vector<token_use> uses(vocab_size);
    for (token_use& use : uses) {
        if (random.below(2) == 0) continue;
        use.end = 1 + random.below(next_token);
        use.count = random.below(2) * (1 + random.below(5));
    }
    return uses;
}

// The word that the device stores for a finite logit: shaders/sampling.glsl.
uint32_t key_of(float logit) {
    const auto bits = std::bit_cast<uint32_t>(logit == 0 ? 0.0f : logit);
    return (bits & 0x80000000) != 0 ? ~bits : bits | 0x80000000;
}

// The keys and ids of each stretch's candidates.
std::vector<uint32_t> reference_candidates(std::span<const float> logits, std::span<const uint32_t> excluded, uint32_t count) {
    std::vector<uint32_t> words;
    for (uint32_t first = 0; first < logits.size(); first += SAMPLING_STRETCH) {
        const size_t size = std::min<size_t>(SAMPLING_STRETCH, logits.size() - first);
        const auto here = ref::sample_candidates(logits.subspan(first, size), excluded.subspan(first / 32), count);
        for (uint32_t i = 0; i < count; i++) {
            words.push_back(i < here.size() ? key_of(here[i].logit) : NO_LOGIT);
            words.push_back(i < here.size() ? first + here[i].id : NO_TOKEN);
        }
    }
    return words;
}

Outcome sample_candidates(Rig& rig, const gpu::Tuning& tuning, const VocabularyShape& shape) {
    const auto logits = make_logits(rig.random, shape);
    const auto excluded = make_excluded(rig.random, shape.vocab_size);
    std::vector<uint32_t> want = reference_candidates(logits, excluded, shape.candidates);
    const Buffer out = rig.output(want.size()), logits_buffer = rig.upload(logits), context = rig.context(0, 1),
                 sampling = sampling_buffer(rig, only_candidates(shape.candidates), std::vector(SAMPLING_STEPS, 0u), excluded);
    rig.run(tuning, context, 1, 128,
            [&](gpu::Pass& pass) { gpu::sample_candidates(pass, out, logits_buffer, sampling, shape.vocab_size); });
    return worse(compare_words(rig.read(out), want), rig.check(out, {}, 0));
}

// Penalties change which logits are the greatest, and their keys, bit for bit.
Outcome penalised_candidates(Rig& rig, const gpu::Tuning& tuning, const VocabularyShape& shape, const Penalties& penalties) {
    auto logits = make_logits(rig.random, shape);
    const auto excluded = make_excluded(rig.random, shape.vocab_size);
    auto uses = make_uses(rig.random, shape.vocab_size);
    sampling_settings settings = only_candidates(shape.candidates);
    set_penalties(settings, penalties, next_token);
    logits.back() = -3e38f; // penalties leave it finite
    uses.back() = {0, next_token};
    const Buffer logits_buffer = rig.upload(logits);
    for (uint32_t id = 0; id < shape.vocab_size; id++)
        if (uses[id].end != 0) logits[id] = penalised_logit(logits[id], settings, uses[id]);
    const std::vector<uint32_t> want = reference_candidates(logits, excluded, shape.candidates);
    const Buffer out = rig.output(want.size()), context = rig.context(0, 1),
                 sampling = sampling_buffer(rig, settings, std::vector(SAMPLING_STEPS, 0u), excluded, uses);
    rig.run(tuning, context, 1, 128,
            [&](gpu::Pass& pass) { gpu::sample_candidates(pass, out, logits_buffer, sampling, shape.vocab_size); });
    return worse(compare_words(rig.read(out), want), rig.check(out, {}, 0));
}

// A logit that is not finite is the greatest of its stretch, even that of an excluded id.
Outcome nonfinite_candidates(Rig& rig, const gpu::Tuning& tuning) {
    for (const uint32_t bits : {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc00001u}) {
        auto logits = rig.random.normals(2500);
        logits[1999] = std::bit_cast<float>(bits);
        std::vector<uint32_t> excluded(79);
        excluded[1999 / 32] |= 1u << 1999 % 32;
        const Buffer out = rig.output(3 * 2 * 2), logits_buffer = rig.upload(logits), context = rig.context(0, 1),
                     sampling = sampling_buffer(rig, only_candidates(2), std::vector(SAMPLING_STEPS, 0u), excluded);
        rig.run(tuning, context, 1, 128,
                [&](gpu::Pass& pass) { gpu::sample_candidates(pass, out, logits_buffer, sampling, 2500); });
        const std::vector<uint32_t> words = rig.read(out);
        for (uint32_t stretch = 0; stretch < 3; stretch++)
            if ((words[stretch * 4] == NONFINITE_LOGIT) != (stretch == 1))
                return {false, 1, 0,
                        fmt::format("{:08x} in stretch 1: stretch {} begins with {:08x}", bits, stretch, words[stretch * 4])};
    }
    return {};
}

// Random words on both sides of each boundary between candidates: a weight that is one unit off moves the boundary. The
// remaining words are random.
// Which candidate a word chooses is a step function of it. The last word of each step is found by bisection with the reference,
// and it and the next one are tested. A device whose weights differ by one unit gives another id for one of the two.
std::vector<uint32_t> telling_words(Random& random, const std::function<uint32_t(uint32_t word)>& sampled) {
    std::vector<uint32_t> words(SAMPLING_STEPS);
    for (uint32_t& word : words) word = uint32_t(random.bits());
    uint32_t from = 0;
    for (uint32_t i = 0; i < SAMPLING_STEPS; i += 2) {
        const uint32_t id = sampled(from);
        if (sampled(UINT32_MAX) == id) break; // the last one
        uint32_t same = from, other = UINT32_MAX;
        while (other - same > 1) {
            const uint32_t middle = same + (other - same) / 2;
            (sampled(middle) == id ? same : other) = middle;
        }
        words[i] = same;
        words[i + 1] = from = other;
    }
    return words;
}

// Every step of a batch samples from the same candidates with another random word.
// Besides the ids, what the kernel leaves for the next step is compared: the next id in place, the position of the row one
// further, and the count of sampled tokens.
Outcome sample(Rig& rig, const gpu::Tuning& tuning, const VocabularyShape& shape, const Settings& s) {
    const auto logits = make_logits(rig.random, shape);
    const auto excluded = make_excluded(rig.random, shape.vocab_size);
    const auto keys = reference_candidates(logits, excluded, shape.candidates);
    const auto candidates = ref::sample_candidates(logits, excluded, shape.candidates);
    const sampling_settings settings = make_sampling_settings(shape.candidates, s.temperature, s.top_p, s.min_p);
    const auto sampled_by = [&](uint32_t word) { return ref::sample(candidates, settings, word); };
    const std::vector<uint32_t> random = telling_words(rig.random, sampled_by), ids{poison, poison};
    std::vector<uint32_t> want(random.size());
    std::ranges::transform(random, want.begin(), sampled_by);

    const Buffer ids_buffer = rig.upload(std::as_bytes(std::span(ids))),
                 sampling = sampling_buffer(rig, settings, random, excluded),
                 keys_buffer = rig.upload(std::as_bytes(std::span(keys))), context = rig.context(70, 1);
    std::vector<uint32_t> moved = rig.read(context);
    moved[sampled_tokens_word] += SAMPLING_STEPS;
    moved[CONTEXT_HEADER_WORDS] += SAMPLING_STEPS; // the position of the only row
    rig.run(tuning, context, 1, 128, [&](gpu::Pass& pass) {
        for (uint32_t i = 0; i < SAMPLING_STEPS; i++) gpu::sample(pass, ids_buffer, sampling, keys_buffer, shape.vocab_size);
    });
    const std::vector<uint32_t> sampled = rig.read(sampling), next = rig.read(ids_buffer), last{want.back(), poison};
    const Outcome after = worse(compare_words(rig.read(context), moved), compare_words(next, last));
    return worse(compare_words(std::span(sampled).subspan(gpu::sampled_offset / 4, SAMPLING_STEPS), want), after);
}

// Requires sample_all to choose from the logits as `sampled_by` does for words that tell.
Outcome sampled_from_all(Rig& rig, const gpu::Tuning& tuning, const Buffer& logits, uint32_t vocab_size,
                         const sampling_settings& settings, const std::function<uint32_t(uint32_t word)>& sampled_by,
                         std::span<const uint32_t> excluded, std::span<const token_use> uses) {
    std::vector<uint32_t> random = telling_words(rig.random, sampled_by), want, got;
    random.resize(6);
    const std::vector<uint32_t> ids{poison, poison};
    for (const uint32_t word : random) { // one at a time: a token that was sampled is penalised from then on
        want.push_back(sampled_by(word));
        const std::vector<uint32_t> words(SAMPLING_STEPS, word);
        const Buffer ids_buffer = rig.upload(std::as_bytes(std::span(ids))),
                     sampling = sampling_buffer(rig, settings, words, excluded, uses), context = rig.context(70, 1);
        rig.run(tuning, context, 1, 128,
                [&](gpu::Pass& pass) { gpu::sample_all(pass, ids_buffer, sampling, logits, vocab_size); });
        got.push_back(rig.read(sampling)[gpu::sampled_offset / 4]);
        const std::vector<uint32_t> next = rig.read(ids_buffer), first{got.back(), poison};
        if (const Outcome after = compare_words(next, first); !after.passed) return after;
    }
    return compare_words(got, want);
}

// The same from all logits, or the `candidates` greatest, after penalties.
Outcome sample_all(Rig& rig, const gpu::Tuning& tuning, const VocabularyShape& shape, const Settings& s) {
    auto logits = make_logits(rig.random, shape);
    const Buffer logits_buffer = rig.upload(logits);
    const auto excluded = make_excluded(rig.random, shape.vocab_size);
    const auto uses = make_uses(rig.random, shape.vocab_size);
    sampling_settings settings = make_sampling_settings(shape.candidates, s.temperature, s.top_p, s.min_p);
    set_penalties(settings, {0.5f, 0.1f, 1.2f, 64}, next_token);
    for (uint32_t id = 0; id < shape.vocab_size; id++)
        if (uses[id].end != 0) logits[id] = penalised_logit(logits[id], settings, uses[id]);
    const uint32_t max = shape.candidates == 0 ? shape.vocab_size : shape.candidates;
    const auto candidates = ref::sample_candidates(logits, excluded, max);
    const auto sampled_by = [&](uint32_t word) { return ref::sample_all(candidates, settings, word); };
    return sampled_from_all(rig, tuning, logits_buffer, shape.vocab_size, settings, sampled_by, excluded, uses);
}

// Logits on an edge of the rules. No id is excluded or penalised.
Outcome sample_all_of(Rig& rig, const gpu::Tuning& tuning, const std::vector<float>& logits, uint32_t candidates,
                      const Settings& s) {
    const auto vocab_size = uint32_t(logits.size());
    const std::vector<uint32_t> excluded((vocab_size + 31) / 32);
    const sampling_settings settings = make_sampling_settings(candidates, s.temperature, s.top_p, s.min_p);
    const auto kept = ref::sample_candidates(logits, excluded, candidates == 0 ? vocab_size : candidates);
    const auto sampled_by = [&](uint32_t word) { return ref::sample_all(kept, settings, word); };
    return sampled_from_all(rig, tuning, rig.upload(logits), vocab_size, settings, sampled_by, excluded,
                            std::vector<token_use>(vocab_size));
}

// A sampled token has one use more, which ends where the next one begins.
// The id 65 is in the last, incomplete word of a mask of 70 ids.
Outcome counted_uses(Rig& rig, const gpu::Tuning& tuning) {
    constexpr uint32_t vocab_size = 70;
    const std::vector<uint32_t> keys{key_of(1), 65}, excluded(3), ids{poison, poison};
    std::vector<token_use> uses = make_uses(rig.random, vocab_size);
    sampling_settings settings = only_candidates(1);
    set_penalties(settings, {1, 1, 1.5f, 64}, next_token);
    const Buffer ids_buffer = rig.upload(std::as_bytes(std::span(ids))),
                 sampling = sampling_buffer(rig, settings, std::vector(SAMPLING_STEPS, 0u), excluded, uses),
                 keys_buffer = rig.upload(std::as_bytes(std::span(keys))), context = rig.context(70, 1);
    rig.run(tuning, context, 1, 128, [&](gpu::Pass& pass) {
        for (uint32_t i = 0; i < 3; i++) gpu::sample(pass, ids_buffer, sampling, keys_buffer, vocab_size);
    });
    uses[65] = {uses[65].count + 3, next_token + 3};
    settings.next += 3;
    std::vector<uint32_t> want(2 * vocab_size), head(sizeof settings / 4);
    std::memcpy(want.data(), uses.data(), want.size() * 4);
    std::memcpy(head.data(), &settings, sizeof settings);
    const std::vector<uint32_t> words = rig.read(sampling);
    const std::span all(words);
    return worse(compare_words(all.subspan(gpu::uses_offset(vocab_size) / 4, want.size()), want),
                 compare_words(all.first(head.size()), head));
}

// No candidate may be sampled, or one is not finite: the sampled id is NO_TOKEN.
Outcome no_sample(Rig& rig, const gpu::Tuning& tuning, uint32_t key) {
    const std::vector<uint32_t> keys{NO_LOGIT, NO_TOKEN, key, 1025}, ids{poison, poison};
    const Buffer ids_buffer = rig.upload(std::as_bytes(std::span(ids))),
                 sampling = sampling_buffer(rig, only_candidates(1), std::vector(SAMPLING_STEPS, 0u), {}),
                 keys_buffer = rig.upload(std::as_bytes(std::span(keys))), context = rig.context(70, 1);
    rig.run(tuning, context, 1, 128, [&](gpu::Pass& pass) { gpu::sample(pass, ids_buffer, sampling, keys_buffer, 2048); });
    const std::vector<uint32_t> sampled = rig.read(sampling), next = rig.read(ids_buffer), none{NO_TOKEN}, first{0, poison};
    return worse(compare_words(std::span(sampled).subspan(gpu::sampled_offset / 4, 1), none), compare_words(next, first));
}

} // namespace

void add_sampling(Rows& rows, const Capabilities& device) {
    for (const NamedTuning& variant : variants(device)) {
        const gpu::Tuning tuning = variant.tuning;
        const auto name = [](const VocabularyShape& s) {
            return fmt::format("{} logits, {}, top {}", s.vocab_size, s.logits, s.candidates);
        };
        const auto sampled = [&](const char* kernel, auto body, const VocabularyShape& shape, const Settings& s) {
            rows.push_back({kernel,
                            fmt::format("{}, temperature {}, top-p {}, min-p {}", variant.name, s.temperature, s.top_p, s.min_p),
                            name(shape), [=](Rig& rig) { return body(rig, tuning, shape, s); }});
        };
        for (const VocabularyShape& shape : {VocabularyShape{1, 1, "normal"},
                                             {7, 20, "normal"},
                                             {1000, 20, "ties"},
                                             {1025, 64, "normal"},
                                             {2048, 64, "columns"},
                                             {40000, 1, "normal"},
                                             {151936, 20, "normal"},
                                             {151936, 64, "ties"}})
            rows.push_back({"sample_candidates", variant.name, name(shape),
                            [=](Rig& rig) { return sample_candidates(rig, tuning, shape); }});
        for (const Penalties& penalties : {Penalties{1.5f, 0, 1, 0}, {0, 0.37f, 1, 0}, {0, 0, 1.3f, 64}, {-2, 0.1f, 0.7f, 500}})
            for (const VocabularyShape& shape : {VocabularyShape{1025, 64, "normal"}, {1025, 64, "ties"}, {40000, 20, "normal"}})
                rows.push_back({"sample_candidates",
                                fmt::format("{}, presence {}, frequency {}, repeat {}", variant.name, penalties.presence,
                                            penalties.frequency, penalties.repeat),
                                name(shape), [=](Rig& rig) { return penalised_candidates(rig, tuning, shape, penalties); }});
        rows.push_back({"sample", variant.name, "uses are counted", [=](Rig& rig) { return counted_uses(rig, tuning); }});
        rows.push_back({"sample_candidates", variant.name, "a logit that is not finite",
                        [=](Rig& rig) { return nonfinite_candidates(rig, tuning); }});
        for (const VocabularyShape& shape : {VocabularyShape{1, 1, "normal"},
                                             {7, 20, "ties"},
                                             {3000, 20, "normal"},
                                             {151936, 20, "normal"},
                                             {151936, 64, "lists"},
                                             {151936, 64, "ties"},
                                             {262144, 64, "normal"}})
            for (const Settings& settings : {Settings{0.7f, 0.8f, 0}, {3, 1, 0.5f}, {40, 0.95f, 0}})
                sampled("sample", sample, shape, settings);
        for (const VocabularyShape& shape : {VocabularyShape{1, 0, "normal"},
                                             {7, 100, "ties"},
                                             {3000, 0, "normal"},
                                             {5000, 65, "columns"},
                                             {40000, 1000, "ties"},
                                             {151936, 0, "lists"},
                                             {262144, 200, "normal"}})
            for (const Settings& settings : {Settings{3, 1, 0.5f}, {40, 0.95f, 0}, {1, 1, 0}})
                sampled("sample_all", sample_all, shape, settings);
        const auto edge = [&](const char* which, const char* what, std::vector<float> logits, uint32_t candidates, Settings s) {
            rows.push_back({"sample_all", fmt::format("{}, {}", variant.name, which), what,
                            [=](Rig& rig) { return sample_all_of(rig, tuning, logits, candidates, s); }});
        };
        // 1/3 as a float is more: of 3 x 2^24 it wants 2^24 and a half, which takes two of them.
        edge("three equal logits", "a third of their mass", {0, 0, 0}, 0, {1, 1.0f / 3, 0});
        edge("three equal logits", "min-p of 1", {0, 0, 0}, 0, {1, 1, 1});
        std::vector<float> ties(1100, -10);
        ties[0] = ties[1024] = ties[1025] = 0; // 1025 is no candidate
        ties[1030] = 1;
        edge("a tie beyond the candidates", "before one in the same stretch", ties, 3, {1, 1, 0});
        rows.push_back({"sample", variant.name, "no id is left", [=](Rig& rig) { return no_sample(rig, tuning, NO_LOGIT); }});
        rows.push_back(
            {"sample", variant.name, "a logit is not finite", [=](Rig& rig) { return no_sample(rig, tuning, NONFINITE_LOGIT); }});
    }
}

} // namespace tq::conformance
