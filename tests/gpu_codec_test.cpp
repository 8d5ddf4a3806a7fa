// What the device stores is what encode() stores, byte for byte, and the encoder's SPIR-V asks for nothing that Vulkan does not
// promise.
#include "model/cpu/reference.h"
#include "model/gpu/kernels.h"
#include "shaders.gen.h"
#include "tests/codec_vectors.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <limits>
#include <map>
#include <set>

using namespace tq;
using namespace tq::test;

namespace {

constexpr uint32_t kv_heads = 3, layer = 1, block = 64; // tokens that a recording takes at most
constexpr uint32_t untouched = 0xdeadbeef;              // what the cache holds at first

std::span<uint32_t> words(const Buffer& buffer) {
    return {reinterpret_cast<uint32_t*>(buffer.host().data()), size_t(buffer.bytes() / 4)};
}

Config config(uint32_t head_dim) {
    Config out{};
    out.num_hidden_layers = layer + 1;
    out.num_key_value_heads = kv_heads;
    out.head_dim = head_dim;
    return out;
}

// A cache of which one layer is in two slices, with heads 0, 1 and head 2, as where bindings are short.
struct Rig {
    Device& device;
    gpu::Tuning tuning;
    gpu::KvCache cache;
    std::vector<float> rope;
    Buffer x, weight, context;

    Rig(Device& device, uint32_t head_dim, KvOptions types, uint32_t capacity, uint32_t workgroup)
        : device(device), tuning(gpu::choose_tuning(device.capabilities())), cache(device, config(head_dim), types, capacity),
          rope(size_t(capacity) * head_dim), x(device.allocate("x", block * kv_heads * head_dim * 4, Memory::upload)),
          weight(device.allocate("weight", head_dim * 4, Memory::upload)),
          context(device.allocate("context", 16 + rope.size() * 4, Memory::upload)) {
        tuning.workgroup = std::min(workgroup, device.capabilities().max_workgroup_invocations);
        auto& slices = cache.layers[layer].slices;
        slices.clear();
        for (const auto& [first, heads] : {std::pair(0u, 2u), std::pair(2u, 1u)}) {
            const gpu::CacheLayout layout(types, head_dim, heads, capacity);
            slices.push_back({device.allocate("slice", uint64_t(layout.words) * 4), first, heads, layout});
            fill(slices.back().buffer);
        }
        for (uint32_t position = 0, i = 0; position < capacity; position++)
            for (uint32_t pair = 0; pair < head_dim / 2; pair++) {
                rope[i++] = float(std::cos(position * std::pow(1e4, -2.0 * pair / head_dim)));
                rope[i++] = float(std::sin(position * std::pow(1e4, -2.0 * pair / head_dim)));
            }
        std::memcpy(context.host().data() + 16, rope.data(), rope.size() * 4);
    }

    void fill(const Buffer& buffer) const {
        const Buffer pattern = device.allocate("pattern", buffer.bytes(), Memory::upload);
        std::ranges::fill(words(pattern), untouched);
        Recorder recorder(device);
        recorder.copy(buffer, pattern);
        recorder.finish().run();
    }

    std::vector<uint32_t> contents(const Buffer& buffer) const {
        const Buffer copy = device.allocate("copy", buffer.bytes(), Memory::readback);
        Recorder recorder(device);
        recorder.copy(copy, buffer);
        recorder.finish().run();
        return {words(copy).begin(), words(copy).end()};
    }

    // Appends vectors [tokens][kv_heads] at `position` with one recording for all blocks, as a forward pass does.
    void append(KvSide side, std::span<const float> vectors, uint32_t position, std::span<const uint32_t> block_tokens,
                float eps = 0) {
        Recorder recorder(device);
        const gpu::Step step{0, block};
        gpu::Pass pass{recorder, tuning, context, block, cache.head_dim, step};
        if (side == KvSide::key)
            gpu::k_append(pass, cache, layer, x, weight, kv_heads, eps);
        else
            gpu::v_append(pass, cache, layer, x, weight, kv_heads);
        Commands commands = recorder.finish();
        for (const uint32_t tokens : block_tokens) {
            const auto part = vectors.first(size_t(tokens) * kv_heads * cache.head_dim);
            std::memcpy(x.host().data(), part.data(), part.size_bytes());
            words(context)[0] = position;
            words(context)[1] = tokens;
            commands.run();
            vectors = vectors.subspan(part.size());
            position += tokens;
        }
    }
};

// Where head `head` at `position` is stored, in words of its slice; `at` is its number among the slice's vectors.
struct Place {
    size_t slice;
    uint32_t at, codes, scales;

    Place(const gpu::KvCache& cache, KvSide side, uint32_t head, uint32_t position)
        : slice(head / 2), at(head % 2 * cache.capacity + position) {
        const bool is_key = side == KvSide::key;
        const gpu::CacheLayout& layout = cache.layers[layer].slices[slice].layout;
        codes =
            (is_key ? layout.k_codes : layout.v_codes) + at * code_words(is_key ? cache.types.k : cache.types.v, cache.head_dim);
        scales = is_key ? layout.k_scales : layout.v_scales;
    }
};

// The slices as encode() fills them.
struct Expected {
    const gpu::KvCache& cache;
    std::vector<std::vector<uint32_t>> slices;

