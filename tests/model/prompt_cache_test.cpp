// Files of a KV cache on the CPU: the loaded cache is the saved one, and other files are always refused.
#include "base/checksum.h"
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/files/prompt_cache.h"
#include "model/kv/window.h"
#include "tests/support/golden.h"
#include "tests/support/huggingface_files.h"
#include "tests/support/prompt_cache_files.h"
#include "tests/support/stored_pages.h"
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
    CacheOwner owner = owner_of(model, kv);
    std::string bytes;

    Saved() {
        session.prefill(std::vector<uint32_t>{3, 1, 4, 1, 5, 9, 2});
        bytes = file_bytes(owner, session);
    }

    // Why the bytes are refused for `of`; "none" when they are accepted, and hold the saved cache.
    std::string refusal(const std::string& changed, const CacheOwner& of) {
        const test::TemporaryFile path(changed);
        try {
            const PromptCacheFile file(path.path(), of);
            bool same = file.ids() == session.cached_ids() && file.cold() == session.cold_tokens();
            std::vector<std::byte> is(page_layout(model.config, kv).bytes(7)), read(is.size());
            session.read_page(0, is);
            file.read(0, read);
            same = same && read == is;
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
    CHECK(saved.bytes.substr(0, 16) == "tq-run cache v9\n");
    uint64_t length = 0;
    std::memcpy(&length, saved.bytes.data() + 16, 8);
    CHECK(nlohmann::json::parse(saved.bytes.substr(24, length)) ==
          nlohmann::json{{"fingerprint", saved.owner.fingerprint},
                         {"rope", "none x1 of 0, attn 1, beta 32 1, theta 1000000"},
                         {"types", "tq3/f16 tq4/q8_0"},
                         {"rotation", "wht"},
                         {"scale_rule", "unbiased"},
                         {"conditioning", "norms norms+values"},
                         {"shape", "2 4 128"},
                         {"computation", "this test"},
                         {"model", "a model"}});
    const std::string page = saved.bytes.substr(24 + length);
    const PageHead head = read_page_head(std::as_bytes(std::span(page)));
    CHECK(head.owner == owner_name(owner_texts(saved.owner)));
    CHECK(head.parent == head.owner);
    CHECK(head.ids == saved.session.cached_ids());
    size_t at = page_head_size(7);
    const auto raw = [](const auto& values) {
        return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]);
    };
    for (uint32_t layer = 0; layer < 2; layer++)
        for (const KvSide side : {KvSide::key, KvSide::value}) {
            StoredSide is = saved.forward->stored(layer, side);
            const std::string vectors = raw(is.codes) + raw(is.scales);
            CHECK(page.substr(at, vectors.size()) == vectors);
            at += vectors.size();
            for (uint32_t i = 0; i < 4 * FIRST_TOKENS; i++, at += 256) { // once more, which is nearly what the codes say
                const uint32_t head = i / FIRST_TOKENS, token = i % FIRST_TOKENS;
                std::vector<uint32_t> words(64);
                std::vector<float> exact(128), stored(128);
                std::memcpy(words.data(), page.substr(at, 256).data(), 256);
                decode_window(exact, words);
                decode_stored(is.codec, stored, is.codes_of(head, token), is.scales_of(head, token));
                double error = 0, squares = 0;
                for (size_t c = 0; c < 128; c++) {
                    error += (double(exact[c]) - stored[c]) * (double(exact[c]) - stored[c]);
                    squares += double(exact[c]) * exact[c];
                }
                CHECK(squares > 0);
                CHECK(error < 0.1 * squares);
            }
        }
    CHECK(at == page.size());
}

