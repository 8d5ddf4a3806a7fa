// Reads results of tq-run bench, llama-bench and llama-batched-bench into points that can be compared. The difficulty is names:
// the same device, model or test must get one name in all files, and different ones different names. Devices of one name in a
// file are numbered, tests gain the threads or block sizes in which they differ (tell_apart_in_file), models their layers and
// files (tell_models_apart). llama-bench names models otherwise, so one of the same file name, or of the same bytes and
// parameters, gets our name (name_as_ours).
// Files are written by others, so every field is checked (ResultFields), and an older schema is refused with what to do. Results
// of -np of several rounds are samples of one cell (add_samples).
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "tools/tq-run/bench/compare.h"
#include "tools/tq-run/bench/result.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

namespace tq::bench {
namespace {

namespace fs = std::filesystem;

constexpr size_t max_results = 1000;

void check_schema(const ResultFields& fields, const std::string& file) {
    const std::string schema = fields.text("schema");
    const double version = fields.number("version");
    if (schema != schema_name) fail("{} has the schema {}: it was not written by tq-run bench", file, schema);
    if (version != schema_version)
        fail(
            "{} has version {} of its format, but this program reads version {}: measure again, or use the program that wrote it",
            file, version, schema_version);
}

std::optional<double> joules(const Json& json, const std::string& what) {
    const auto found = json.find("energy");
    if (found == json.end()) return std::nullopt;
    if (!found->is_array()) fail("{} has an \"energy\" that is not a list", what);
    double sum = 0;
    for (const Json& one : *found) sum += ResultFields(one, "\"energy\" of " + what).number("joules_per_token");
    return sum;
}

// The bandwidth of the attention kernel, whose variants have other names, in 1e9 bytes per second.
std::optional<double> attention_gb_per_s(const Json& json, const std::string& what) {
    const auto found = json.find("kernels");
    if (found == json.end()) return std::nullopt;
    if (!found->is_array()) fail("{} has \"kernels\" that are not a list", what);
    double bytes = 0, ns = 0;
    for (const Json& one : *found) {
        const ResultFields fields(one, "\"kernels\" of " + what);
        const std::string kernel = fields.text("kernel");
        if (!kernel.starts_with("attention") || kernel.starts_with("attention_combine") ||
            kernel.starts_with("attention_merge")) // the combine kernel in results of older builds
            continue;
        bytes += fields.number("bytes");
        ns += fields.number("ns");
    }
    return bytes > 0 && ns > 0 ? std::optional(bytes / ns) : std::nullopt;
}

// A result with its contents in the file: the fields that identify it, and the fields that are compared.
struct Read {
    Point point;
    std::string note; // of the device and the build
    uint32_t layers = 0, threads = 0, batch = 0, device_index = 0;
    std::string file;                 // of the model, without its directory
    double bytes = 0, parameters = 0; // of the model, if the result tells them
    bool foreign = false;             // written by llama-bench
};

size_t samples(const Json& json) {
    const auto found = json.find("samples_ns");
    return found != json.end() && found->is_array() ? std::max<size_t>(found->size(), 1) : 1;
}

// The fields that results of tq-run and of llama-bench have in common.
Read read_common(const ResultFields& fields, std::string device, std::string cache, uint32_t depth) {
    const uint32_t prompt = fields.count("n_prompt"), generated = fields.count("n_gen");
    if (prompt + generated == 0) fail("{} measures neither a prompt nor generated tokens", fields.what());
    const double speed = fields.number("avg_ts"), deviation = fields.maybe_number("stddev_ts").value_or(0);
    if (speed == 0) fail("{} has a speed of 0", fields.what());
    Read out{.point = {.device = std::move(device),
                       .model = fields.text("model_type"),
                       .cache = std::move(cache),
                       .prompt = prompt,
                       .generated = generated,
                       .depth = depth,
                       .tokens_per_second = speed},
             .threads = fields.count("n_threads"),
             .batch = fields.count("n_batch"),
             .file = printable(utf8_text(utf8_path(fields.text("model_filename")).filename()), 60),
             .bytes = fields.maybe_number("model_size").value_or(0),
             .parameters = fields.maybe_number("model_n_params").value_or(0)};
    if (deviation > 0) {
        out.point.deviation = deviation;
        out.point.error = deviation / std::sqrt(double(samples(fields.json())));
    }
    return out;
}

std::string threads_text(uint32_t n) { return fmt::format("{} thread{}", n, n == 1 ? "" : "s"); }

Read read_result(const Json& json, const std::string& what) {
    const ResultFields fields(json, what), model = fields.object("model"), device = fields.object("device");
    const bool on_cpu = device.text("backend") == "CPU";
    std::string name = device.text(device.json().contains("placement") ? "placement" : "name"); // of several devices
    if (on_cpu) name += ", " + threads_text(fields.count("n_threads"));                         // as in llama-bench's results
    Read out = read_common(fields, name, fields.text("cache"), fields.count("n_depth"));
    out.point.bandwidth_share = fields.maybe_number("bandwidth_share");
    out.point.joules_per_token = joules(json, what);
    out.point.checked = fields.yes("checked");
    out.point.cache_bytes = fields.maybe_number("kv_bytes_stored_per_token");
    out.point.attention_gb_per_s = attention_gb_per_s(json, what);
    out.layers = model.count("layers");
    out.device_index = device.count("index");
    out.note = fields.text("system");
    if (!on_cpu)
        out.note = fmt::format("{} {}, Vulkan {}, {}", device.text("driver_name"), device.text("driver_info"),
                               device.text("api_version"), out.note);
    out.note += "; " + fields.text("build");
    return out;
}

// llama.cpp's llama-bench names neither a schema nor a cache; it checks nothing.
bool is_llama_bench(const Json& json) {
    return json.is_object() && !json.contains("schema") && json.contains("build_commit") && json.contains("model_filename");
}

Read read_llama_result(const Json& json, const std::string& what) {
    const ResultFields fields(json, what);
    const auto layers = json.find("n_gpu_layers");
    const bool on_gpu = !fields.text("gpu_info").empty() && (layers == json.end() || *layers != 0);
    const std::string place =
        on_gpu ? fields.text("gpu_info") : fields.text("cpu_info") + ", " + threads_text(fields.count("n_threads"));
    Read out = read_common(fields, place + ", llama.cpp", fields.text("type_k") + "/" + fields.text("type_v"),
                           json.contains("n_depth") ? fields.count("n_depth") : 0);
    out.note = fmt::format("llama-bench of llama.cpp, commit {}", fields.text("build_commit"));
    out.foreign = true;
    return out;
}

// The seconds of each sample; llama-batched-bench has one, and writes it alone.
std::vector<double> seconds(const ResultFields& fields, const char* samples_ns, const char* alone) {
    std::vector<double> out = fields.maybe_numbers(samples_ns);
    for (double& value : out) value *= 1e-9;
    if (out.empty()) out.push_back(fields.number(alone));
    if (std::ranges::find(out, 0.0) != out.end()) fail("{} has a time of 0", fields.what());
    return out;
}

// Adds the samples of a result of -np or of llama-batched-bench to its cell, which has the samples of earlier rounds.
void add_samples(Comparison& out, Point point, const char* part, double tokens, const std::vector<double>& seconds) {
    point.part = part;
    auto cell = std::ranges::find_if(out.points, [&](const Point& other) { return same_cell(other, point); });
    if (cell == out.points.end()) cell = out.points.insert(out.points.end(), std::move(point));
    for (const double each : seconds) cell->rates.push_back(tokens / each);
    const Statistics rate = statistics(cell->rates);
    cell->tokens_per_second = rate.mean;
    if (cell->rates.size() < 2) return;
    cell->deviation = rate.deviation;
    cell->error = rate.deviation / std::sqrt(double(cell->rates.size()));
}

void add_line(Comparison& out, const std::string& line) {
    if (std::ranges::find(out.footnotes, line) == out.footnotes.end()) out.footnotes.push_back(line);
}

// Results of tq-run name their cache and build.
void add_batched(Comparison& out, const ResultFile& file, const Json& json, const std::string& what) {
    const ResultFields fields(json, what);
    const bool ours = json.contains("schema");
    if (ours && (fields.text("schema") != batched_schema_name || fields.number("version") != batched_schema_version))
        fail("{} is not a result of tq-run bench -np that this program reads: measure again, and compare -np with -np", what);
    Point point{.device = fmt::format("{}: {}, {}", file.stem(), ours ? fields.text("cache") : "llama-batched-bench",
                                      threads_text(fields.count("n_threads"))),
                .prompt = fields.count("pp"),
                .generated = fields.count("tg"),
                .depth = ours ? fields.count("n_depth") : 0,
                .sequences = fields.count("pl")};
    if (ours) {
        const ResultFields device = fields.object("device");
        if (device.text("backend") != "CPU")
            point.device = fmt::format("{}: {}, {}", file.stem(), fields.text("cache"), device.text("name"));
        add_line(out, fmt::format("{}: {}, {}{}", point.device, fields.text("model_type"), fields.text("build"),
                                  fields.yes("checked") ? "" : ", unchecked"));
    }
    const std::vector<double> pp = seconds(fields, "samples_pp_ns", "t_pp"), tg = seconds(fields, "samples_tg_ns", "t_tg");
    if (pp.size() != tg.size()) fail("{} has {} times of prompts and {} of generation", what, pp.size(), tg.size());
    std::vector<double> both;
    for (size_t i = 0; i < pp.size(); i++) both.push_back(pp[i] + tg[i]);
    const double prompt = double(point.sequences) * point.prompt, generated = double(point.sequences) * point.generated;
    add_samples(out, point, "speed_tg", generated, tg);
    add_samples(out, point, "speed_pp", prompt, pp);
    add_samples(out, point, "speed", prompt + generated, both);
}

// llama-bench names models in another way: one that is the same, by its file's name or its sizes, gets our name.
void name_as_ours(std::vector<std::vector<Read>>& files) {
    const auto same = [](const Read& theirs, const Read& ours) {
        const bool sizes = theirs.parameters > 0 && theirs.parameters == ours.parameters && theirs.bytes == ours.bytes;
        return !ours.foreign && (theirs.file == ours.file || sizes);
    };
    for (auto& file : files)
        for (Read& theirs : file) {
            if (!theirs.foreign) continue;
            for (const auto& other : files)
                if (const auto ours = std::ranges::find_if(other, [&](const Read& one) { return same(theirs, one); });
                    ours != other.end()) {
                    theirs.point.model = ours->point.model;
                    theirs.layers = ours->layers;
                    theirs.file = ours->file;
                    break;
                }
        }
}

// Adds a point. It replaces an earlier result of the same test, since the last counts. Results of -np are added up instead
// (add_samples).
void add(Comparison& out, Point point) {
    const auto same = std::ranges::find_if(out.points, [&](const Point& other) { return same_cell(other, point); });
    if (same == out.points.end())
        out.points.push_back(std::move(point));
    else
        *same = std::move(point);
}

// The results of one file, with devices and models identified by their names only.
std::vector<Read> read_file(const ResultFile& file) {
    std::vector<Read> out;
    for (const Json& result : file.results) {
        if (result.is_object() && result.contains("results"))
            fail("{} is from an older tq-run bench, before its results became a list like llama-bench's: measure again, or use "
                 "the program that wrote it",
                 file.name());
        const std::string what = file.describe(out.size());
        if (is_llama_bench(result)) {
            out.push_back(read_llama_result(result, what));
            continue;
        }
        check_schema(ResultFields(result, what), file.name());
        out.push_back(read_result(result, what));
    }
    return out;
}

// Whether results that agree in `name` differ in `value`.
template <class Name, class Value> bool differ(const std::vector<Read>& all, const Read& one, Name name, Value value) {
    return std::ranges::any_of(all, [&](const Read& other) { return name(other) == name(one) && value(other) != value(one); });
}

// Numbers devices of one name in one file, and adds the threads or block sizes to the names of tests that were run with several
// of them.
// All comparisons are with the names as they were before (`before`): a name that was made longer would else differ from its
// namesakes, and these would stay as they are.
void tell_apart_in_file(std::vector<Read>& all) {
    const std::vector<Read> before = all;
    const auto device = [](const Read& r) { return r.point.device; };
    const auto device_and_number = [](const Read& r) { return r.point.device + std::to_string(r.device_index); };
    for (size_t i = 0; i < all.size(); i++) {
        Point& point = all[i].point;
        if (differ(before, before[i], device, [](const Read& r) { return r.device_index; }))
            point.device += fmt::format(" #{}", all[i].device_index);
        if (differ(before, before[i], device_and_number, [](const Read& r) { return r.threads; }))
            point.settings += ", " + threads_text(all[i].threads);
        if (differ(before, before[i], device_and_number, [](const Read& r) { return r.batch; }))
            point.settings += fmt::format(", blocks of {}", all[i].batch);
    }
}

// Adds to models of one name what they differ in: their layers, their files.
void tell_models_apart(std::vector<std::vector<Read>>& files) {
    std::vector<Read> before;
    for (const auto& file : files) before.insert(before.end(), file.begin(), file.end());
    const auto model = [](const Read& r) { return r.point.model; };
    const auto cut = [](const Read& r) { return r.point.model + std::to_string(r.layers); };
    size_t i = 0;
    for (auto& file : files)
        for (Read& one : file) {
            const Read& was = before[i++];
            if (differ(before, was, model, [](const Read& r) { return r.layers; }))
                one.point.model += fmt::format(", {} layers", was.layers);
            if (differ(before, was, cut, [](const Read& r) { return r.file; })) one.point.model += fmt::format(" ({})", was.file);
        }
}

} // namespace

static Comparison compare_batched(const std::vector<ResultFile>& files) {
    Comparison out;
    for (const ResultFile& file : files)
        for (size_t i = 0; i < file.results.size(); i++) add_batched(out, file, file.results[i], file.describe(i));
    return out;
}

// A device name that several files have gets the file's name in brackets. Drivers and builds, and what was not checked, become
// footnotes.
static Comparison compare_tests(const std::vector<ResultFile>& files) {
    std::map<std::string, std::vector<size_t>> named; // the files that have a device of that name
    std::vector<std::vector<Read>> all;
    for (const ResultFile& file : files) {
        all.push_back(read_file(file));
        tell_apart_in_file(all.back());
        for (const Read& read : all.back())
            if (auto& in = named[read.point.device]; in.empty() || in.back() != all.size()) in.push_back(all.size());
    }
    name_as_ours(all);
    tell_models_apart(all);
    Comparison out;
    for (size_t i = 0; i < all.size(); i++)
        for (Read& read : all[i]) {
            Point& point = read.point;
            if (named[point.device].size() > 1) point.device += " [" + files[i].stem() + "]";
            const std::string note = fmt::format("{}: {}", point.device, read.note),
                              unchecked = fmt::format("{}, {}, {}: unchecked", point.device, point.model, point.cache);
            add_line(out, note);
            if (!point.checked) add_line(out, unchecked);
            add(out, std::move(point));
        }
    return out;
}

// Only results of -np and of llama-batched-bench have the field pl. If one has it, all must: tests of one sequence and of several
// have no cell in common.
Comparison compare_results(const std::vector<ResultFile>& files) {
    const auto is_batched = [](const Json& result) { return result.is_object() && result.contains("pl"); };
    size_t count = 0;
    bool batched = false;
    for (const ResultFile& file : files) {
        count += file.results.size();
        batched |= std::ranges::any_of(file.results, is_batched);
    }
    if (count > max_results) fail("more than {} results are too many to compare", max_results);
    return batched ? compare_batched(files) : compare_tests(files);
}

} // namespace tq::bench
