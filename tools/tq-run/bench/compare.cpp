#include "tools/tq-run/bench/compare.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/printable.h"
#include "tools/tq-run/bench/report.h"
#include "tools/tq-run/json_input.h"
#include <algorithm>
#include <cmath>
#include <map>

namespace tq::bench {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_bytes = size_t(64) << 20, most_results = 1000, most_files = 64;
constexpr const char* baseline = "f16/f16";

// Fields of one result, with errors that say whose they are.
class Fields {
  public:
    Fields(const Json& json, std::string what) : json_(json), what_(std::move(what)) {
        if (!json.is_object()) fail("{} is no JSON object", what_);
    }

    std::string text(const char* key) const {
        const auto found = json_.find(key);
        if (found == json_.end() || !found->is_string()) fail("{} has no text \"{}\": it is not of tq-run bench", what_, key);
        return printable(found->get<std::string>(), 100);
    }
    double number(const char* key) const {
        const auto value = maybe_number(key);
        if (!value) fail("{} has no number \"{}\": it is not of tq-run bench", what_, key);
        return *value;
    }
    std::optional<double> maybe_number(const char* key) const {
        const auto found = json_.find(key);
        if (found == json_.end() || found->is_null()) return std::nullopt;
        const double value = found->is_number() ? found->get<double>() : -1;
        if (!(value >= 0) || !std::isfinite(value)) fail("{} has a \"{}\" that is no number from 0 on", what_, key);
        return value;
    }
    uint32_t count(const char* key) const {
        const double value = number(key);
        if (value != std::floor(value) || value > double(1u << 24))
            fail("{} has a \"{}\" that is no count of tokens", what_, key);
        return uint32_t(value);
    }
    bool yes(const char* key) const {
        const auto found = json_.find(key);
        if (found == json_.end() || !found->is_boolean()) fail("{} has no \"{}\" that is true or false", what_, key);
        return found->get<bool>();
    }
    Fields object(const char* key) const {
        const auto found = json_.find(key);
        if (found == json_.end()) fail("{} has no \"{}\": it is not of tq-run bench", what_, key);
        return {*found, fmt::format("\"{}\" of {}", key, what_)};
    }

