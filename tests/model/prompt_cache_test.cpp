// Files of a KV cache on the CPU: the loaded cache is the saved one, and other files are always refused.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/files/prompt_cache.h"
#include "tests/support/golden.h"
#include "tests/support/huggingface_files.h"
#include "tests/support/prompt_cache_files.h"
#include "tests/support/text.h"
#include <bit>
#include <cmath>

using namespace tq;
using tq::test::contains;

namespace {

std::unique_ptr<Forward> cpu_forward(const SmallModel& model, const ForwardOptions& options) {
    return make_cpu_forward(model.config, model.weights, options);
}

// A session of 7 tokens of a mixed cache, and its file.
struct Saved {
    SmallModel model;
    KvOptions kv{KvType::tq3, KvType::f16, RotationKind::wht, KvOptions().scale_rule, parse_kv_layers("1=tq4/q8_0")};
    std::unique_ptr<Forward> forward = cpu_forward(model, small_options(kv));
    Session session{*forward};
    PromptCacheOwner owner = owner_of(model, kv);
    std::string bytes;

    Saved() {
        session.prefill(std::vector<uint32_t>{3, 1, 4, 1, 5, 9, 2});
        bytes = file_bytes(owner, session);
    }

    // Why the bytes are refused for `of`; "none" when they are accepted, and hold the saved cache.
    std::string refusal(const std::string& changed, const PromptCacheOwner& of) {
        const test::TemporaryFile path(changed);
        try {
            const PromptCacheFile file(path.path(), of);
            bool same = file.ids() == session.cached_ids();
            for (uint32_t layer = 0; layer < 2; layer++)
                for (const KvSide side : {KvSide::key, KvSide::value}) {
                    const StoredSide read = file.read(layer, side, uint32_t(file.ids().size())), is = session.stored(layer, side);
                    same = same && read.codes == is.codes && read.scales == is.scales;
                }
            return same ? "none" : "taken for another";
        } catch (const Error& error) {
            return error.what();
        }
    }
    std::string refusal(const std::string& changed) { return refusal(changed, owner); }
};

} // namespace

TEST_CASE("the checksum is the documented one") {
    const auto of = [](std::string_view text) { return checksum(std::as_bytes(std::span(text))); };
    CHECK(of("") == 0x9e3779b97f4a7c15);
    CHECK(of("a") == 0xedc2f5868cfbed62);
    CHECK(of("12345678") == 0x49e40579453747ad);
    CHECK(of("123456789") == 0xf21e25e182936465);
}

TEST_CASE("a session saved and loaded goes on bit for bit") {
    const SmallModel model;
    check_round_trips(model, saved_types(model.config),
                      [&](const ForwardOptions& options) { return cpu_forward(model, options); });
}

TEST_CASE("a file is what its description says") {
    Saved saved;
    uint64_t length = 0;
    std::memcpy(&length, saved.bytes.data(), 8);
    const auto header = nlohmann::json::parse(saved.bytes.substr(8, length));
    const std::string data = saved.bytes.substr(8 + length);
    CHECK(header["__metadata__"] == nlohmann::json{{"format", "tq-run-prompt-cache"},
                                                   {"version", "2"},
                                                   {"fingerprint", saved.owner.fingerprint},
                                                   {"rope", "none x1 of 0, attn 1, beta 32 1, theta 1000000"},
                                                   {"types", "tq3/f16 tq4/q8_0"},
                                                   {"rotation", "wht"},
                                                   {"scale_rule", "unbiased"},
                                                   {"conditioning", "norms"},
                                                   {"model", "a model"}});
    const auto tensor = [&](const std::string& name, const char* dtype, const nlohmann::json& shape) {
        CHECK(header[name]["dtype"] == dtype);
        CHECK(header[name]["shape"] == shape);
        const size_t begin = header[name]["data_offsets"][0], end = header[name]["data_offsets"][1];
        return data.substr(begin, end - begin);
    };
    const auto raw = [](const auto& values) {
        return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]);
    };
    std::vector<std::string> all{tensor("ids", "I32", {7})};
    CHECK(all[0] == raw(saved.session.cached_ids()));
    const auto side = [&](uint32_t layer, KvSide of, uint32_t words, uint32_t scales) {
        const std::string name = fmt::format("layers.{}.{}.", layer, of == KvSide::key ? "k" : "v");
        const StoredSide is = saved.session.stored(layer, of);
        all.push_back(tensor(name + "codes", "I32", {4, 7, words}));
        CHECK(all.back() == raw(is.codes));
        CHECK(header.contains(name + "scales") == (scales > 0));
        if (scales == 0) return;
        all.push_back(tensor(name + "scales", "F16", {4, 7, scales}));
        CHECK(all.back() == raw(is.scales));
    };
    side(0, KvSide::key, 12, 1);
    side(0, KvSide::value, 64, 0);
    side(1, KvSide::key, 16, 1);
    side(1, KvSide::value, 32, 4);
    std::vector<uint64_t> sums;
    for (const std::string& bytes : all) sums.push_back(checksum(std::as_bytes(std::span(bytes))));
    CHECK(tensor("check", "I32", {sums.size(), 2}) == raw(sums));
    CHECK(header.size() == all.size() + 2);
}

