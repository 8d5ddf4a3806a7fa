// tq-run bench --compare: the measurements of several machines, side by side.
#pragma once
#include "tools/tq-run/bench/result_files.h"
#include <optional>
#include <string>
#include <vector>

namespace tq::bench {

// A number and its standard error, or its standard deviation.
struct Estimated {
    double value;
    std::optional<double> error = {}; // none: unknown
};

// The compared values of one result in a file; of a result of -np there are three, which differ in `part`.
struct Point {
    std::string device;       // the column: "AMD Radeon RX 6800", with the file's name if several have one of that name
    std::string model, cache; // "Qwen3 8B Q4_K", with layers and file if models of that name differ; "tq4/tq4"
    uint32_t prompt = 0, generated = 0, depth = 0; // tokens
    uint32_t sequences = 0;                        // of -np; 0: another test
    std::string settings = {};                     // "2 threads, blocks of 64" if a file has several; else empty
    const char* part = "";                         // of -np: "speed_tg", "speed_pp" or "speed"
    double tokens_per_second = 0;
    std::optional<double> deviation = {}, error = {}; // standard deviation of its samples, standard error of their mean
    std::vector<double> rates = {};                   // of -np: tokens per second of each sample
    std::optional<double> bandwidth_share = {}, joules_per_token = {};
    bool checked = false;
    std::optional<double> cache_bytes = {};        // of one token, in all layers
    std::optional<double> attention_gb_per_s = {}; // of the attention kernel, profiled in this test

    std::string kind() const; // "pp512", "tg128, 2 threads"
};

// Whether they differ only in depth; and whether they do not differ at all.
bool same_line(const Point& a, const Point& b);
bool same_cell(const Point& a, const Point& b);

struct Comparison {
    std::vector<Point> points;          // in the order of the files; of equal ones the last, or of -np all samples together
    std::vector<std::string> footnotes; // drivers, builds, what was not checked

    bool together() const { return !points.empty() && points[0].sequences > 0; } // results of -np
};

// Compares results of tests (also llama-bench's), or of -np (also llama-batched-bench's). Throws an Error that names the file,
// the result and the field if one is not what these programs write, or if the two kinds are mixed.
Comparison compare_results(const std::vector<ResultFile>& files);

// An object for each cell, with the values of the tables under names of their own; the same names in all.
std::vector<nlohmann::ordered_json> comparison_rows(const Comparison& comparison);

std::string comparison_table(Comparison comparison);

} // namespace tq::bench
