// bench --kernels: storing and attention alone, on synthetic keys and values, by cache type and depth. A row has the time of one
// call (mean of the samples, each of at least 10 ms, in which a call is repeated), and the bytes that it must move: the cache's
// for attention, fp32 in and codes out for storing. From these follow GB/s and the share of the measured bandwidth.
// Depths are reached cheaply: `first_block` tokens are stored, and their entries repeated, as times do not depend on the values.
// Before anything is timed the result is compared with the reference at the least depth.
#include "tools/tq-run/bench/kernels.h"
#include "base/interrupt.h"
#include "base/stopwatch.h"
#include "base/system_memory.h"
#include "model/load.h"
#include "tools/tq-run/bench/report.h"
#include "tools/tq-run/bench/run.h"
#include "tools/tq-run/engine/setup.h"
#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

namespace tq::bench {
namespace {

using conformance::LogitsCheck;

constexpr uint32_t min_length = 33; // of the comparison with the reference: one position would need no softmax
constexpr double kernel_seconds = 0.01;

// A line of the table.
struct KernelTime {
    const char* kernel;
    uint32_t depth, tokens;
    std::vector<double> seconds; // of one call each
    uint64_t bytes, flops;       // of one call
};

std::vector<double> repeated(const Arguments& arguments, const std::function<double()>& seconds) {
    return repeat(
        arguments, [](const std::string&) {}, [&] { return interrupted() ? std::nullopt : std::optional(seconds()); });
}

// The floating-point operations of storing are an estimate (30 for each value): norm, RoPE, rotation and search of a code differ
// by type.
KernelTime time_append(CacheKernels& kernels, const CacheShape& shape, uint32_t tokens, const Arguments& arguments) {
    const uint64_t values = uint64_t(tokens) * shape.kv_heads * shape.head_dim * 2;
    return {.kernel = "kv_append",
            .depth = 0,
            .tokens = tokens,
            .seconds = repeated(arguments, [&] { return kernels.append_seconds(tokens); }),
            .bytes = values * 4 + tokens * shape.token_bytes(),
            .flops = values * 30};
}

KernelTime time_attention(CacheKernels& kernels, const CacheShape& shape, uint32_t depth, const Arguments& arguments) {
    kernels.fill(depth + 1);
    kernels.attention(depth + 1);
    return {.kernel = "attention",
            .depth = depth,
            .tokens = 1,
            .seconds = repeated(arguments, [&] { return kernels.attention_seconds(); }),
            .bytes = (depth + 1) * shape.token_bytes(),
            .flops = 4ull * shape.heads * shape.head_dim * (depth + 1)};
}

// Throws Error when the attention of the shallowest depth is wrong.
LogitsCheck check(CacheKernels& kernels, const CacheShape& shape, uint32_t depth, const std::string& where) {
    const uint32_t length = std::max(depth + 1, min_length);
    kernels.fill(length);
    const LogitsCheck check{conformance::relative_error(kernels.attention(length), reference_attention(shape, length)),
                            conformance::attention_bounds(shape.kv), 1};
    if (!check.passed())
        fail("attention over {} tokens in {} on {} is wrong, so nothing is timed: its relative error against the reference is "
             "{:.3g}, and at most {:.0e} is allowed. tq-run conformance finds the kernel; --no-check times it anyway",
             length, describe(shape.kv), where, check.error, check.bounds.limit);
    return check;
}

struct Measured {
    CacheShape shape;
    std::optional<LogitsCheck> check;
    std::vector<KernelTime> rows;
};

// Throws Error if the host or the device cannot hold that many tokens: the host holds a rotary table of them, and on the CPU
// the cache too, twice while it is checked.
void require_room(const Setup& setup, const CacheShape& shape, uint32_t length) {
    const uint64_t here = length * (8ull * shape.head_dim + (setup.device ? 0 : 2 * shape.token_bytes())),
                   memory = physical_memory_bytes();
    const uint64_t there = setup.device ? length * (4ull * shape.head_dim + shape.token_bytes()) : 0;
    if (here > memory / 2 || (setup.device && there > setup.device->available_bytes()))
        fail("the kernels of {} at {} tokens need {:.1f} MiB of this machine and {:.1f} MiB of the device, which is more than "
             "they have: choose a smaller depth with -d",
             describe(shape.kv), length, double(here) / (1 << 20), double(there) / (1 << 20));
}

// Complete unless Ctrl-C stopped it.
Measured measure(const Arguments& arguments, Setup& setup, const KvOptions& kv) {
    const Config& c = setup.model.config;
    const std::vector<uint32_t> depths = arguments.depth_list();
    Measured out{{c.num_attention_heads, c.num_key_value_heads, c.head_dim, kv}, std::nullopt, {}};
    const uint32_t max = std::max(*std::ranges::max_element(depths) + 1, min_length);
    require_room(setup, out.shape, max);
    const auto kernels = setup.device ? make_gpu_kernels(*setup.device, out.shape, max)
                                      : make_cpu_kernels(out.shape, max, arguments.thread_list()[0]);
    if (!arguments.unchecked) out.check = check(*kernels, out.shape, *std::ranges::min_element(depths), setup.device_name);
    for (const uint32_t tokens : {1u, first_block})
        if (!interrupted()) out.rows.push_back(time_append(*kernels, out.shape, tokens, arguments));
    for (const uint32_t depth : depths)
        if (!interrupted()) out.rows.push_back(time_attention(*kernels, out.shape, depth, arguments));
    if (interrupted() && !out.rows.empty()) out.rows.pop_back(); // it has too few samples
    return out;
}

Row row_of(const Measured& m, const KernelTime& time, const std::optional<Limits>& limits, const Setup& setup) {
    const Statistics seconds = statistics(time.seconds);
    const double gb_per_s = double(time.bytes) * 1e-9 / seconds.mean;
    Json json{{"kernel", time.kernel},
              {"type_k", name(m.shape.kv.k)},
              {"type_v", name(m.shape.kv.v)},
              {"cache", describe(m.shape.kv)},
              {"heads", m.shape.heads},
              {"kv_heads", m.shape.kv_heads},
              {"head_dim", m.shape.head_dim},
              {"n_depth", time.depth},
              {"n_tokens", time.tokens},
              {"device", describe_device(setup.device.get())},
              {"samples_ns", Json::array()},
              {"avg_ns", seconds.mean * 1e9},
              {"stddev_ns", seconds.deviation * 1e9},
              {"bytes", time.bytes},
              {"flops", time.flops},
              {"gb_per_s", gb_per_s},
              {"bandwidth_share", limits && limits->read_gb_per_s ? Json(gb_per_s / *limits->read_gb_per_s) : Json(nullptr)},
              {"checked", m.check.has_value()}};
    for (const double s : time.seconds) json["samples_ns"].push_back(s * 1e9);
    if (m.check) json["check"] = {{"error", m.check->error}, {"limit", m.check->bounds.limit}};
    return {std::move(json)};
}

Layout kernel_layout() {
    const auto plain = [](const char* key) {
        return [key](const Row& row) {
            const Json& value = row.fields.at(key);
            return value.is_string() ? value.get<std::string>() : value.dump();
        };
    };
    const auto us = [](const Row& row) {
        return fmt::format("{:.2f} ± {:.2f}", row.fields.at("avg_ns").get<double>() * 1e-3,
                           row.fields.at("stddev_ns").get<double>() * 1e-3);
    };
    const auto rate = [](const Row& row) { return fmt::format("{:.2f}", row.fields.at("gb_per_s").get<double>()); };
    const auto share = [](const Row& row) { return share_text(row.fields.at("bandwidth_share")); };
    const auto error = [](const Row& row) {
        const auto check = row.fields.find("check");
        return check == row.fields.end() ? "unchecked" : fmt::format("{:.1e}", check->at("error").get<double>());
    };
    const std::vector<Column> columns{{"kernel", 0, plain("kernel")},
                                      {"type_k", 0, plain("type_k")},
                                      {"type_v", 0, plain("type_v")},
                                      {"depth", 0, plain("n_depth")},
                                      {"tokens", 0, plain("n_tokens")},
                                      {"us", 0, us},
                                      {"GB/s", 0, rate},
                                      {"of read", 0, share},
                                      {"error", 0, error}};
    return {.columns = [columns](const Row&) { return columns; },
            .first_number = 3,
            .heading = [](const Row& row) { return row.fields.at("device").at("name").get<std::string>(); },
            .notes =
                [share](const std::vector<Row>& rows) {
                    return std::ranges::any_of(rows, [&](const Row& row) { return share(row).ends_with('*'); }) ? beyond_limit
                                                                                                                : "";
                },
            .list = "kernels"};
}

// Measures on one device; returns whether nothing failed.
bool run_on(const Arguments& arguments, Setup& setup, Console& console, Reporters& reporters) {
    std::optional<Limits> limits;
    ThreadPool pool(arguments.thread_list()[0]);
    if (!arguments.no_limits) limits = setup.device ? measure_limits(*setup.device) : measure_cpu_limits(pool);
    return run_caches(arguments, setup, console, [&](const KvOptions& kv) {
        if (interrupted()) throw LoadStopped();
        if (kv.layer_count != 0) fail("--kernels times cache types, not files of types per layer: give -ctk and -ctv");
        console.status(fmt::format("{}: kernels of {}", setup.device_name, describe(kv)));
        const Measured measured = measure(arguments, setup, kv);
        console.clear_status();
        for (const KernelTime& time : measured.rows) reporters.add(row_of(measured, time, limits, setup));
        if (interrupted()) throw LoadStopped();
    });
}

} // namespace

uint64_t CacheShape::token_bytes() const { return kv_bytes_per_token(kv, 1, kv_heads, head_dim); }

Config CacheShape::config() const {
    return {.vocab_size = 1,
            .hidden_size = 32,
            .intermediate_size = 32,
            .num_hidden_layers = 1,
            .num_attention_heads = heads,
            .num_key_value_heads = kv_heads,
            .head_dim = head_dim,
            .max_position_embeddings = max_context,
            .rope_theta = 1e6f,
            .rms_norm_eps = cache_eps};
}

CacheInput::CacheInput(const CacheShape& shape) {
    std::mt19937 random(1);
    const auto fill = [&](std::vector<float>& x, size_t size) { // approximately normal: the sum of twelve uniform numbers
        x.resize(size);
        for (float& value : x) {
            value = -6;
            for (int i = 0; i < 12; i++) value += float(random() >> 8) * 0x1p-24f;
        }
    };
    const size_t row = size_t(shape.kv_heads) * shape.head_dim;
    fill(k, first_block * row);
    fill(v, first_block * row);
    fill(q, size_t(shape.heads) * shape.head_dim);
}

// The number of calls grows by what the last time lacks, and a third more, at least twice and at most 64 times at once, so that a
// first time which was short by chance asks for no hours. Calls run once before they are timed: a new number of them is recorded
// anew, which is no part of the time.
double seconds_per_call(const std::function<void(uint32_t)>& work) {
    for (uint32_t times = 1;;) {
        work(times); // warms up, and records
        const Stopwatch stopwatch;
        work(times);
        const double seconds = stopwatch.seconds();
        if (seconds >= kernel_seconds || times >= 4096) return seconds / times;
        times *= uint32_t(std::clamp(1.3 * kernel_seconds / seconds, 2.0, 64.0));
    }
}

int run_kernels(const Arguments& arguments, Console& console) {
    Reporters reporters(arguments, kernel_layout());
    return run_subjects(
        arguments, console, [&](Subject& subject) { return run_on(arguments, subject.setup, console, reporters); },
        [&] { reporters.finish(); });
}

} // namespace tq::bench
