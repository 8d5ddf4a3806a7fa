// page-lab: what coding a whole page of tokens at once gains. README.md says how schemes are written.
//   page-lab -m tools/demo-model/demo-q8_0.gguf -f TEXT --chunks 4 tq4t tq3t,window=16 mean+tq3t/tq3t,pages=32
#include "base/error.h"
#include "base/path_text.h"
#include "tools/page_lab/forward.h"
#include <CLI/CLI.hpp>
#include <atomic>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>

namespace {

using namespace tq;
using page_lab::Lab, page_lab::Result, page_lab::Scheme, quality::Divergence;

struct Arguments {
    std::string model, text, calibration, conditioning = "norms";
    uint32_t context = 2048, chunks = 4, threads = 2, rotations = 1;
    std::vector<std::string> schemes;
};

std::vector<uint32_t> read_ids(const Model& model, const std::string& path) {
    std::ifstream file(utf8_path(path), std::ios::binary);
    const std::string all(std::istreambuf_iterator<char>(file), {});
    if (all.empty()) fail("{} cannot be read or is empty", path);
    return model.tokenizer.encode(all);
}

// A scheme's divergences from the exact run, of each text.
struct Measured {
    std::vector<std::vector<Divergence>> texts;
    double k_bits = 0, v_bits = 0;
    uint32_t done = 0;
};

std::vector<Divergence> part(const Measured& m, uint32_t from, uint32_t to) {
    std::vector<Divergence> all;
    for (const auto& text : m.texts) all.insert(all.end(), text.begin() + from, text.begin() + to);
    return all;
}

// The mean difference from another scheme's KL on the same tokens, whose divergences are correlated.
quality::Estimate difference(std::span<const Divergence> tokens, std::span<const Divergence> others) {
    std::vector<double> values;
    for (size_t i = 0; i < tokens.size(); i++) values.push_back(tokens[i].kl - others[i].kl);
    return quality::mean(values);
}

std::string line(const Scheme& scheme, const Measured& m, const Measured& first, const Config& c, uint32_t context) {
    const uint32_t last = context - 1, half = context / 2 - 1;
    std::string out = fmt::format("| {} | {:.3f}, {:.3f} |", scheme.text, m.k_bits / c.head_dim, m.v_bits / c.head_dim);
    for (const uint32_t tokens : {2048u, 8192u, 32768u}) {
        const auto of = [&](double bits) { return scheme.window.bytes(bits / 8, 2.0 * c.head_dim, tokens) / tokens; };
        out += fmt::format(" {:.0f} |", (of(m.k_bits) + of(m.v_bits)) * c.num_hidden_layers * c.num_key_value_heads);
    }
    const auto tokens = part(m, half, last);
    const auto s = quality::summarise(tokens);
    out += fmt::format(" {:.2e} ± {:.0e} | {:.1e} | {:.2f} % |", s.kl.value, s.kl.error, s.kl_median, 100 * s.same_top.value);
    if (first.done == m.texts.size()) {
        const auto d = difference(tokens, part(first, half, last));
        out += fmt::format(" {:+.1e} ± {:.0e} |", d.value, d.error);
    } else {
        out += " |";
    }
    for (uint32_t quarter = 0; quarter < 4; quarter++)
        out += fmt::format(" {:.1e} |", quality::summarise(part(m, quarter * last / 4, (quarter + 1) * last / 4)).kl.value);
    return out;
}

class Measurement {
  public:
    Measurement(const Arguments& a, const Lab& lab, std::span<const uint32_t> ids) : a_(a), lab_(lab), ids_(ids) {
        for (const std::string& text : a.schemes) schemes_.push_back(page_lab::parse_scheme(text));
        measured_.resize(schemes_.size());
        for (Measured& m : measured_) m.texts.resize(a.chunks);
        references_.resize(a.chunks);
    }

    // Prints a row for each scheme as soon as it is known.
    void run() {
        const Scheme exact = page_lab::parse_scheme("exact");
        parallel(a_.chunks, [&](uint32_t text) { references_[text] = lab_.run(chunk(text), exact).logits; });
        parallel(a_.chunks, [&](uint32_t text) { measure(0, text); }); // the others' rows have differences from it
        const auto others = uint32_t(schemes_.size()) - 1;
        parallel(others * a_.chunks, [&](uint32_t job) { measure(1 + job / a_.chunks, job % a_.chunks); });
    }