TEST_CASE("a smaller context takes the beginning, and the rest is run") {
    Saved saved;
    ForwardOptions small = small_options(saved.kv);
    small.context_size = 4;
    const auto forward = cpu_forward(saved.model, small);
    Session session(*forward);
    load(saved.bytes, saved.owner, session);
    CHECK(session.cached_ids() == std::vector<uint32_t>{3, 1, 4, 1});
    const std::vector<uint32_t> prompt{3, 1, 7, 7};
    const auto logits = session.prefill(prompt), expected = saved.session.prefill(prompt);
    CHECK(session.timings().reused_tokens == 2); // up to the first difference
    CHECK(session.timings().prompt_tokens == 2);
    CHECK(std::memcmp(logits.data(), expected.data(), logits.size_bytes()) == 0);
}

TEST_CASE("a source that fails leaves an empty cache that works") {
    Saved saved;
    const auto fresh = cpu_forward(saved.model, small_options(saved.kv));
    CHECK_THROWS_AS(saved.session.restore({1, 2, 3}, [](uint32_t, KvSide) -> StoredSide { fail("gone"); }), Error);
    CHECK(saved.session.cached_ids().empty());
    CHECK(saved.forward->position() == 0);
    std::mt19937 random(1);
    check_same(*saved.forward, *fresh, random_ids(random, 9));
}

TEST_CASE("whatever differs from what it was saved with is named") {
    Saved saved;
    CHECK(saved.refusal(saved.bytes) == "none");
    const auto changed = [&](auto change) {
        PromptCacheOwner other = saved.owner;
        change(other);
        return saved.refusal(saved.bytes, other);
    };
    CHECK(contains(changed([](auto& o) { o.kv.layers.clear(); }),
                   "it was saved with layer 1 in tq4/q8_0, but this cache stores it in tq3/f16: give the cache types"));
    CHECK(contains(changed([](auto& o) { o.kv.rotation = RotationKind::haar; }),
                   "it was saved with the rotation wht, but this run has haar: give the same --kv-rotation"));
    CHECK(contains(changed([](auto& o) { o.kv.scale_rule = ScaleRule::norm; }), "--kv-scale"));
    CHECK(contains(changed([](auto& o) { o.kv.conditioning = parse_key_conditioning("none"); }),
                   "the channel scaling norms, but this run has none: give the same --kv-condition"));
    CHECK(contains(changed([](auto& o) { o.fingerprint[0] ^= 1; }), "another model, or with other --weights: \"a model\""));
    CHECK(contains(changed([](auto& o) { o.config.rope_scaling.factor = 2; }), "give the same --rope flags"));
    CHECK(contains(changed([](auto& o) { o.config.rope_theta = 5e5f; }), "theta 1000000, but this run has none x1"));
    CHECK(changed([](auto& o) { o.model = "the same by another name"; }) == "none");
    CHECK(contains(saved.refusal("GGUF and so on, which is no such file"), "a header of"));
}

