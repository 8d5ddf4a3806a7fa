#include "tools/tq-run/bench/kernels.h"
#include "base/interrupt.h"
#include "base/stopwatch.h"
#include "base/system_memory.h"
#include "tools/tq-run/bench/report.h"
#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

namespace tq::bench {
namespace {

using conformance::LogitsCheck;

constexpr uint32_t min_length = 33; // of the comparison with the reference: one position would need no softmax
constexpr double kernel_seconds = 0.01;

// One line of the table.
struct Row {
    const char* kernel;
    uint32_t depth, tokens;
    std::vector<double> seconds; // of one call each
    uint64_t bytes, flops;       // of one call
};

std::vector<double> repeated(uint32_t repetitions, const std::function<double()>& seconds) {
    std::vector<double> all;
    for (uint32_t i = 0; i < repetitions && !interrupted(); i++) all.push_back(seconds());
    return all;
}

Row time_append(CacheKernels& kernels, const CacheShape& shape, uint32_t tokens, uint32_t repetitions) {
    const uint64_t values = uint64_t(tokens) * shape.kv_heads * shape.head_dim * 2;
    return {"kv_append",
            0,
            tokens,
            repeated(repetitions, [&] { return kernels.append_seconds(tokens); }),
            values * 4 + tokens * shape.token_bytes(),
            values * 30};
}

Row time_attention(CacheKernels& kernels, const CacheShape& shape, uint32_t depth, uint32_t repetitions) {
    kernels.fill(depth + 1);
    kernels.attention(depth + 1);
    return {"attention",
            depth,
            1,
            repeated(repetitions, [&] { return kernels.attention_seconds(); }),
            (depth + 1) * shape.token_bytes(),
            4ull * shape.heads * shape.head_dim * (depth + 1)};
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
    std::vector<Row> rows;
};

// Throws Error where the host or the device cannot hold that many tokens: the host holds a rotary table of them, and on the CPU
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
    const uint32_t most = std::max(*std::ranges::max_element(depths) + 1, min_length);
    require_room(setup, out.shape, most);
    const auto kernels = setup.device ? make_gpu_kernels(*setup.device, out.shape, most)
                                      : make_cpu_kernels(out.shape, most, arguments.thread_list()[0]);
    if (!arguments.unchecked) out.check = check(*kernels, out.shape, *std::ranges::min_element(depths), setup.device_name);
    for (const uint32_t tokens : {1u, first_block})
        if (!interrupted()) out.rows.push_back(time_append(*kernels, out.shape, tokens, arguments.repetitions));
    for (const uint32_t depth : depths)
        if (!interrupted()) out.rows.push_back(time_attention(*kernels, out.shape, depth, arguments.repetitions));
    if (interrupted() && !out.rows.empty()) out.rows.pop_back(); // it has too few samples
    return out;
}

Json to_json(const Measured& m, const Row& row, const std::optional<Limits>& limits, const Setup& setup) {
    const Statistics seconds = statistics(row.seconds);
    const double gb_per_s = double(row.bytes) * 1e-9 / seconds.mean;
    Json json{{"kernel", row.kernel},
              {"type_k", name(m.shape.kv.k)},
              {"type_v", name(m.shape.kv.v)},
              {"cache", describe(m.shape.kv)},
              {"heads", m.shape.heads},
              {"kv_heads", m.shape.kv_heads},
              {"head_dim", m.shape.head_dim},
              {"n_depth", row.depth},
              {"n_tokens", row.tokens},
              {"device", describe_device(setup.device.get())},
              {"samples_ns", Json::array()},
              {"avg_ns", seconds.mean * 1e9},
              {"stddev_ns", seconds.deviation * 1e9},
              {"bytes", row.bytes},
              {"flops", row.flops},
              {"gb_per_s", gb_per_s},
              {"bandwidth_share", limits && limits->read_gb_per_s ? Json(gb_per_s / *limits->read_gb_per_s) : Json(nullptr)},
              {"checked", m.check.has_value()}};
    for (const double s : row.seconds) json["samples_ns"].push_back(s * 1e9);
    if (m.check) json["check"] = {{"error", m.check->error}, {"limit", m.check->bounds.limit}};
    return json;
}

std::vector<std::string> cells(const Json& json) {
    const Json& share = json.at("bandwidth_share");
    const bool checked = json.at("checked").get<bool>();
    return {json.at("kernel"),
            json.at("type_k"),
            json.at("type_v"),
            std::to_string(json.at("n_depth").get<uint32_t>()),
            std::to_string(json.at("n_tokens").get<uint32_t>()),
            fmt::format("{:.2f} ± {:.2f}", json.at("avg_ns").get<double>() * 1e-3, json.at("stddev_ns").get<double>() * 1e-3),
            fmt::format("{:.2f}", json.at("gb_per_s").get<double>()),
            share.is_null() ? "" : share_text(share.get<double>()),
            checked ? fmt::format("{:.1e}", json.at("check").at("error").get<double>()) : "unchecked"};
}

void print(const Json& all, Format format) {
    if (format != Format::markdown) return write_output(all.dump(format == Format::json ? 1 : -1) + "\n");
    std::vector<std::vector<std::string>> rows{
        {"kernel", "type_k", "type_v", "depth", "tokens", "us", "GB/s", "of read", "error"}};
    std::string where;
    bool beyond = false;
    for (const Json& json : all.at("kernels")) {
        const std::string here = json.at("device").at("name");
        if (here != where && rows.size() > 1) {
            write_output(fmt::format("{}\n{}\n", where, markdown(rows, 3)));
            rows.resize(1);
        }
        where = here;
        rows.push_back(cells(json));
        beyond |= rows.back()[7].ends_with('*');
    }
    if (rows.size() > 1) write_output(fmt::format("{}\n{}{}", where, markdown(rows, 3), beyond ? beyond_limit : ""));
}

// Adds the measurements of one device; returns whether nothing failed.
bool run_on(const Arguments& arguments, Setup& setup, Console& console, Json& out) {
    bool good = true;
    std::optional<Limits> limits;
    ThreadPool pool(arguments.thread_list()[0]);
    if (!arguments.no_limits) limits = setup.device ? measure_limits(*setup.device) : measure_cpu_limits(pool);
    for (const KvOptions& kv : arguments.caches()) try {
            if (interrupted()) return good;
            if (kv.layer_count != 0) fail("--kernels times cache types, not files of types per layer: give -ctk and -ctv");
            console.status(fmt::format("{}: kernels of {}", setup.device_name, describe(kv)));
            const Measured measured = measure(arguments, setup, kv);
            for (const Row& row : measured.rows) out.push_back(to_json(measured, row, limits, setup));
            console.clear_status();
        } catch (const Error& error) { // the rest can still be measured
            console.clear_status();
            write_error(fmt::format("tq-run: {}\n", error.what()));
            good = false;
        }
    return good;
}

} // namespace

uint64_t CacheShape::token_bytes() const { return kv_bytes_per_token(kv, 1, kv_heads, head_dim); }

Config CacheShape::config() const { return {1, 32, 32, 1, heads, kv_heads, head_dim, 1u << 24, 1e6f, cache_eps}; }

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
    Json all = describe_machine();
    all["kernels"] = Json::array();
    bool good = true;
    for (ModelArguments model : arguments.model_list()) {
        model.context_size = 1;
        Setup setup = set_up(model, console);
        catch_interrupts();
        good &= run_on(arguments, setup, console, all["kernels"]);
        if (interrupted()) break;
    }
    print(all, arguments.output());
    return interrupted() ? 130 : good ? 0 : 1;
}

} // namespace tq::bench