  private:
    const Json& json_;
    std::string what_;
};

void check_schema(const Fields& fields, const std::string& file) {
    const std::string schema = fields.text("schema");
    const double version = fields.number("version");
    if (schema != schema_name) fail("{} is of {}, not of tq-run bench", file, schema);
    if (version != schema_version)
        fail("{} is of version {} of its format, and this program reads version {}: use the program that wrote it", file, version,
             schema_version);
}

// A file of JSON is one document; of JSON lines, one each.
std::vector<Json> documents(const std::string& file) {
    const MappedFile mapped{fs::path(file)};
    if (mapped.bytes().size() > most_bytes)
        fail("{} has {} bytes, more than any file of results ({})", printable(file), mapped.bytes().size(), most_bytes);
    const std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
    const std::string_view first = text.substr(0, text.find('\n'));
    std::vector<Json> out;
    if (first.size() < 2 || first.back() != '}') return {parse_json(text, printable(file))};
    for (size_t at = 0, line = 1; at < text.size(); line++) {
        const size_t end = std::min(text.find('\n', at), text.size());
        if (end > at) out.push_back(parse_json(text.substr(at, end - at), fmt::format("{}, line {},", printable(file), line)));
        at = end + 1;
    }
    return out;
}

std::optional<double> joules(const Json& json, const std::string& what) {
    const auto found = json.find("energy");
    if (found == json.end()) return std::nullopt;
    if (!found->is_array()) fail("{} has an \"energy\" that is no list", what);
    double sum = 0;
    for (const Json& one : *found) sum += Fields(one, "\"energy\" of " + what).number("joules_per_token");
    return sum;
}

// 1e9 bytes per second of the attention kernel, whose variants have other names.
std::optional<double> attention_gb_per_s(const Json& json, const std::string& what) {
    const auto found = json.find("kernels");
    if (found == json.end()) return std::nullopt;
    if (!found->is_array()) fail("{} has \"kernels\" that are no list", what);
    double bytes = 0, ns = 0;
    for (const Json& one : *found) {
        const Fields fields(one, "\"kernels\" of " + what);
        const std::string kernel = fields.text("kernel");
        if (!kernel.starts_with("attention") || kernel.starts_with("attention_merge")) continue;
        bytes += fields.number("bytes");
        ns += fields.number("ns");
    }
    return bytes > 0 && ns > 0 ? std::optional(bytes / ns) : std::nullopt;
}

Point read_point(const Json& json, const std::string& what) {
    const Fields fields(json, what), model = fields.object("model"), device = fields.object("device");
    const uint32_t prompt = fields.count("n_prompt"), generated = fields.count("n_gen");
    if ((prompt == 0) == (generated == 0)) fail("{} is neither of a prompt nor of generated tokens", what);
    const double speed = fields.number("avg_ts");
    if (speed == 0) fail("{} has a speed of 0", what);
    return {device.text("name"),
            model.text("name") + " " + model.text("weights"),
            fields.text("cache"),
            prompt > 0,
            prompt + generated,
            fields.count("n_depth"),
            speed,
            fields.maybe_number("bandwidth_share"),
            joules(json, what),
            fields.yes("checked"),
            fields.maybe_number("kv_bytes_stored_per_token"),
            attention_gb_per_s(json, what)};
}

// Whether they are of one line of a plot by depth.
bool same_line(const Point& a, const Point& b) {
    return a.device == b.device && a.model == b.model && a.cache == b.cache && a.kind() == b.kind();
}

bool same_cell(const Point& a, const Point& b) { return same_line(a, b) && a.depth == b.depth; }

std::string footnote(const Point& point, const Json& result, const Fields& machine) {
    const Fields device(result.at("device"), "\"device\"");
    const std::string driver = device.text("backend") == "CPU"
                                   ? machine.text("system")
                                   : fmt::format("{} {}, Vulkan {}, {}", device.text("driver_name"), device.text("driver_info"),
                                                 device.text("api_version"), machine.text("system"));
    return fmt::format("{}: {}; {}", point.device, driver, machine.text("build"));
}

void add(Comparison& out, Point point) {
    const auto same = std::ranges::find_if(out.points, [&](const Point& other) { return same_cell(other, point); });
    if (same == out.points.end())
        out.points.push_back(std::move(point));
    else
        *same = std::move(point);
}

// The results of one file, on devices that are called by their names alone.
std::vector<std::pair<Point, std::string>> read_file(const std::string& file) {
    std::vector<std::pair<Point, std::string>> out;
    const std::string shown = printable(file);
    for (const Json& document : documents(file)) {
        const Fields machine(document, shown);
        check_schema(machine, shown);
        const Json list = document.contains("results") ? document.at("results") : Json::array({document});
        if (!list.is_array()) fail("{} has \"results\" that are no list", shown);
        for (const Json& result : list) {
            const std::string what = fmt::format("result {} of {}", out.size() + 1, shown);
            Point point = read_point(result, what);
            std::string note = footnote(point, result, machine);
            out.emplace_back(std::move(point), std::move(note));
        }
    }
    if (out.empty()) fail("{} has no results of tests", shown);
    return out;
}

// What the rows and the columns of a table are, each once, in the order of the points.
template <class Name> std::vector<std::string> each_once(const std::vector<Point>& points, Name name) {
    std::vector<std::string> out;
    for (const Point& point : points)
        if (std::ranges::find(out, name(point)) == out.end()) out.push_back(name(point));
    return out;
}

std::string test_name(const Point& p) { return p.kind() + (p.depth > 0 ? fmt::format(" @ d{}", p.depth) : ""); }
std::string row_name(const Point& p) { return p.model + '\n' + p.cache + '\n' + test_name(p); }

// One row per model, cache and test; `cell` may say nothing. Empty where it never says anything.
template <class Cell> std::string table(const Comparison& all, const char* title, Cell cell) {
    const auto devices = each_once(all.points, [](const Point& p) { return p.device; });
    std::vector<std::vector<std::string>> rows{{"model", "cache", "test"}};
    rows[0].insert(rows[0].end(), devices.begin(), devices.end());
    std::map<std::pair<std::string, std::string>, const Point*> cells; // by row and column
    for (const Point& point : all.points) cells[{row_name(point), point.device}] = &point;
    for (const std::string& name : each_once(all.points, row_name)) {
        const Point* first = nullptr; // that was measured
        std::vector<std::string> row;
        for (const std::string& device : devices) {
            const auto found = cells.find({name, device});
            if (found != cells.end() && first == nullptr) first = found->second;
            const std::string text = found == cells.end() ? "" : cell(*found->second, *first);
            row.push_back(text.empty() ? "-" : text);
        }
        if (std::ranges::all_of(row, [](const std::string& text) { return text == "-"; })) continue;
        row.insert(row.begin(), {first->model, first->cache, test_name(*first)});
        rows.push_back(std::move(row));
    }
    return rows.size() == 1 ? "" : fmt::format("{}\n\n{}\n", title, markdown(rows, 3));
}

// ns that a token takes longer for each token before it: least squares, over all depths. Nothing of a single depth.
std::optional<double> measured_ns_per_depth(const Comparison& all, const Point& point) {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (const Point& p : all.points) {
        if (!same_line(p, point)) continue;
        const double depth = p.depth, ns = 1e9 / p.tokens_per_second;
        n += 1, x += depth, y += ns, xx += depth * depth, xy += depth * ns;
    }
    const double spread = n * xx - x * x;
    return spread > 0 ? std::optional((n * xy - x * y) / spread) : std::nullopt;
}

// The first point of each line of generated tokens, with its depth left out.
Comparison lines_of_generation(const Comparison& all) {
    Comparison out;
    for (Point p : all.points) {
        p.depth = 0;
        if (!p.prompt && std::ranges::none_of(out.points, [&](const Point& other) { return same_line(other, p); }))
            out.points.push_back(std::move(p));
    }
    return out;
}

} // namespace

