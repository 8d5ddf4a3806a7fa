// Two names of a model. The fingerprint is of its content: shape, RoPE, and the bytes of all weights. It decides whether stored
// pages or a calibration belong to the model, so a single changed weight must change it. To compute it takes as long as to read
// the model, so it is kept on the disk under the identities of the files (device, inode, size, time of modification).
// That is sound only if a file that changes also changes its identity. Times have a resolution, of 2 s on some file systems: a
// file that was modified just now may change again within one tick. The checksum of such a file is computed but not kept
// (is_settled()).
// The file fingerprint is of the identities alone, and costs nothing.
// The text of a kept checksum has the whole key in it, not only its hash in the name, so that a collision is noticed.
#include "model/files/fingerprint.h"
#include "base/cache_directory.h"
#include "base/checksum.h"
#include "base/mapped_file.h"
#include "base/whole_file.h"
#include "model/load.h"
#include "model/prefix/page_name.h"
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <fstream>
#include <iterator>

namespace tq {
namespace {

namespace fs = std::filesystem;

constexpr auto settled =
    std::chrono::seconds(2); // a file that was changed at least this long ago gets another time when it changes again

std::string hex(uint64_t sum) { return fmt::format("{:016x}", sum); }
std::string sum_of(std::string_view text) { return hex(checksum(std::as_bytes(std::span(text)))); }

// Parts that only some models have are left out for the others. The text of a model must not change when this program learns a
// new kind of model, or all caches would be void.
std::string shape_text(const Config& c) {
    const RopeScaling& r = c.rope_scaling;
    std::string some; // what some models alone have, so that the names of other models' files stay
    if (c.num_experts != 0)
        some = fmt::format("{} {} {} {}\n", c.num_experts, c.num_experts_per_tok, c.moe_intermediate_size, c.norm_topk_prob);
    if (!c.rope_factors.empty()) some += hex(checksum(std::as_bytes(std::span(c.rope_factors)))) + '\n';
    return some + fmt::format("{} {} {} {} {} {} {} {} {}\n{} {} {} {} {} {}\n", c.vocab_size, c.hidden_size, c.intermediate_size,
                              c.num_hidden_layers, c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.rope_theta,
                              c.rms_norm_eps, name(r.type), r.factor, r.original_context_length, r.attn_factor, r.beta_fast,
                              r.beta_slow);
}

std::string tensor_text(const Tensor& t) {
    const std::string factors = t.factors.empty() ? "" : ' ' + hex(checksum(std::as_bytes(std::span(t.factors))));
    return fmt::format("{} {} {} {}{}\n", t.name, type_name(t.type), t.rows, t.cols, factors);
}

class Hasher {
  public:
    Hasher(const Weights& weights, const LoadProgress& on_hash) : weights_(weights), on_hash_(on_hash), total_(weights.bytes()) {}

    std::string all() {
        std::string text;
        for_each_tensor(weights_, [&](const Tensor& t) { text += tensor_text(t) + hex(sum(t)) + '\n'; });
        check_mapped_files();
        return sum_of(text);
    }

  private:
    // A sum of sums, row by row, so that rows can be read by several threads in any order.
    uint64_t sum(const Tensor& t) {
        std::vector<uint64_t> sums(t.rows);
        const uint64_t row = t.row_bytes();
        const auto max = uint32_t(std::max<uint64_t>(1, progress_bytes / row));
        for (uint32_t first = 0; first < t.rows; first += max) {
            const uint32_t count = std::min(max, t.rows - first);
            pool_.each(count, 16, [&](uint32_t begin, uint32_t end) {
                std::vector<std::byte> scratch;
                for (uint32_t r = first + begin; r < first + end; r++) sums[r] = checksum(t.read(r, 1, scratch));
            });
            done_ += count * row;
            if (on_hash_ && !on_hash_(done_, total_)) throw LoadStopped();
        }
        return checksum(std::as_bytes(std::span(sums)));
    }

    const Weights& weights_;
    const LoadProgress& on_hash_;
    ThreadPool pool_;
    uint64_t done_ = 0, total_;
};

std::string files_text(const Weights& weights) {
    std::string tensors;
    for_each_tensor(weights, [&](const Tensor& t) { tensors += tensor_text(t); });
    std::string text = fmt::format("tensors {}\n", sum_of(tensors));
    for (const FileIdentity& f : weights.files)
        text += fmt::format("file {} {} {} {}\n", f.device, f.number, f.bytes, f.modified_ns);
    return text;
}

// A stored checksum: its key, and its file; the path is empty if it cannot be stored.
struct Kept {
    fs::path path;
    std::string text;

    explicit Kept(const Weights& weights) {
        const fs::path directory = cache_directory();
        if (weights.files.empty() || directory.empty()) return;
        text = "tq-run-fingerprint 1\n" + files_text(weights);
        path = directory / "fingerprints" / sum_of(text);
    }

    // Returns an empty text if there is none, or it is incomplete.
    std::string read() const {
        std::error_code error;
        if (path.empty() || !fs::is_regular_file(path, error) || fs::file_size(path, error) != text.size() + 17) return {};
        std::ifstream file(path, std::ios::binary);
        const std::string found((std::istreambuf_iterator<char>(file)), {});
        const std::string sum = found.substr(std::min(found.size(), text.size()), 16);
        const bool whole = sum.size() == 16 && sum.find_first_not_of("0123456789abcdef") == std::string::npos;
        return whole && found == text + sum + '\n' ? sum : std::string();
    }

    // If this fails, the next run reads the model again.
    void write(const std::string& sum) const {
        if (path.empty()) return;
        std::error_code ignored;
        fs::create_directories(path.parent_path(), ignored);
        const std::string all = text + sum + '\n';
        write_whole_file(path, {std::as_bytes(std::span(all))});
    }
};

bool is_settled(const Weights& weights) {
    const int64_t now =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    return std::ranges::all_of(
        weights.files, [&](const FileIdentity& f) { return f.modified_ns < now - std::chrono::nanoseconds(settled).count(); });
}

std::string tensors_sum(const Weights& weights, const LoadProgress& on_hash) {
    const Kept kept(weights);
    std::string sum = kept.read();
    if (!sum.empty()) return sum;
    const bool keep = is_settled(weights);
    sum = Hasher(weights, on_hash).all();
    if (keep) kept.write(sum);
    return sum;
}

} // namespace

// The model is the same with its head for multi-token prediction and without.
static Weights without_head(Weights weights) {
    weights.mtp.reset();
    return weights;
}

std::string model_fingerprint(const Config& config, const Weights& weights, const LoadProgress& on_hash) {
    return sum_of(shape_text(config) + tensors_sum(without_head(weights), on_hash));
}

std::string file_fingerprint(const Config& config, const Weights& weights) {
    if (weights.files.empty() || !is_settled(weights)) return {};
    return "files " + name_of_owner(shape_text(config) + files_text(without_head(weights))).hex();
}

} // namespace tq