    explicit Expected(const gpu::KvCache& cache) : cache(cache) {
        for (const auto& slice : cache.layers[layer].slices) slices.emplace_back(slice.layout.words, untouched);
    }

    void append(KvSide side, std::span<const float> vectors, uint32_t position) {
        const uint32_t d = cache.head_dim;
        const KvType type = side == KvSide::key ? cache.types.k : cache.types.v;
        for (uint32_t i = 0; i < vectors.size() / d; i++) {
            const Place place(cache, side, i % kv_heads, position + i / kv_heads);
            std::vector<uint32_t>& slice = slices[place.slice];
            const auto codes = std::span(slice).subspan(place.codes, code_words(type, d));
            const uint32_t scale = encode(type, codes, vectors.subspan(size_t(i) * d, d), rotation_signs(layer, side));
            if (!is_turboquant(type)) continue;
            uint32_t& pair = slice[place.scales + place.at / 2];
            pair = place.at % 2 == 0 ? (pair & 0xffff0000) | scale : (pair & 0xffff) | scale << 16;
        }
    }

    size_t differing_words(const Rig& rig) const {
        size_t count = 0;
        for (size_t s = 0; s < slices.size(); s++) {
            const std::vector<uint32_t> stored = rig.contents(cache.layers[layer].slices[s].buffer);
            REQUIRE(stored.size() == slices[s].size());
            for (size_t i = 0; i < stored.size(); i++) count += stored[i] != slices[s][i] ? 1 : 0;
        }
        return count;
    }
};

constexpr uint32_t block_tokens[] = {1, 3, 64, 7, 1, 1, 64, 64, 31, 64, 63, 2, 5}, all_tokens = 370;

} // namespace

TEST_CASE("values: the device's bytes are encode()'s, for every kind of vector") {
    Device device;
    uint32_t workgroup = 16; // it changes nothing
    for (const uint32_t d : {64u, 128u, 256u})
        for (const KvType type : {KvType::tq4, KvType::tq3, KvType::tq2, KvType::f16, KvType::f32}) {
            CAPTURE(d);
            CAPTURE(std::string(name(type)));
            Rig rig(device, d, {KvType::tq3, type}, all_tokens + 5, workgroup);
            workgroup = workgroup == 128 ? 4 : workgroup * 2;
            const Signs& signs = rig.cache.layers[layer].v_signs;
            const std::vector<float> x = codec_vectors(all_tokens * kv_heads, d, signs, d),
                                     y = codec_vectors(20 * kv_heads, d, signs, 7);
            Expected expected(rig.cache);
            expected.append(KvSide::value, x, 1);
            rig.append(KvSide::value, x, 1, block_tokens);
            CHECK(expected.differing_words(rig) == 0);

            // After the sequence was cut at token 18, others take the places.
            expected.append(KvSide::value, y, 18);
            rig.append(KvSide::value, y, 18, std::array{13u, 7u});
            CHECK(expected.differing_words(rig) == 0);
        }
}

TEST_CASE("values: ties on every threshold") {
    Device device;
    Random random{3};
    for (const uint32_t d : {64u, 128u, 256u})
        for (const KvType type : {KvType::tq4, KvType::tq3, KvType::tq2}) {
            CAPTURE(d);
            CAPTURE(std::string(name(type)));
            Rig rig(device, d, {KvType::f16, type}, block, 32);
            std::vector<float> x(size_t(block) * kv_heads * d);
            for (size_t i = 0; i < x.size() / d; i++)
                threshold_tie(std::span(x).subspan(i * d, d), type, uint32_t(i) % ((1u << (bits(type) - 1)) - 1),
                              rig.cache.layers[layer].v_signs, random);
            Expected expected(rig.cache);
            expected.append(KvSide::value, x, 0);
            rig.append(KvSide::value, x, 0, std::array{block});
            CHECK(expected.differing_words(rig) == 0);
        }
}

TEST_CASE("values that are not finite are found where they are") {
    Device device;
    for (const KvType type : {KvType::tq4, KvType::tq3, KvType::tq2, KvType::f16, KvType::f32}) {
        CAPTURE(std::string(name(type)));
        Rig rig(device, 128, {KvType::f32, type}, 9, 32);
        rig.cache.layers[0].slices.clear(); // nothing is stored there
        std::vector<float> x(9 * kv_heads * 128, 0.5f);
        x[(5 * kv_heads + 2) * 128 + 127] = -std::numeric_limits<float>::infinity();
        rig.append(KvSide::key, std::vector<float>(x.size(), 1.0f), 0, std::array{9u}, 1e-6f);
        rig.append(KvSide::value, x, 0, std::array{9u});
        CHECK(rig.cache.find_nonfinite(device, 5) == std::nullopt);
        CHECK(rig.cache.find_nonfinite(device, 6) == "the value of layer 1, kv head 2, position 5");
    }
}

