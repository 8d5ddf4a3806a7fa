#include "tests/support/codec_golden.h"
#include "base/error.h"
#include "tools/check/conformance/vectors/codec_vectors.h"
#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <utility>

namespace tq::test {
using namespace conformance;

namespace {

// A file of little-endian 32-bit words. First "TQGV" and the number of sets; a set is head_dim, the number of vectors, their
// words, and then for every codec of all_codecs(head_dim, layer, side) the codes and scales (two to a word, padded with 0).
constexpr uint32_t magic = 0x56475154, layer = 3;
constexpr KvSide side = KvSide::value;

struct Set {
    uint32_t head_dim, seed;
    std::vector<uint32_t> kinds; // of codec_vectors
};

std::vector<Set> sets() { // few, so that the file stays small: the kinds that are at a limit
    return {{64, 1, {5, 8, 9, 11, 12, 16, 17, 17, 19}}, {128, 2, {0, 2, 4, 16, 17, 20}}, {256, 3, {3, 13}}};
}

std::vector<float> vectors_of(const Set& set) {
    const Signs signs = rotation_signs(layer, side);
    std::vector<float> out;
    for (uint32_t n = 0; n < set.kinds.size(); n++) { // the n-th round's vector, so that no two of a kind are the same
        const std::vector<float> all = codec_vectors((n + 1) * codec_vector_kinds, set.head_dim, signs, set.seed);
        const auto first = all.begin() + ptrdiff_t((n * codec_vector_kinds + set.kinds[n]) * set.head_dim);
        out.insert(out.end(), first, first + ptrdiff_t(set.head_dim));
    }
    return out;
}

// Reads the words of a file in order; Error if it ends too early.
class Words {
  public:
    explicit Words(const std::filesystem::path& path) : path_(path.string()) {
        std::ifstream file(path, std::ios::binary);
        bytes_.assign(std::istreambuf_iterator<char>(file), {});
    }
    uint32_t next() {
        if (at_ + 4 > bytes_.size()) fail("{} ends after {} bytes: write it with make_codec_golden", path_, bytes_.size());
        uint32_t word = 0;
        for (uint32_t i = 0; i < 4; i++) word |= uint32_t(uint8_t(bytes_[at_++])) << (8 * i);
        return word;
    }

  private:
    std::string path_, bytes_;
    size_t at_ = 0;
};

} // namespace

std::vector<KvCodec> all_codecs(uint32_t head_dim, uint32_t layer, KvSide side) {
    const Rotation haar = make_rotation(RotationKind::haar, layer, side, head_dim);
    std::vector<KvCodec> out;
    for (const KvTypeName& known : kv_types) {
        const bool has_rule = is_turboquant(known.type);
        for (const ScaleRule rule : {ScaleRule::unbiased, ScaleRule::norm, ScaleRule::least_squares}) {
            if (rule != ScaleRule::unbiased && !has_rule) continue;
            out.push_back({known.type, rule, make_rotation(RotationKind::wht, layer, side, head_dim, known.type)});
            if (has_rule && !is_unequal(known.type)) out.push_back({known.type, rule, haar});
        }
    }
    return out;
}

std::string describe(const KvCodec& codec) {
    return fmt::format("{}, head_dim {}, {}, {}", name(codec.type), codec.head_dim(), name(codec.rotation.kind),
                       name(codec.scale_rule));
}

Stored encoded(const KvCodec& codec, std::span<const float> x) {
    const size_t d = codec.head_dim(), count = x.size() / d;
    Stored out{std::vector<uint32_t>(count * codec.words()), std::vector<uint16_t>(count * codec.scales())};
    for (size_t n = 0; n < count; n++)
        encode(codec, std::span(out.codes).subspan(n * codec.words(), codec.words()),
               std::span(out.scales).subspan(n * codec.scales(), codec.scales()), x.subspan(n * d, d));
    return out;
}

std::vector<float> decoded(const KvCodec& codec, const Stored& stored) {
    const size_t d = codec.head_dim(), count = stored.codes.size() / codec.words();
    std::vector<float> x(count * d);
    for (size_t n = 0; n < count; n++)
        decode(codec, std::span(x).subspan(n * d, d), std::span(stored.codes).subspan(n * codec.words(), codec.words()),
               std::span(stored.scales).subspan(n * codec.scales(), codec.scales()));
    return x;
}

std::vector<GoldenVectors> make_codec_golden() {
    std::vector<GoldenVectors> out;
    for (const Set& set : sets()) {
        const std::vector<float> x = vectors_of(set);
        for (const KvCodec& codec : all_codecs(set.head_dim, layer, side)) out.push_back({codec, x, encoded(codec, x)});
    }
    return out;
}

void write_codec_golden(const std::filesystem::path& path, const std::vector<GoldenVectors>& golden) {
    std::ofstream file(path, std::ios::binary);
    const auto put = [&](uint32_t word) {
        for (int i = 0; i < 4; i++) file.put(char(word >> (8 * i)));
    };
    put(magic);
    put(uint32_t(sets().size()));
    uint32_t head_dim = 0;
    for (const GoldenVectors& g : golden) {
        if (std::exchange(head_dim, g.codec.head_dim()) != g.codec.head_dim()) {
            put(head_dim);
            put(uint32_t(g.x.size() / head_dim));
            for (const float v : g.x) put(std::bit_cast<uint32_t>(v));
        }
        for (const uint32_t word : g.stored.codes) put(word);
        for (size_t i = 0; i < g.stored.scales.size(); i += 2)
            put(g.stored.scales[i] | (i + 1 < g.stored.scales.size() ? uint32_t(g.stored.scales[i + 1]) << 16 : 0));
    }
    if (!file.flush()) fail("cannot write {}", path.string());
}

std::vector<GoldenVectors> read_codec_golden(const std::filesystem::path& path) {
    Words words(path);
    if (words.next() != magic) fail("{} holds no golden vectors: write it with make_codec_golden", path.string());
    std::vector<GoldenVectors> out;
    for (uint32_t sets_left = words.next(); sets_left > 0; sets_left--) {
        const uint32_t head_dim = words.next();
        std::vector<float> x(size_t(words.next()) * head_dim);
        for (float& v : x) v = std::bit_cast<float>(words.next());
        for (const KvCodec& codec : all_codecs(head_dim, layer, side)) {
            const size_t count = x.size() / head_dim;
            Stored stored{std::vector<uint32_t>(count * codec.words()), std::vector<uint16_t>(count * codec.scales())};
            for (uint32_t& word : stored.codes) word = words.next();
            uint32_t pair = 0;
            for (size_t i = 0; i < stored.scales.size(); i++) {
                pair = i % 2 == 0 ? words.next() : pair >> 16;
                stored.scales[i] = uint16_t(pair);
            }
            out.push_back({codec, x, std::move(stored)});
        }
    }
    return out;
}

} // namespace tq::test
