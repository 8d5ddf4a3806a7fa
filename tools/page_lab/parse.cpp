// The language of chains: "mean+rot+channels+levels3".
#include "base/error.h"
#include "tools/page_lab/leaves.h"
#include "tools/page_lab/transforms.h"
#include <charconv>
#include <functional>
#include <optional>

namespace tq::page_lab {
namespace {

// A word, and the numbers that ':' separates from it and from each other.
struct Word {
    std::string name;
    std::vector<double> numbers;

    uint32_t integer(size_t i, uint32_t least, uint32_t most, std::optional<uint32_t> otherwise = {}) const {
        if (i >= numbers.size() && otherwise) return *otherwise;
        if (i >= numbers.size() || numbers[i] < least || numbers[i] > most || numbers[i] != double(uint32_t(numbers[i])))
            fail("{} takes whole numbers, the {}. from {} to {}", name, i + 1, least, most);
        return uint32_t(numbers[i]);
    }
    double number(size_t i, double otherwise) const { return i < numbers.size() ? numbers[i] : otherwise; }
};

Word parse_word(std::string_view text) {
    Word word;
    size_t at = std::min(text.find(':'), text.size());
    word.name = text.substr(0, at);
    while (at < text.size()) {
        const size_t next = std::min(text.find(':', at + 1), text.size());
        double number = 0;
        const auto [stop, error] = std::from_chars(text.data() + at + 1, text.data() + next, number);
        if (error != std::errc() || stop != text.data() + next) fail("{} has something else than a number after a colon", text);
        word.numbers.push_back(number);
        at = next;
    }
    return word;
}

using MakeTransform = TileCodecPtr (*)(TileCodecPtr inner);
struct Transform {
    const char* name;
    MakeTransform make;
};
constexpr Transform transforms[] = {
    {"mean", without_mean},
    {"rot", rotated},
    {"groups", rotated_in_groups},
    {"channels", [](TileCodecPtr inner) { return with_gains({.channels = true, .tokens = false}, std::move(inner)); }},
    {"channels8",
     [](TileCodecPtr inner) { return with_gains({.channels = true, .tokens = false, .logarithmic = true}, std::move(inner)); }},
    {"conditioned",
     [](TileCodecPtr inner) { return with_gains({.channels = true, .tokens = false, .by_queries = true}, std::move(inner)); }},
    {"tokens", [](TileCodecPtr inner) { return with_gains({.channels = false, .tokens = true}, std::move(inner)); }},
    {"tokens-ls",
     [](TileCodecPtr inner) { return with_gains({.channels = false, .tokens = true, .least_squares = true}, std::move(inner)); }},
    {"both", [](TileCodecPtr inner) { return with_gains({.channels = true, .tokens = true, .steps = 16}, std::move(inner)); }},
    {"both-ls",
     [](TileCodecPtr inner) {
         return with_gains({.channels = true, .tokens = true, .steps = 16, .least_squares = true}, std::move(inner));
     }},
    {"balanced",
     [](TileCodecPtr inner) {
         return with_gains({.channels = true, .tokens = true, .steps = 16, .kept = false}, std::move(inner));
     }},
    {"balanced8",
     [](TileCodecPtr inner) {
         return with_gains({.channels = true, .tokens = true, .steps = 16, .kept = false, .logarithmic = true}, std::move(inner));
     }},
};

TileCodecPtr make_leaf(const Word& w) {
    if (w.name == "unit") return unit_levels(w.integer(0, 1, 8));
    if (w.name == "fitted") return fitted_levels(w.integer(0, 1, 8));
    if (w.name == "levels") return token_codec(KvType(KV_TYPE(KV_TURBOQUANT, w.integer(0, 2, 6), 0u, 1u, 0u)), true);
    if (w.name == "trellis") return token_codec(KvType(KV_TRELLIS_TYPE(w.integer(0, 2, 4))), true);
    if (w.name == "long-tokens" || w.name == "long-channels") {
        const uint32_t bits = w.integer(0, 1, 4), memory = w.integer(1, 1, 10),
                       entering = w.integer(2, 1, bits, std::min(bits, 2u));
        return (w.name == "long-tokens" ? trellis_along_tokens : trellis_along_channels)(bits, memory, entering);
    }
    if (w.name == "rtn-channels") return round_to_nearest(w.integer(0, 1, 8), true);
    if (w.name == "rtn-tokens") return round_to_nearest(w.integer(0, 1, 8), false);
    if (w.name == "allocated") return allocated_levels(w.number(0, 3), w.integer(1, 0, 8, 0), false);
    if (w.name == "weighted") return allocated_levels(w.number(0, 3), w.integer(1, 0, 8, 0), true);
    if (w.name == "feedback") return feedback_codec(w.integer(0, 1, 8), Metric::calibrated, w.number(1, 0.1));
    if (w.name == "page-feedback") return feedback_codec(w.integer(0, 1, 8), Metric::page, w.number(1, 0.1));
    if (w.name == "kvarn") return kvarn(w.integer(0, 1, 8));
    if (w.name == "noise") return noise(w.number(0, 0.01));
    return token_codec(parse_kv_type(w.name), false);
}

} // namespace

TileCodecPtr parse_tile_codec(std::string_view text) {
    const size_t plus = text.find('+');
    const Word word = parse_word(text.substr(0, plus));
    if (plus == std::string_view::npos) return make_leaf(word);
    if (word.name == "basis") return in_calibrated_basis(word.number(0, 0.1), parse_tile_codec(text.substr(plus + 1)));
    for (const Transform& t : transforms)
        if (word.name == t.name) return t.make(parse_tile_codec(text.substr(plus + 1)));
    fail("there is no transform {}: see tools/page_lab/README.md", word.name);
}

} // namespace tq::page_lab
