// What a full-precision window is worth behind a beginning of the prompt that was found in the prefix cache, whose pages have
// codes only: on the demo model, against a run of the whole prompt and against a cache without a window.
//   TQ_TEXT=FILE ./tests-tools-quality --source-file="*window_found*" -s
// prints that for each 2048 tokens of a text.
#include "model/cpu/forward.h"
#include "model/model.h"
#include "tests/support/text.h"
#include "tools/quality/calibration_text.h"
#include "tools/quality/divergence.h"
#include <array>
#include <cstdlib>
#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace tq;
using namespace tq::quality;

namespace {

constexpr uint32_t window = 64, chunk = 2048, behind_cut = 3 * window;
using Logits = std::vector<std::vector<float>>;   // of each token
using Means = std::array<std::vector<double>, 3>; // the KL of the tokens behind a cut, a window at a time

std::unique_ptr<Forward> make(const Model& model, KvTypes types, uint32_t tokens) {
    ForwardOptions options{.kv = {types.k, types.v}, .context_size = chunk, .threads = 2};
    options.kv.window = tokens;
    return make_cpu_forward(model.config, model.weights, options);
}

Logits run(Forward& forward, std::span<const uint32_t> ids) {
    Logits all;
    forward.run_all(ids, [&](uint32_t, std::span<const float> logits) { all.emplace_back(logits.begin(), logits.end()); });
    return all;
}

// Makes `to` what a prefix cache makes of the first `cut` tokens of `from`.
void find(Forward& to, const Forward& from, uint32_t cut) {
    to.cache().restore(0, cut, [&](uint32_t at, std::span<std::byte> bytes) {
        from.cache().read_page(from.cache().table(0)[at / page_tokens], std::min(page_tokens, cut - at), bytes);
    });
}

void add(Means& to, uint32_t behind, const std::vector<float>& logits, const std::vector<float>& exact) {
    to[behind / window].push_back(divergence(logits, exact, 0).kl);
}

} // namespace

TEST_CASE("behind what is found a window is soon worth what it is in a run of the whole prompt") {
    const Model model = load_model(std::filesystem::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf");
    const char* file = std::getenv("TQ_TEXT");
    const std::vector<uint32_t> ids = model.tokenizer.encode(file ? test::slurp(file) : std::string(calibration_text));
    const KvTypes types{KvType::tq4, KvType::tq4};
    const auto exact = make(model, {KvType::f16, KvType::f16}, 0), none = make(model, types, 0),
               cold = make(model, types, window), found = make(model, types, window);
    Means of_none, of_cold, of_found;
    for (size_t at = 0; at + chunk <= ids.size(); at += chunk) {
        const std::span<const uint32_t> text = std::span(ids).subspan(at, chunk);
        for (Forward* forward : {exact.get(), none.get(), cold.get()}) forward->truncate(0);
        const Logits right = run(*exact, text), without = run(*none, text), whole = run(*cold, text);
        for (uint32_t cut = 256; cut + behind_cut <= chunk; cut += 128) {
            find(*found, *cold, cut);
            const Logits behind = run(*found, text.subspan(cut, behind_cut));
            for (uint32_t i = 0; i < behind_cut; i++) {
                add(of_none, i, without[cut + i], right[cut + i]);
                add(of_cold, i, whole[cut + i], right[cut + i]);
                add(of_found, i, behind[i], right[cut + i]);
            }
        }
    }
    for (size_t part = 0; part < 3; part++) {
        const double n = mean(of_none[part]).value, c = mean(of_cold[part]).value, f = mean(of_found[part]).value;
        const std::string figures =
            fmt::format("KL without a window {:.2e}, with one {:.2e}, behind what was found {:.2e}", n, c, f);
        CAPTURE(part);
        CAPTURE(figures);
        MESSAGE(figures);
        CHECK(f < (part == 0 ? 0.75 : 0.5) * n);
        if (part > 0) CHECK(f == doctest::Approx(c).epsilon(0.1));
    }
}