TEST_CASE("keys: norm and RoPE as on the CPU, then encode()'s bytes of them") {
    Device device;
    ThreadPool pool(1);
    constexpr uint32_t tokens = 43, capacity = 51, position = 5, appended[] = {1, 33, 9};
    constexpr float eps = 1e-6f;
    for (const uint32_t d : {64u, 128u, 256u}) {
        CAPTURE(d);
        Random random{d};
        std::vector<float> x(size_t(tokens) * kv_heads * d), w(d), keys;
        for (size_t i = 0; i < x.size(); i++) x[i] = random.normal() * std::ldexp(1.0f, int(i / d % 20) - 10);
        for (float& v : w) v = 1 + random.normal() / 8;
        const auto append = [&](KvType type) {
            Rig rig(device, d, {type, KvType::tq2}, capacity, 32);
            std::memcpy(rig.weight.host().data(), w.data(), w.size() * 4);
            rig.append(KvSide::key, x, position, appended, eps);
            return rig;
        };

        const Rig rig = append(KvType::f32);
        const cpu::CacheSide reference(KvType::f32, KvSide::key, layer, kv_heads, d, capacity);
        ref::kv_append(pool, reference, x, w, {rig.rope, position}, eps);
        const std::vector<uint32_t> slices[] = {rig.contents(rig.cache.layers[layer].slices[0].buffer),
                                                rig.contents(rig.cache.layers[layer].slices[1].buffer)};
        float error = 0;
        for (uint32_t i = 0; i < tokens * kv_heads; i++) {
            const Place place(rig.cache, KvSide::key, i % kv_heads, position + i / kv_heads);
            for (uint32_t c = 0; c < d; c++) {
                keys.push_back(std::bit_cast<float>(slices[place.slice][place.codes + c]));
                const auto right = std::bit_cast<float>(reference.vector(i % kv_heads, position + i / kv_heads)[c]);
                error = std::max(error, std::fabs(keys.back() - right)); // of components around 1
            }
        }
        CHECK(error < 1e-5f);

        // The same shader with another type: the same keys, since nothing in it may be contracted.
        for (const KvType type : {KvType::tq4, KvType::tq3, KvType::tq2, KvType::f16}) {
            CAPTURE(std::string(name(type)));
            const Rig compressed = append(type);
            Expected expected(compressed.cache);
            expected.append(KvSide::key, keys, position);
            CHECK(expected.differing_words(compressed) == 0);
        }
    }
}

// Vulkan promises correct rounding of fp32 addition, subtraction and multiplication alone. Random vectors hardly show a
// contraction, so the encoder's instructions are read; norm and RoPE of keys included, which have one division and one inverse
// square root.
TEST_CASE("SPIR-V: no sum or product may be contracted, and nothing else computes floats") {
    enum : uint32_t { ext_inst = 12, decorate = 71, no_contraction = 42, inverse_sqrt = 32, f_abs = 4, u_min = 38 };
    enum : uint32_t { f_add = 129, f_sub = 131, f_mul = 133, f_div = 136, f_rem = 140, dot = 148 };
    enum : uint32_t { group_all = 261, group_last = 271, group_non_uniform = 333, group_non_uniform_last = 366 };
    const std::span<const uint32_t> code = shader::kv_append.code;
    std::set<uint32_t> never_contracted, extended; // ids; instructions of GLSL.std.450
    std::map<uint32_t, uint32_t> arithmetic;       // by result
    std::map<uint32_t, int> count;                 // of opcodes
    int inverse_square_roots = 0;
    for (size_t at = spirv::header_words; at < code.size(); at += code[at] >> 16) {
        REQUIRE((code[at] >> 16) != 0);
        const uint32_t op = code[at] & 0xffff;
        count[op]++;
        if (op == decorate && code[at + 2] == no_contraction) never_contracted.insert(code[at + 1]);
        if (op == f_add || op == f_sub || op == f_mul) arithmetic[code[at + 2]] = op;
        if (op == ext_inst) {
            extended.insert(code[at + 4]);
            if (code[at + 4] == inverse_sqrt) inverse_square_roots++;
        }
        CHECK_FALSE((op >= f_rem && op <= dot));
        CHECK_FALSE(((op >= group_all && op <= group_last) || (op >= group_non_uniform && op <= group_non_uniform_last)));
    }
    for (const auto& [result, op] : arithmetic) {
        CAPTURE(op);
        CHECK(never_contracted.contains(result));
    }
    CHECK(extended == std::set<uint32_t>{f_abs, inverse_sqrt, u_min});
    CHECK((count[f_add] >= 3 && count[f_sub] >= 2 && count[f_mul] >= 6));
    CHECK((count[f_div] == 1 && inverse_square_roots == 1));
}