TEST_CASE("a file of several pages, and one that ends with a page") {
    const SmallModel model;
    const KvOptions kv{KvType::tq4, KvType::tq4};
    const CacheOwner owner = owner_of(model, kv);
    std::mt19937 random(3);
    const auto ids = random_ids(random, 600);
    for (const uint32_t count : {255u, 256u, 257u, 512u, 600u}) {
        ForwardOptions options = small_options(kv);
        options.context_size = 610;
        const auto saved = cpu_forward(model, options), loaded = cpu_forward(model, options);
        Session from(*saved), to(*loaded);
        from.prefill(std::span(ids).first(count));
        const std::string bytes = file_bytes(owner, from);
        load(bytes, owner, to);
        CHECK(to.cold_tokens() == from.cold_tokens());
        check_same(*loaded, *saved, random_ids(random, 5));
        const test::TemporaryFile more(bytes + bytes.substr(bytes.size() - 100));
        CHECK_THROWS_WITH_AS(PromptCacheFile(more.path(), owner), doctest::Contains("the file is damaged"), Error);
    }
}

TEST_CASE("a window is saved with its tokens, taken by caches of other windows, and refused where it is damaged") {
    const SmallModel model;
    const auto with = [](uint32_t window) {
        KvOptions kv{KvType::tq4, KvType::tq4};
        kv.window = window;
        return kv;
    };
    std::mt19937 random(4);
    const auto ids = random_ids(random, 100);
    const auto saved = cpu_forward(model, small_options(with(16)));
    Session from(*saved);
    from.prefill(ids);
    const CacheOwner owner = owner_of(model, with(16));
    const std::string bytes = file_bytes(owner, from);
    const auto of = [&](std::string_view text, uint32_t window) {
        const test::TemporaryFile path{std::string(text)};
        return PromptCacheFile(path.path(), owner).beside(window);
    };
    const uint32_t kept = kept_window_tokens(16);
    CHECK(of(bytes, 16).window_tokens == kept);
    CHECK(of(bytes, 16).window == from.save_slot().window);
    CHECK(of(bytes, 0).window_tokens == 0);
    CHECK(of(bytes, 64).window_tokens == kept);
    CHECK(of(bytes, 8).window_tokens == kept_window_tokens(8));
    for (const uint32_t window : {8u, 64u}) { // tokens that both windows keep are exact, and the rest is there as codes
        const auto other = cpu_forward(model, small_options(with(window)));
        Session to(*other);
        load(bytes, owner, to);
        CHECK(other->cache().window(0).begin == 100 - kept_window_tokens(std::min(window, 16u)));
    }
    const size_t window_at = bytes.size() - from.save_slot().window.size() - 32;
    REQUIRE(bytes.substr(window_at, 16) == "tq-run window 1\n");
    std::string wrong = bytes;
    wrong.back() ^= 1;
    CHECK_THROWS_WITH_AS(of(wrong, 16), doctest::Contains("its window has a wrong checksum: the file is damaged"), Error);
    for (const size_t end : {window_at + 16, window_at + 31, bytes.size() - 1})
        CHECK_THROWS_WITH_AS(of(bytes.substr(0, end), 16), doctest::Contains("the file is damaged"), Error);
    wrong = bytes;
    wrong[window_at + 16] = char(101); // more tokens than there are
    CHECK_THROWS_WITH_AS(of(wrong, 16), doctest::Contains("of a window of 101 tokens: the file is damaged"), Error);
    CHECK(of(bytes.substr(0, window_at), 16).window_tokens == 0); // a file without one
}

TEST_CASE("what was computed by something else is not cold") {
    Saved saved;
    const test::TemporaryFile path(saved.bytes);
    CacheOwner other = saved.owner;
    CHECK(PromptCacheFile(path.path(), other).cold() == saved.session.cold_tokens());
    other.computation = "another device";
    CHECK(PromptCacheFile(path.path(), other).cold() == 0);
    CHECK(PromptCacheFile(path.path(), other).ids().size() == 7);
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
    CHECK_THROWS_AS(saved.session.restore({1, 2, 3}, 0, [](uint32_t, std::span<std::byte>) { fail("gone"); }), Error);
    CHECK(saved.session.cached_ids().empty());
    CHECK(saved.forward->position() == 0);
    std::mt19937 random(1);
    check_same(*saved.forward, *fresh, random_ids(random, 9));
}