TEST_CASE("of a calibration the content counts, not the file's name") {
    const SmallModel model;
    KvOptions kv{KvType::tq4, KvType::tq4};
    kv.conditioning = random_calibration(model.config, 1);
    const auto forward = cpu_forward(model, small_options(kv));
    Session session(*forward);
    session.prefill(std::vector<uint32_t>{1, 2, 3});
    const test::TemporaryFile path(file_bytes(owner_of(model, kv), session));
    kv.conditioning = random_calibration(model.config, 1);
    kv.conditioning.file = "moved.safetensors";
    CHECK(PromptCacheFile(path.path(), owner_of(model, kv)).ids().size() == 3);
    kv.conditioning = random_calibration(model.config, 2);
    CHECK_THROWS_WITH_AS(PromptCacheFile(path.path(), owner_of(model, kv)), doctest::Contains("the channel scaling measured"),
                         Error);
}

TEST_CASE("files that are cut, or have a bit that is not as it was, are refused or the same") {
    Saved saved;
    for (size_t length = 0; length < saved.bytes.size(); length += length < 64 ? 1 : 997)
        if (length > 0) CHECK(saved.refusal(saved.bytes.substr(0, length)) != "none");
    CHECK(saved.refusal(saved.bytes + "x") != "none");
    uint64_t header = 0, unseen = 0;
    std::memcpy(&header, saved.bytes.data(), 8);
    std::mt19937 random(3);
    for (size_t at = 0; at < saved.bytes.size(); at += at < 8 + header ? 1 : 1 + random() % 60) {
        std::string flipped = saved.bytes;
        flipped[at] = char(flipped[at] ^ 1 << random() % 8);
        const std::string why = saved.refusal(flipped);
        REQUIRE_MESSAGE(why != "taken for another", "bit of byte " << at);
        if (why == "none") {
            REQUIRE(at < 8 + header); // the entry for people
            unseen++;
        }
    }
    CHECK(unseen <= std::strlen("model") + std::strlen("a model"));
}

TEST_CASE("files whose tensors are others than the header of their kind says are refused") {
    Saved saved;
    uint64_t length = 0;
    std::memcpy(&length, saved.bytes.data(), 8);
    const auto with = [&](auto change, const std::string& more = {}) {
        auto header = nlohmann::json::parse(saved.bytes.substr(8, length));
        change(header);
        std::string text = header.dump();
        const uint64_t now = text.size();
        return saved.refusal(std::string(reinterpret_cast<const char*>(&now), 8) + text + saved.bytes.substr(8 + length) + more);
    };
    CHECK(with([](auto&) {}) == "none");
    CHECK(contains(with([](auto& h) { h["__metadata__"].erase("format"); }), "it is not a file of tq-run-prompt-cache"));
    CHECK(contains(with([](auto& h) { h["__metadata__"]["format"] = "x"; }), "it is not a file of tq-run-prompt-cache"));
    CHECK(contains(with([](auto& h) { h["__metadata__"]["version"] = "1"; }),
                   "another version of tq-run saved it as tq-run-prompt-cache 1, but this one reads 2: name another file"));
    CHECK(contains(with([](auto& h) { h["__metadata__"]["types"] = "tq3/f16"; }), "it was saved with layer 1 in nothing"));
    CHECK(contains(with([](auto& h) {
                       h["layers.0.k.codes"]["shape"] = {7, 4, 12};
                   }),
                   "its tensor layers.0.k.codes is not I32 of 4 x 7 x 12"));
    CHECK(contains(with([](auto& h) { h["layers.0.k.codes"]["dtype"] = "F32"; }), "is not I32 of 4 x 7 x 12"));
    CHECK(contains(with([](auto& h) { h["ids"]["shape"] = {7, 1}; }), "its tensor ids is not I32 of 1:"));
    CHECK(contains(with([](auto& h) { h["ids"]["shape"] = {1u << 31}; }), "data_offsets span 28 bytes"));
    const auto rename = [](auto& h, const char* from, const char* to) {
        h[to] = h[from];
        h.erase(from);
    };
    CHECK(contains(with([&](auto& h) { rename(h, "ids", "idz"); }), "0 tokens"));
    CHECK(contains(with([&](auto& h) { rename(h, "check", "chekc"); }), "its tensor check is not I32 of 8 x 2"));
    const uint64_t end = saved.bytes.size() - 8 - length;
    CHECK(contains(with(
                       [&](auto& h) {
                           h["more"] = {{"dtype", "F16"}, {"shape", {1}}, {"data_offsets", {end, end + 2}}};
                       },
                       "xx"),
                   "10 tensors, not 9"));
}