Comparison read_results(const std::vector<std::string>& files) {
    if (files.size() > most_files) fail("--compare takes at most {} files, not {}", most_files, files.size());
    std::map<std::string, std::vector<size_t>> named; // the files that have a device of that name
    std::vector<std::vector<std::pair<Point, std::string>>> all;
    size_t count = 0;
    for (const std::string& file : files) {
        all.push_back(read_file(file));
        if ((count += all.back().size()) > most_results) fail("more than {} results are too many to compare", most_results);
        for (const auto& [point, note] : all.back())
            if (auto& in = named[point.device]; in.empty() || in.back() != all.size()) in.push_back(all.size());
    }
    Comparison out;
    for (size_t i = 0; i < all.size(); i++)
        for (auto& [point, note] : all[i]) {
            const std::string alone = point.device, stem = printable(fs::path(files[i]).stem().string(), 40);
            if (named[alone].size() > 1) {
                point.device += " [" + stem + "]";
                note = point.device + note.substr(alone.size());
            }
            const std::string unchecked = fmt::format("{}, {}, {}: unchecked", point.device, point.model, point.cache);
            for (const std::string& line : {note, point.checked ? note : unchecked})
                if (std::ranges::find(out.footnotes, line) == out.footnotes.end()) out.footnotes.push_back(line);
            add(out, std::move(point));
        }
    return out;
}

std::optional<double> over_f16(const Comparison& comparison, const Point& point) {
    if (point.cache == baseline) return std::nullopt;
    Point wanted = point;
    wanted.cache = baseline;
    const auto found = std::ranges::find_if(comparison.points, [&](const Point& other) { return same_cell(other, wanted); });
    if (found == comparison.points.end()) return std::nullopt;
    return point.tokens_per_second / found->tokens_per_second;
}

std::optional<double> expected_ns_per_depth(const Comparison& comparison, const Point& point) {
    const Point* deepest = nullptr;
    for (const Point& other : comparison.points) {
        if (!same_line(other, point) || !other.attention_gb_per_s || !other.cache_bytes) continue;
        if (deepest == nullptr || other.depth > deepest->depth) deepest = &other;
    }
    if (deepest == nullptr) return std::nullopt;
    return *deepest->cache_bytes / *deepest->attention_gb_per_s; // bytes over bytes per ns
}

std::string comparison_table(const Comparison& all) {
    std::string text =
        table(all, "Tokens per second (and over those of the first device)", [](const Point& p, const Point& first) {
            const std::string speed = fmt::format("{:.2f}", p.tokens_per_second);
            return &p == &first ? speed : fmt::format("{} ({:.2f}x)", speed, p.tokens_per_second / first.tokens_per_second);
        });
    text += table(all, "Share of the device's own measured bandwidth", [](const Point& p, const Point&) {
        return p.bandwidth_share ? fmt::format("{:.1f} %", 100 * *p.bandwidth_share) : std::string();
    });
    text += table(all, "Speed over that with a cache of f16", [&](const Point& p, const Point&) {
        const auto ratio = over_f16(all, p);
        return ratio ? fmt::format("{:.2f}x", *ratio) : std::string();
    });
    text += table(all, "Joules per token", [](const Point& p, const Point&) {
        return p.joules_per_token ? fmt::format("{:.4f}", *p.joules_per_token) : std::string();
    });
    text += table(lines_of_generation(all),
                  "ns that a token takes longer for each one before it (and as the cache's bytes over the "
                  "attention kernel's bandwidth)",
                  [&](const Point& p, const Point&) {
                      const auto measured = measured_ns_per_depth(all, p), expected = expected_ns_per_depth(all, p);
                      if (!measured) return std::string();
                      return fmt::format("{:.1f}{}", *measured, expected ? fmt::format(" ({:.1f})", *expected) : "");
                  });
    for (const std::string& line : all.footnotes) text += line + "\n";
    return text;
}

} // namespace tq::bench