TEST_CASE("whatever differs from what it was saved with is named") {
    Saved saved;
    CHECK(saved.refusal(saved.bytes) == "none");
    const auto changed = [&](auto change) {
        CacheOwner other = saved.owner;
        change(other);
        return saved.refusal(saved.bytes, other);
    };
    CHECK(contains(changed([](auto& o) { o.kv.layers.clear(); }),
                   "it was saved with layer 1 in tq4/q8_0, but this cache stores it in tq3/f16: give the cache types"));
    CHECK(contains(changed([](auto& o) { o.kv.rotation = RotationKind::haar; }),
                   "it was saved with the rotation wht, but this run has haar: give the same --kv-rotation"));
    CHECK(contains(changed([](auto& o) { o.kv.scale_rule = ScaleRule::norm; }), "--kv-scale"));
    CHECK(contains(changed([](auto& o) { o.kv.conditioning = parse_key_conditioning("none"); }),
                   "the channel scaling norms norms+values, but this run has none: give the same --kv-condition"));
    CHECK(contains(changed([](auto& o) { o.fingerprint[0] ^= 1; }), "another model, or with other --weights: \"a model\""));
    CHECK(contains(changed([](auto& o) { o.config.rope_scaling.factor = 2; }), "give the same --rope flags"));
    CHECK(contains(changed([](auto& o) { o.config.rope_theta = 5e5f; }), "theta 1000000, but this run has none x1"));
    CHECK(changed([](auto& o) { o.model = "the same by another name"; }) == "none");
    CHECK(contains(saved.refusal("GGUF and so on, which is no such file"), "it is not a file of --prompt-cache"));
    CHECK(contains(saved.refusal("tq-run cache v3\n" + saved.bytes.substr(16)),
                   "another version of tq-run saved it, in a format that this one does not read: name another file"));
    CHECK(contains(saved.refusal(std::string("\x44\0\0\0\0\0\0\0{\"__metadata__\":{}}", 27)),
                   "another version of tq-run saved it, in a format that this one does not read: name another file"));
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
    KvOptions found{KvType::tq4, KvType::tq4}; // by default, if this was measured
    found.conditioning.calibration = kv.conditioning.calibration;
    CHECK(PromptCacheFile(path.path(), owner_of(model, found)).ids().size() == 3);
    kv.conditioning = random_calibration(model.config, 2);
    CHECK_THROWS_WITH_AS(PromptCacheFile(path.path(), owner_of(model, kv)), doctest::Contains("the channel scaling measured"),
                         Error);
}

TEST_CASE("files that are cut, or have a bit that is not as it was, are refused or the same") {
    Saved saved;
    for (size_t length = 0; length < saved.bytes.size(); length += length < 64 ? 1 : 997)
        if (length > 0) CHECK(saved.refusal(saved.bytes.substr(0, length)) != "none");
    CHECK(saved.refusal(saved.bytes + "x") != "none");
    uint64_t length = 0, unseen = 0;
    std::memcpy(&length, saved.bytes.data() + 16, 8);
    const uint64_t header = 24 + length;
    std::mt19937 random(3);
    for (size_t at = 0; at < saved.bytes.size(); at += at < header + 120 ? 1 : 1 + random() % 60) {
        std::string flipped = saved.bytes;
        flipped[at] = char(flipped[at] ^ 1 << random() % 8);
        const std::string why = saved.refusal(flipped);
        REQUIRE_MESSAGE(why != "taken for another", "bit of byte " << at);
        if (why == "none") {
            REQUIRE(at < header); // the entry for people
            unseen++;
        }
    }
    CHECK(unseen <= std::strlen("model") + std::strlen("a model"));
}

TEST_CASE("files whose header is not that of their kind are refused") {
    Saved saved;
    uint64_t length = 0;
    std::memcpy(&length, saved.bytes.data() + 16, 8);
    const auto with = [&](const std::string& text) {
        const uint64_t now = text.size();
        return saved.refusal(saved.bytes.substr(0, 16) + std::string(reinterpret_cast<const char*>(&now), 8) + text +
                             saved.bytes.substr(24 + length));
    };
    const std::string text = saved.bytes.substr(24, length);
    CHECK(with(text) == "none");
    auto header = nlohmann::json::parse(text);
    header["types"] = "tq3/f16";
    CHECK(contains(with(header.dump()), "it was saved with layer 1 in nothing"));
    CHECK(contains(with("[]"), "its header is a list"));
    CHECK(contains(with("{\"rope\": 3}"), "its entry rope is "));
    CHECK(contains(with("{"), "its header is not JSON: the file is damaged"));
    CHECK(contains(saved.refusal(saved.bytes.substr(0, 24 + length)), "it has no tokens"));
    const uint64_t huge = UINT64_MAX;
    CHECK(contains(saved.refusal(saved.bytes.substr(0, 16) + std::string(reinterpret_cast<const char*>(&huge), 8) + "{}"),
                   "too few for its header"));
}