  private:
    std::span<const uint32_t> chunk(uint32_t text) const { return ids_.subspan(size_t(text) * a_.context, a_.context); }

    template <class Body> void parallel(uint32_t count, Body body) {
        std::atomic<uint32_t> next = 0;
        std::mutex mutex;
        std::exception_ptr failure;
        const auto work = [&] {
            try {
                for (uint32_t at; (at = next++) < count;) body(at);
            } catch (...) {
                const std::lock_guard lock(mutex);
                failure = std::current_exception();
                next = count;
            }
        };
        {
            std::vector<std::jthread> threads;
            for (uint32_t i = 0; i < a_.threads; i++) threads.emplace_back(work);
        }
        if (failure) std::rethrow_exception(failure);
    }

    void measure(uint32_t scheme, uint32_t text) {
        const auto ids = chunk(text);
        std::vector<Divergence> tokens(ids.size() - 1);
        Result result;
        for (uint32_t r = a_.rotations; r-- > 0;) { // the cache's own ones last, from which all but KL come
            result = lab_.run(ids, schemes_[scheme], {}, r);
            for (uint32_t t = 0; t < tokens.size(); t++) {
                const double before = tokens[t].kl;
                tokens[t] = quality::divergence(result.logits[t], references_[text][t], ids[t + 1]);
                tokens[t].kl = before + tokens[t].kl / a_.rotations;
            }
        }
        const std::lock_guard lock(mutex_);
        Measured& m = measured_[scheme];
        m.texts[text] = std::move(tokens);
        m.k_bits += result.k_bits / a_.chunks, m.v_bits += result.v_bits / a_.chunks;
        if (++m.done < a_.chunks) return;
        fmt::print("{}\n", line(schemes_[scheme], m, measured_[0], lab_.config(), a_.context));
        std::fflush(stdout);
    }

    const Arguments& a_;
    const Lab& lab_;
    const std::span<const uint32_t> ids_;
    std::vector<Scheme> schemes_;
    std::vector<Measured> measured_;
    std::vector<std::vector<std::vector<float>>> references_;
    std::mutex mutex_;
};

int run(const Arguments& a) {
    const Model model = load_model(utf8_path(a.model));
    Lab lab(model, a.conditioning == "norms", a.context);
    const std::vector<uint32_t> ids = read_ids(model, a.text);
    if (ids.size() / a.context < a.chunks)
        fail("{} has {} tokens, too few for {} texts of {}", a.text, ids.size(), a.chunks, a.context);
    if (!a.calibration.empty()) lab.calibrate(read_ids(model, a.calibration));
    fmt::print("| scheme K/V | bits | B/token 2k | 8k | 32k | KL | median | same top | KL less the first's | 1st quarter | 2nd | "
               "3rd | 4th |\n"
               "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    Measurement(a, lab, ids).run();
    return 0;
}

} // namespace

int main(int argc, char** argv) try {
    CLI::App app("Measures what coding whole pages of a KV cache costs a model.");
    Arguments a;
    app.add_option("schemes", a.schemes, "schemes, as README.md says")->required();
    app.add_option("-m,--model", a.model, "GGUF file")->required();
    app.add_option("-f,--file", a.text, "text to measure on")->required();
    app.add_option("--calibrate", a.calibration, "text for calibrated schemes, another one");
    app.add_option("--kv-condition", a.conditioning, "norms or none")->check(CLI::IsMember({"norms", "none"}));
    app.add_option("-c,--ctx-size", a.context, "tokens of a text")->check(CLI::Range(64, 32768));
    app.add_option("--chunks", a.chunks, "number of texts")->check(CLI::Range(1, 1000));
    app.add_option("--rotations", a.rotations, "rotations over which each token's KL is averaged")->check(CLI::Range(1, 100));
    app.add_option("-t,--threads", a.threads, "threads")->check(CLI::Range(1, 256));
    CLI11_PARSE(app, argc, argv);
    return run(a);
} catch (const tq::Error& e) {
    fmt::print(stderr, "page-lab: {}\n", e.what());
    return 1;
}
