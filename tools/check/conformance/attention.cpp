// Rows of attention on compressed caches, against the reference on the same bytes. A case (AttentionCase) has types, head_dim,
// heads, a length and the tokens of the pass, and options: slots, separate rows, a window, slices of heads, scales of values, the
// cache of a head for multi-token prediction.
// Every type is read once as keys and once as values, but not in every pair, because drivers take a second to build each
// variant. The lengths are where loops end: one key, around a batch of keys, around a page, around the number of splits. Each
// kernel (attention, attention_coopmat, attention_decode) has rows with tunings that a device would not choose, so that other
// devices' variants are tested here.
// Limits differ by what a kernel rounds: fp32 sums in another order, fp16 queries and weights, fp16 sums of 16 products.
#include "base/ensure.h"
#include "model/reference/kernels.h"
#include "tools/check/conformance/attention_case.h"
#include "tools/check/conformance/rows.h"
#include "tools/check/conformance/subject.h"
#include <cmath>

namespace tq::conformance {
namespace {

// The limit of attention's error: Vulkan allows exp in the softmax to be off by some units in the last place, and sums are in
// another order. A score's own rounding errors grow with it.
double limit(float deviation) { return 5e-6 * double(deviation); }
// Queries and weights rounded to fp16: 2.5e-4 if rounded to nearest; a driver that truncates is off by twice as much.
double limit_of_matrices(float deviation) { return 1e-3 * double(deviation); }
// The same, and sums of 16 products in fp16: 1.1e-3 if rounded to nearest.
double limit_of_decode(float deviation) { return 3e-3 * double(deviation); }

// The cache is filled on the host (fill), and its bytes are uploaded as they are: storing has rows of its own, and a fault there
// is not to show here. The reference reads the same bytes. Partials are an output, too: its guard words must be whole, and what
// is before them is the kernel's own.
Outcome attention(Rig& rig, const gpu::Tuning& tuning, const AttentionCase& shape) {
    const uint32_t d = shape.head_dim, pages = (2 * shape.slots + 1) * pages_of(shape.length + page_tokens);
    const KvCodec keys = shape.kv.codec(5, 6, KvSide::key, d);
    host::HostCache host({shape.slots + 1, pages, pages * page_tokens, shape.kv.window}, shape.kv_heads,
                         {{keys, shape.kv.codec(5, 6, KvSide::value, d), {}, shape.mtp}}, shape.length);
    host.reserve(shape.slots, pages * page_tokens);
    host.advance(shape.slots, pages * page_tokens);
    const gpu::PassRows pass_rows = fill(rig, shape, host);
    const host::LayerCache& layer = host.layers()[0];
    const float deviation =
        shape.deviation / shape.stored / std::sqrt(float(d)) / (is_turboquant(keys.type) ? std::sqrt(keys.rotation.gain()) : 1);
    const auto q = rig.random.normals(size_t(pass_rows.count()) * shape.heads * d, deviation);
    std::vector<host::Row> rows;
    for (const gpu::Row& row : pass_rows.rows) rows.push_back({row.slot, row.position});
    host::PageScores page_scores;
    page_scores.resize(rows, shape.heads, layer.k.codec.scales() > 0);
    for (float& score : page_scores.values) score = rig.random.normal() * shape.deviation;
    std::vector<float> want(q.size());
    ref::attention(rig.pool, want, q, page_scores, layer, shape.heads, rows);
    std::vector<float> scales(size_t(shape.kv_heads) * d, 1.0f);
    if (shape.scaled) scales = random_value_scales(rig.random, shape.kv_heads, d);
    for (size_t i = 0; i < want.size(); i++) want[i] *= scales[i / d % shape.heads / (shape.heads / shape.kv_heads) * d + i % d];

    const gpu::DeviceStorage cache = on_device(rig, shape, layer, pass_rows);
    std::vector<std::vector<uint32_t>> tables;
    for (uint32_t slot = 0; slot < shape.slots; slot++) tables.emplace_back(host.table(slot).begin(), host.table(slot).end());
    const uint32_t count = pass_rows.count();
    const size_t partials_words = gpu::partials_bytes(tuning, 8 * count, shape.separate ? count : 1, shape.heads, d,
                                                      layer.window.has_value(), layer.has_sinks()) /
                                  4;
    std::vector<float> queries = q;
    const gpu::PageScores scores_at{page_scores.empty() ? 0 : uint32_t(queries.size()), page_scores.pages};
    queries.insert(queries.end(), page_scores.values.begin(), page_scores.values.end());
    queries.resize((queries.size() + 3) / 4 * 4);
    const Buffer y = rig.output(want.size()), q_buffer = rig.upload(queries), context = rig.context(pass_rows, tables),
                 v_scales = rig.upload(gpu::value_scale_floats(layer.v.codec, scales)), partials = rig.output(partials_words);
    rig.run(
        tuning, context, count, d,
        [&](gpu::Pass& pass) {
            gpu::attention(pass, y, {partials, 0, partials_words * 4}, q_buffer, scores_at, cache, 0, shape.heads, shape.kv_heads,
                           shape.scaled ? &v_scales : nullptr);
        },
        shape.slots, shape.separate);
    const gpu::AttentionPlan plan =
        gpu::attention_plan(tuning, {d, {shape.kv.k, shape.kv.v}, shape.heads / shape.kv_heads, shape.separate ? 1 : count});
    const auto limit_of = plan.kernel == gpu::AttentionKernel::coopmat  ? limit_of_matrices
                          : plan.kernel == gpu::AttentionKernel::decode ? limit_of_decode
                                                                        : limit;
    return worse(rig.check(y, want, limit_of(shape.deviation)), rig.check(partials, {}, 0));
}

void add_attention(Rows& rows, const NamedTuning& variant, const AttentionCase& shape, bool full = false,
                   const char* kernel = "attention") {
    rows.push_back({.kernel = kernel,
                    .variant = fmt::format("{}, {}", describe(shape.kv), variant.name),
                    .shape = shape.text(),
                    .run = [=, tuning = variant.tuning](Rig& rig) { return attention(rig, tuning, shape); },
                    .full_only = full});
}

KvOptions with_window(KvOptions kv, uint32_t tokens) {
    kv.window = tokens;
    return kv;
}

// Windows with codes: one token and blocks, shorter and longer than the window, before and after the ring wraps around, and after
// some tokens were removed again.
void add_window(Rows& rows, const std::vector<NamedTuning>& all) {
    const KvOptions few = with_window({KvType::tq4, KvType::tq4}, 5), many = with_window({KvType::tq3t, KvType::tq4t}, 33),
                    mixed = with_window({KvType::q8_0, KvType::f16}, 5);
    for (const NamedTuning& variant : all)
        for (const AttentionCase& shape : {AttentionCase{few, 128, 4, 2, 77, 1},
                                           {few, 128, 4, 2, 77, 13},
                                           {many, 128, 4, 2, 77, 9, 1},
                                           {many, 128, 4, 2, 270, 5}})
            add_attention(rows, variant, shape);
    for (const AttentionCase& shape : {AttentionCase{few, 128, 4, 2, 3, 1},
                                       {few, 128, 4, 2, 3, 3},
                                       {few, 128, 10, 2, 513, 1, 1},
                                       {many, 64, 4, 2, 77, 1},
                                       {many, 256, 4, 2, 40, 35},
                                       {mixed, 128, 4, 2, 77, 7},
                                       {many, 128, 4, 2, 77, 1, 2, 1, 70},
                                       {many, 128, 4, 2, 77, 7, 2, 1, 70}})
        add_attention(rows, all[0], shape);
}

// Numbers of splits below, at and above the number that the combine kernel adds at a time, and above a workgroup's invocations.
// 2051 keys in 256 splits leave some of them without a key. Their partials must count as nothing, and not as zeros of weight 1.
void add_splits(Rows& rows, const std::vector<NamedTuning>& all) {
    const KvOptions tq4{KvType::tq4, KvType::tq4}, unequal{KvType::tq4u, KvType::tq4};
    for (const NamedTuning& variant : all)
        for (const uint32_t splits : {7u, 8u, 9u, 64u, 65u, 256u}) {
            NamedTuning parts{fmt::format("{}, {} splits", variant.name, splits), variant.tuning};
            parts.tuning.splits = splits;
            add_attention(rows, parts, {tq4, 128, 4, 2, 2051, 1, 3});
            if (splits == 9 || splits == 65) add_attention(rows, parts, {unequal, 64, 2, 2, 2051, 1});
            if (splits == 8 || splits == 256) add_attention(rows, parts, {with_window(tq4, 5), 128, 4, 2, 2051, 1});
        }
}

// The cache of a head for multi-token prediction.
void add_mtp(Rows& rows, const NamedTuning& variant, const char* kernel, std::initializer_list<uint32_t> counts) {
    for (const KvOptions& kv : {KvOptions{KvType::tq4u, KvType::tq4}, KvOptions{KvType::f16, KvType::f16}})
        for (const uint32_t tokens : counts) {
            AttentionCase shape{kv, 256, 8, 2, 300, tokens};
            shape.mtp = true;
            shape.separate = tokens == 1;
            shape.slots = shape.separate ? 3 : 1;
            add_attention(rows, variant, shape, false, kernel);
        }
}

// Rows of several slots, in blocks and separate, with page tables that share pages, down to one position, which has fewer parts
// than the others; and lengths at the end of a page.
void add_slots(Rows& rows, const std::vector<NamedTuning>& all) {
    const KvOptions tq4{KvType::tq4, KvType::tq4}, mixed{KvType::f16, KvType::tq3},
        window = with_window({KvType::tq4, KvType::tq4}, 5), unequal{KvType::tq4u, KvType::tq4};
    const auto shape = [](const KvOptions& kv, uint32_t length, uint32_t tokens, uint32_t slots, bool separate) {
        AttentionCase out{kv, 128, 4, 2, length, tokens};
        out.slots = slots;
        out.separate = separate;
        return out;
    };
    for (const NamedTuning& variant : all)
        for (const AttentionCase& of : {shape(tq4, 300, 13, 3, false), shape(tq4, 300, 2, 4, true), shape(tq4, 112, 1, 4, true),
                                        shape(window, 300, 13, 3, false), shape(window, 300, 2, 4, true)})
            add_attention(rows, variant, of);
    for (const uint32_t length : {255u, 256u, 257u, 512u, 513u})
        for (const uint32_t tokens : {1u, 3u}) add_attention(rows, all[0], {tq4, 128, 4, 2, length, tokens});
    for (const AttentionCase& of : {shape(tq4, 1025, 1, 32, true), shape(tq4, 600, 1, 7, false), shape(mixed, 300, 13, 3, false),
                                    shape(mixed, 300, 3, 2, true), shape(unequal, 300, 3, 3, false),
                                    shape(unequal, 300, 2, 3, true), shape(window, 40, 35, 2, false)})
        add_attention(rows, all[0], of);
}

// attention_coopmat in workgroups of the device's own size, in smaller ones, and in ones whose queries are loaded in turns and
// whose subgroups store keys or values. Returns nothing for a device that does not multiply matrices in subgroups.
std::vector<NamedTuning> matrices(const Capabilities& device) {
    Capabilities gpu = device;
    gpu.type = DeviceType::discrete;
    gpu::Tuning own = gpu::choose_tuning(gpu);
    if (!own.matmul_coopmat || own.subgroup == 0 || own.matrix_subgroup < own.matrix.m) return {};
    own.attention_coopmat_rows = 4 * own.matrix.m; // also if it is not the device's choice
    gpu::Tuning few = own;
    few.attention_coopmat_rows = 2 * own.matrix.m;
    few.shared_bytes = 16384;
    few.splits = 3;
    gpu::Tuning many = own;
    many.attention_coopmat_rows = 8 * own.matrix.m;
    return {{"matrices", own}, {"few matrices", few}, {"many rows", many}};
}

// attention_decode with workgroups of eight and sixteen subgroups, of one with little shared memory, and of three.
void add_decode(Rows& rows, const Capabilities& device) {
    Capabilities gpu = device;
    gpu.type = DeviceType::discrete;
    gpu::Tuning own = without_matrices(gpu::choose_tuning(gpu));
    if (!own.float16 || own.subgroup == 0) {
        rows.push_back({.kernel = "attention_decode",
                        .variant = "every type",
                        .shape = "every shape",
                        .lacks = "the device has no fp16 arithmetic, or no subgroup operations"});
        return;
    }
    own.decode_subgroups = std::min(8u, device.max_workgroup_invocations / own.subgroup);
    gpu::Tuning few = own, odd = own, many = own;
    many.decode_subgroups = 2 * own.decode_subgroups;
    few.decode_subgroups = 1;
    few.decode_heads = 2;
    few.shared_bytes = 16384;
    few.splits = 3;
    odd.decode_subgroups = 3;
    odd.decode_heads = 8;
    odd.splits = 2;
    const auto row = [&](const char* name, const gpu::Tuning& tuning, const AttentionCase& shape, bool full = false) {
        if (shape.head_dim / 32 > tuning.subgroup) return; // a key has more parts than a subgroup has invocations
        const gpu::AttentionShape plain{shape.head_dim, {shape.kv.k, shape.kv.v}, shape.heads / shape.kv_heads, shape.tokens};
        ENSURE(gpu::attention_plan(tuning, plain).kernel == gpu::AttentionKernel::decode, "another kernel runs {}", shape.text());
        add_attention(rows, {name, tuning}, shape, full, "attention_decode");
    };
    const KvOptions tq4{KvType::tq4, KvType::tq4}, mixed{KvType::f16, KvType::tq3}, trellis{KvType::tq3t, KvType::tq2t};
    std::vector<KvType> types;
    for (const KvTypeName& type : kv_types) types.push_back(type.type);
    for (size_t i = 0; i < types.size(); i++) { // a CPU driver takes seconds for each
        row("eight subgroups", own, {{types[i], values_beside(types[(i + 7) % types.size()])}, 128, 4, 2, 77, 1});
        row("one subgroup", few, {{types[i], values_beside(types[i])}, 64, 4, 2, 50, 1}, device.type == DeviceType::cpu);
    }
    if (own.subgroup >= 8) add_mtp(rows, {"eight subgroups", own}, "attention_decode", {1});
    for (const uint32_t length : {1u, 2u, 15u, 16u, 17u, 63u, 64u, 65u, 129u, 513u})
        row("eight subgroups", own, {tq4, 128, 2, 1, length, 1, 1});
    if (many.decode_subgroups * many.subgroup <= device.max_workgroup_invocations)
        for (const AttentionCase& shape :
             {AttentionCase{tq4, 128, 4, 1, 1, 1}, {tq4, 128, 4, 1, 2051, 1, 3}, {tq4, 256, 4, 1, 513, 1}})
            row("sixteen subgroups", many, shape);
    for (const uint32_t group : {1u, 2u, 4u, 5u, 8u, 16u})
        for (const uint32_t d : {64u, 128u, 256u})
            for (const KvOptions& kv : {tq4, mixed}) {
                if (group == 5 && kv.k != kv.v)
                    continue; // keys and values that are multiplied differently: not 5 heads at a time
                row("three subgroups of a GPU", odd, {kv, d, 2 * group, 2, 100, 1}, group % 4 + d / 64 % 4 != 1 && group != 5);
            }
    for (const AttentionCase& shape : {AttentionCase{trellis, 256, 8, 2, 99, 1},
                                       {tq4, 128, 4, 2, 2051, 1, 3},
                                       {with_window(tq4, 5), 128, 4, 2, 77, 1},
                                       {with_window(tq4, 33), 128, 4, 2, 270, 1}})
        row("three subgroups of a GPU", odd, shape);
    for (const AttentionCase& shape : {AttentionCase{{KvType::tq4, KvType::tq4, RotationKind::haar}, 128, 4, 2, 77, 1},
                                       {tq4, 128, 4, 2, 77, 1, 2, 100},
                                       {tq4, 128, 4, 2, 77, 1, 2, 1, 0, 1e-3f},
                                       {tq4, 128, 4, 2, 77, 1, 2, 1, 0, 1e3f},
                                       {tq4, 128, 4, 2, 300, 1, 2, 1, 0, 1, true},
                                       {with_window(trellis, 33), 64, 4, 2, 77, 1},
                                       {with_window(tq4, 5), 128, 4, 2, 77, 1, 2, 1, 75}})
        row("three subgroups", odd, shape);
}

// Rows of attention_coopmat. Every tile has at least one row, and on a GPU every tile has all types and edge cases, too; on a CPU
// driver, which takes seconds to build each variant, one tile has these.
void add_matrices(Rows& rows, const Capabilities& device) {
    const std::vector<NamedTuning> all = matrices(device);
    const auto row = [&](const NamedTuning& variant, const AttentionCase& shape) {
        add_attention(rows, variant, shape, false, "attention_coopmat");
    };
    const KvOptions tq4{KvType::tq4, KvType::tq4}, mixed{KvType::f16, KvType::tq3}, unequal{KvType::tq4u, KvType::tq4};
    for (const NamedTuning& variant : all) {
        row(variant, {tq4, 128, 4, 2, 77, 33});
        if (&variant != &all[0])
            for (const AttentionCase& shape :
                 {AttentionCase{unequal, 256, 8, 2, 77, 9}, {with_window(unequal, 5), 256, 4, 1, 300, 33}})
                row(variant, shape);
        if (variant.name == std::string_view("many rows"))
            for (const AttentionCase& shape : {AttentionCase{with_window(unequal, 33), 64, 4, 2, 300, 50},
                                               {unequal, 64, 10, 2, 513, 30, 3},
                                               {mixed, 64, 4, 2, 70, 40}})
                row(variant, shape);
        if (device.type == DeviceType::cpu && &variant != &all[1]) continue; // a CPU driver takes seconds for each
        for (const KvTypeName& type : kv_types)
            if (is_turboquant(type.type) || type.type == KvType::f16)
                row(variant, {{type.type, values_beside(type.type)}, 64, 4, 2, 77, 9});
        for (const AttentionCase& shape : {AttentionCase{tq4, 128, 4, 2, 77, 9},
                                           {{KvType::tq5u, KvType::tq4}, 128, 4, 2, 77, 9},
                                           {tq4, 128, 10, 2, 513, 2, 1},
                                           {mixed, 64, 10, 2, 40, 11},
                                           {mixed, 64, 16, 2, 70, 33, 1},
                                           {tq4, 64, 6, 3, 33, 33},
                                           {tq4, 64, 2, 2, 2, 2},
                                           {tq4, 64, 4, 2, 77, 9, 2, 100},
                                           {{KvType::tq4, KvType::tq4, RotationKind::haar}, 64, 4, 2, 77, 5},
                                           {with_window(tq4, 5), 64, 4, 2, 77, 9},
                                           {with_window(tq4, 5), 64, 4, 2, 77, 2, 2, 1, 75},
                                           {tq4, 64, 8, 4, 4099, 2, 3}})
            row(variant, shape);
    }
    if (all.empty())
        rows.push_back({.kernel = "attention_coopmat",
                        .variant = "every type",
                        .shape = "every tile",
                        .lacks = TQ_COOPERATIVE_MATRIX ? "the device does not multiply matrices of fp16 in a subgroup"
                                                       : "the shader compiler of this build knows no cooperative matrices"});
}

} // namespace

void add_attention_of(Rows& rows, const Capabilities& device, const Subject& subject) {
    const NamedTuning own = variants(device)[0];
    for (const KvTypes& types : subject.caches) {
        const KvOptions kv{.k = types.k,
                           .v = types.v,
                           .rotation = subject.rotation,
                           .scale_rule = subject.scale_rule,
                           .window = subject.window && types.coded() ? 5u : 0u};
        const uint32_t d = subject.head_dim, heads = 2 * subject.group;
        AttentionCase separate{kv, d, heads, 2, 300, 2};
        separate.slots = 3;
        separate.separate = true;
        for (const AttentionCase& shape : {AttentionCase{kv, d, heads, 2, 300, 1}, {kv, d, heads, 2, 77, 33}, separate})
            add_attention(rows, own, shape);
    }
}

void add_attention(Rows& rows, const Capabilities& device) {
    const KvOptions tq4{KvType::tq4, KvType::tq4}, mixed{KvType::f16, KvType::tq3}, unequal{KvType::tq4u, KvType::tq4},
        blocks{KvType::q8_0, KvType::q4_0}, trellis{KvType::tq3t, KvType::tq2t}, nibble_trellis{KvType::tq4t, KvType::tq4t};
    std::vector<NamedTuning> all = variants(device);
    for (NamedTuning& variant : all) variant.tuning = without_matrices(variant.tuning);
    // Keys and values are read independently, and drivers take a second to build one of these: not every pair is needed, nor
    // every size of every type except in the full run.
    for (size_t i = 0; i < kv_types.size(); i++) {
        const KvType k = kv_types[i].type, v = values_beside(kv_types[(i + 7) % kv_types.size()].type);
        const uint32_t few = i % 2 == 0 ? 1 : 9;
        add_attention(rows, all[0], {{k, v}, 128, 4, 2, 77, few});
        add_attention(rows, all[0], {{k, values_beside(k)}, 128, 4, 2, 77, 10 - few}, true);
        for (const auto& [d, tokens] : {std::pair(64u, 1u), {256u, 3u}}) {
            const KvOptions kv = is_unequal(k) ? KvOptions{k, v} : KvOptions{v, k}; // values have no unequal bits
            add_attention(rows, all[0], {kv, d, 4, 2, 50, tokens}, i % 3 != (d == 64 ? 0 : 1));
        }
    }
    add_mtp(rows, all[0], "attention", {1, 9});
    add_attention(rows, all[0], {{KvType::tq4, KvType::tq4, RotationKind::haar}, 128, 4, 2, 77, 1});
    add_attention(rows, all[0], {{KvType::tq3, KvType::tq2t, RotationKind::haar}, 256, 4, 2, 77, 5});
    for (const uint32_t length : {1u, 2u, 15u, 16u, 17u, 63u, 64u, 65u, 513u})
        add_attention(rows, all[0], {tq4, 128, 2, 1, length, 1, 1});
    constexpr uint32_t groups[] = {1, 2, 4, 5, 8, 16}; // of all Qwen3 models
    for (const uint32_t group : {3u, 6u, 7u})          // of Qwen2's and Llama's
        for (const uint32_t tokens : {1u, 11u}) add_attention(rows, all[0], {tq4, 64, 2 * group, 2, 40, tokens});
    for (const uint32_t group : groups) add_attention(rows, all[0], {tq4, 128, 2 * group, 2, 40, 1});
    for (const uint32_t group : groups)
        for (const KvOptions& kv : {mixed, blocks}) add_attention(rows, all[0], {kv, 128, 2 * group, 2, 40, 11});
    for (const uint32_t d : {64u, 128u, 256u})
        for (const auto& [group, tokens] : {std::pair(1u, 1u), {5u, 7u}, {8u, 1u}})
            add_attention(rows, all[0], {tq4, d, 2 * group, 2, 50, tokens});
    for (const KvOptions& kv : {tq4, blocks, unequal}) // scales are denormal fp16 numbers
        add_attention(rows, all[0], {kv, 128, 4, 2, 77, 9, 2, 1, 0, 1e-4f});
    add_attention(rows, all[0], {tq4, 128, 6, 3, 33, 33}); // a whole prompt, and slices of 2 and 1 heads
    add_attention(rows, all[0], {tq4, 128, 16, 8, 4099, 1, 3});
    add_attention(rows, all[0], {tq4, 128, 40, 8, 32771, 1, 3}, true);
    const auto scaled = [](AttentionCase of) {
        of.scaled = true;
        return of;
    };
    add_attention(rows, all[0], scaled({{KvType::tq4, KvType::tq4, RotationKind::haar}, 128, 6, 3, 77, 3}));
    add_attention(rows, all[0], scaled({unequal, 64, 4, 2, 50, 1}));
    for (const NamedTuning& variant : all) add_attention(rows, variant, scaled({tq4, 128, 6, 3, 77, 3}));
    add_window(rows, all);
    add_splits(rows, all);
    add_slots(rows, all);
    for (const NamedTuning& variant : all) // without the right maximum exp overflows
        add_attention(rows, variant, {tq4, 128, 4, 2, 77, 1, 2, 100});
    for (size_t i = 1; i < all.size(); i++)
        for (const AttentionCase& shape :
             {AttentionCase{tq4, 128, 4, 2, 77, 1},
              {tq4, 128, 4, 2, 77, 33}, // the last splits are not visible to the first of these tokens
              {tq4, 128, 6, 3, 33, 33},
              {tq4, 128, 2, 1, 513, 1, 1},
              {blocks, 128, 10, 2, 40, 11},
              {mixed, 128, 10, 2, 40, 11},
              {unequal, 128, 4, 2, 40, 11},
              {unequal, 64, 2, 2, 50, 1},
              {tq4, 256, 16, 2, 50, 1},
              {trellis, 128, 4, 2, 77, 9},
              {nibble_trellis, 128, 4, 2, 77, 9}})
            add_attention(rows, all[i], shape);
    add_matrices(rows, device);
    add_decode(rows, device);
}

} // namespace tq::conformance
