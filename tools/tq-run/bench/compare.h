// tq-run bench --compare: the measurements of several machines, side by side.
#pragma once
#include "tools/tq-run/bench/result_files.h"
#include <optional>
#include <string>
#include <vector>

namespace tq::bench {

// The compared values of one result in a file.
struct Point {
    std::string device;                // "AMD Radeon RX 6800", with the file's name where several files have one of that name
    std::string model, cache;          // "Qwen3 8B Q4_K", with layers and file where those of that name differ; "tq4/tq4"
    uint32_t prompt, generated, depth; // tokens
    std::string settings;              // "2 threads, blocks of 64" where a file has several; else empty
    double tokens_per_second;
    double deviation, error; // standard deviation of its samples, and standard error of their mean; 0: of one sample
    std::optional<double> bandwidth_share, joules_per_token;
    bool checked;
    std::optional<double> cache_bytes;        // of one token, in all layers
    std::optional<double> attention_gb_per_s; // of the attention kernel, profiled in this test

    std::string kind() const; // "pp512", "tg128, 2 threads"
};

// Whether they differ only in depth; and whether they do not differ at all.
bool same_line(const Point& a, const Point& b);
bool same_cell(const Point& a, const Point& b);

// A number and its standard error; 0: unknown.
struct Estimated {
    double value, error;
};

struct Comparison {
    std::vector<Point> points;          // in the order of the files; of equal ones the last
    std::vector<std::string> footnotes; // drivers, builds, what was not checked
};

// Throws Error that names the file, the result and the field where one is not what `tq-run bench -o json` (or jsonl) writes.
Comparison compare_results(const std::vector<ResultFile>& files);

// An object for each point, with the values of the tables under names of their own; the same names in all.
nlohmann::ordered_json comparison_json(const Comparison& comparison);

std::string comparison_table(const Comparison& comparison);

// The additional time of a token for each token before it, in ns: least squares over all depths. Nothing for a single depth.
std::optional<Estimated> ns_per_depth(const Comparison& comparison, const Point& point);

// The same as predicted: the cache's bytes per token over the attention kernel's bandwidth at the greatest depth of the same
// device, model, cache and test. Nothing where that was not measured.
std::optional<double> expected_ns_per_depth(const Comparison& comparison, const Point& point);

// The speed of a cache relative to f16/f16 on the same device, model and test. Nothing where that was not measured.
std::optional<Estimated> over_f16(const Comparison& comparison, const Point& point);

} // namespace tq::bench