TEST_CASE("a token that the vocabulary lacks is refused") {
    Saved saved;
    PromptCacheOwner other = saved.owner; // the same fingerprint, although it is another model's
    other.config.vocab_size = 9;
    CHECK(contains(saved.refusal(saved.bytes, other), "token 9 of a vocabulary of 9"));
}

namespace {

// The inputs of the first layer's attention for the last token run, and its output.
struct Attention {
    std::vector<float> q, out, logits;
};

} // namespace

// Softmax is invariant to the means: with exact arithmetic nothing would change. A score of d products, of keys from which the
// mean was subtracted or not, is off by at most (d + 1) eps sum |q| (|k| + |k - m|), eps = 2^-24; a weight then by twice that,
// and by the roundings of its exponential and of sums over the tokens; the output by at most the greatest value times the
// weights' error.
TEST_CASE("means that are subtracted, saved and loaded change an f32 cache by no more than its roundings") {
    const SmallModel model;
    const uint32_t tokens = 33, d = model.config.head_dim, kv_heads = model.config.num_key_value_heads,
                   group = model.config.num_attention_heads / kv_heads;
    std::mt19937 random(9);
    const auto prompt = random_ids(random, tokens - 1), next = random_ids(random, 1);
    KvOptions plain{KvType::f32, KvType::f32}, shifted = plain;
    shifted.conditioning = random_calibration(model.config, 3, false);
    const auto attend = [&](const KvOptions& kv, const KvOptions& loaded_into, std::unique_ptr<Forward>& forward) {
        const auto first = cpu_forward(model, small_options(kv));
        Session from(*first);
        from.prefill(prompt);
        Attention result;
        ForwardOptions options = small_options(loaded_into);
        options.tap = [&](std::string_view name, std::span<const float> values) {
            if (name == "layer 0 q") result.q.assign(values.begin(), values.end());
            if (name == "layer 0 attention") result.out.assign(values.begin(), values.end());
        };
        forward = cpu_forward(model, options);
        forward->restore(tokens - 1, [&](uint32_t layer, KvSide side) { return from.stored(layer, side); });
        const auto logits = forward->run(next);
        result.logits.assign(logits.begin(), logits.end());
        return result;
    };
    std::unique_ptr<Forward> of_plain, of_shifted, of_mixed;
    const Attention want = attend(plain, plain, of_plain), got = attend(shifted, shifted, of_shifted),
                    wrong = attend(shifted, plain, of_mixed); // keys of both kinds in one cache
    REQUIRE(got.q == want.q);
    StoredSide k = of_plain->stored(0, KvSide::key), k_shifted = of_shifted->stored(0, KvSide::key),
               v = of_plain->stored(0, KvSide::value);
    const auto value = [](std::span<const uint32_t> words, uint32_t c) {
        return std::fabs(double(std::bit_cast<float>(words[c])));
    };
    bool caught = false;
    for (uint32_t head = 0; head < model.config.num_attention_heads; head++) {
        double max_products = 0, max_value = 0;
        for (uint32_t t = 0; t < tokens; t++) {
            double products = 0;
            for (uint32_t c = 0; c < d; c++) {
                products += std::fabs(double(want.q[head * d + c])) *
                            (value(k.codes_of(head / group, t), c) + value(k_shifted.codes_of(head / group, t), c));
                max_value = std::max(max_value, value(v.codes_of(head / group, t), c));
            }
            max_products = std::max(max_products, products);
        }
        const double eps = 0x1p-24, score = (d + 1) * eps * max_products,
                     limit = 2 * (2 * score + (tokens + 16) * eps) * max_value;
        for (uint32_t c = head * d; c < (head + 1) * d; c++) {
            CHECK(std::fabs(double(got.out[c]) - want.out[c]) <= limit);
            caught |= std::fabs(double(wrong.out[c]) - want.out[c]) > limit;
        }
    }
    CHECK(caught);
    CHECK(relative_error(got.logits, want.logits) < 2e-5);
}