TEST_CASE("a token that the vocabulary lacks is refused") {
    Saved saved;
    CacheOwner other = saved.owner; // the same fingerprint, although it is another model's
    other.config.vocab_size = 9;
    CHECK(contains(saved.refusal(saved.bytes, other), "token 9 of a vocabulary of 9"));
}

namespace {

// The inputs of the first layer's attention for the last token run, and its output.
struct Attention {
    std::vector<float> q, out, logits;
};

} // namespace

// Scores get back what the means take from them: with exact keys nothing would change. Keys of 8 bits are off by some
// thousandths.
TEST_CASE(
    "means that are subtracted, saved and loaded change an 8-bit cache by no more than its roundings, in the second page, too") {
    const SmallModel model;
    const uint32_t tokens = 300;
    std::mt19937 random(9);
    const auto prompt = random_ids(random, tokens - 1), next = random_ids(random, 1);
    KvOptions plain{KvType::q8_0, KvType::f32}, shifted = plain;
    plain.conditioning = parse_key_conditioning("none");
    shifted.conditioning = random_calibration(model.config, 3, false);
    const auto attend = [&](const KvOptions& kv, const KvOptions& loaded_into, std::unique_ptr<Forward>& forward) {
        ForwardOptions before = small_options(kv);
        before.context_size = tokens;
        const auto first = cpu_forward(model, before);
        Session from(*first);
        from.prefill(prompt);
        Attention result;
        ForwardOptions options = small_options(loaded_into);
        options.context_size = tokens;
        options.tap = [&](std::string_view name, std::span<const float> values) {
            if (name == "layer 0 q") result.q.assign(values.begin(), values.end());
            if (name == "layer 0 attention") result.out.assign(values.begin(), values.end());
        };
        forward = cpu_forward(model, options);
        forward->cache().restore(0, tokens - 1, pages_of_slot(first->cache(), 0));
        const auto logits = forward->run(next);
        result.logits.assign(logits.begin(), logits.end());
        return result;
    };
    std::unique_ptr<Forward> of_plain, of_shifted, of_mixed;
    const Attention want = attend(plain, plain, of_plain), got = attend(shifted, shifted, of_shifted),
                    wrong = attend(shifted, plain, of_mixed); // keys of both kinds in one cache
    REQUIRE(got.q == want.q);
    CHECK(relative_error(got.out, want.out) < 0.02);
    CHECK(relative_error(wrong.out, want.out) > 0.1);
    CHECK(relative_error(got.logits, want.logits) < 0.02);
}

TEST_CASE("a file that does not say what has computed it is not taken for a cold run here") {
    Saved saved;
    OwnerTexts texts = owner_texts(saved.owner);
    texts.erase("computation");
    const std::string json = nlohmann::json(texts).dump();
    const uint64_t length = json.size();
    const PageName name = owner_name(texts);
    const PageHead head = make_page_head(name, name, saved.session.cached_ids(), 7);
    const std::string content = saved.bytes.substr(saved.bytes.size() - page_layout(saved.model.config, saved.kv).bytes(7));
    std::string bytes = saved.bytes.substr(0, 16);
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length).append(json);
    for (const std::byte byte : page_head_bytes(head, std::as_bytes(std::span(content)))) bytes += char(byte);
    const test::TemporaryFile path(bytes + content);
    const PromptCacheFile file(path.path(), saved.owner);
    CHECK(file.ids() == saved.session.cached_ids());
    CHECK(file.cold() == 0);
    std::vector<std::byte> read(content.size());
    file.read(0, read);
    CHECK(std::ranges::equal(read, std::as_bytes(std::span(content))));
}
