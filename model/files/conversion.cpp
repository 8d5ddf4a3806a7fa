// Plans and makes the weights of `tq-run quantize`. The plan comes first and whole: the keys, and for each tensor its name,
// dimensions and new format. So what cannot be converted is an error before a byte is written, and the size of the file is known.
// The tensors are then made in pieces of some 2 million values. Within a piece the rows are independent and go to all threads; a
// row's bytes depend on nothing but the row, so the file is the same for any number of threads. The checksum is one of checksums
// of pieces, whose boundaries depend on the tensor's shape alone (piece_rows()). A reader can therefore compute it in the same
// pieces.
// Weights of a Hugging Face directory come in PyTorch's layout and leave in GGUF's: three differences are undone here, each by a
// view that reorders rows when they are read (in_gguf_order(), packed_gates()).
#include "model/files/conversion.h"
#include "base/checksum.h"
#include "base/mapped_file.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/quantise.h"
#include "model/files/gguf_keys.h"
#include "model/weights/hybrid_weights.h"
#include "model/weights/paired_rows.h"
#include "model/weights/tiled_heads.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace tq {
namespace {

constexpr uint64_t piece_values = 1 << 21; // that are converted at a time

bool is_plain(GgmlType type) { return type == GgmlType::F32 || type == GgmlType::F16 || type == GgmlType::BF16; }

uint32_t piece_rows(const Tensor& t) { return uint32_t(std::clamp<uint64_t>(piece_values / t.cols, 1, t.rows)); }

// Calls body(first row, count) for the pieces of a tensor until it returns false.
template <class F> void each_piece(const Tensor& t, F body) {
    const uint32_t max = piece_rows(t);
    for (uint32_t first = 0; first < t.rows; first += max)
        if (!body(first, std::min(max, t.rows - first))) return;
}

uint64_t add_to(uint64_t sum, std::span<const std::byte> piece) {
    const std::array<uint64_t, 2> both{sum, checksum(piece)};
    return checksum(std::as_bytes(std::span(both)));
}

std::vector<uint64_t> dimensions(const FileTensor& t) {
    size_t count = 4;
    while (count > 1 && t.ne[count - 1] == 1) --count;
    return {t.ne.begin(), t.ne.begin() + ptrdiff_t(count)};
}

class Planner {
  public:
    Planner(const Model& model, const ConversionOptions& options) : model_(model), options_(options) {}

    Conversion plan() {
        refuse_scaling();
        put_gguf_keys(out_.writer, model_, options_.mix->file_type);
        out_.notes = notes_on_gguf_keys(model_);
        if (model_.file.rope_is_split())
            add_huggingface();
        else
            for (const FileTensor& t : model_.file.tensors()) add(file_tensor(t), dimensions(t));
        choose_types();
        return std::move(out_);
    }

  private:
    // Llama 3's scaling is a tensor of GGUF files, which no loader accepts in other architectures.
    void refuse_scaling() const {
        const Config& c = model_.config;
        if (!c.rope_factors.empty() && !c.architecture->rope_factors)
            fail("{}: RoPE has the scaling of Llama 3, which GGUF files of '{}' cannot have: run the directory itself, with "
                 "--weights q8_0 or q4_0 if it is to take less memory",
                 utf8_text(model_.file.path()), c.architecture->name);
    }

    Tensor file_tensor(const FileTensor& t) const {
        const uint64_t rows = t.ne[1] * t.ne[2] * t.ne[3];
        if (!block_format(t.type) || rows > UINT32_MAX || t.ne[0] > UINT32_MAX)
            fail("{}: tensor '{}' has the format {}, which tq-run cannot read", utf8_text(model_.file.path()), printable(t.name),
                 type_name(t.type));
        return {.name = t.name, .type = t.type, .rows = uint32_t(rows), .cols = uint32_t(t.ne[0]), .data = t.data};
    }

    // Adds the tensors that the loader makes of a Hugging Face directory: as GGUF has them, except heads that RoPE turns in
    // pairs, and value heads of hybrids, whose gates some files have in one. Qwen3-Next's GGUF has the two gates of a recurrence
    // in one matrix, so the first of the pair is held back until the second comes: for_each_tensor() gives ssm_beta immediately
    // before ssm_alpha.
    void add_huggingface() {
        const Config& c = model_.config;
        const Tensor* beta = nullptr;
        for_each_tensor(model_.weights, [&](const Tensor& t) {
            const bool packed = c.recurrent && !c.architecture->tiled_heads;
            if (packed && t.name.ends_with("ssm_beta.weight")) {
                beta = &t; // the next one is ssm_alpha
                return;
            }
            const bool both = packed && t.name.ends_with("ssm_alpha.weight");
            const Tensor from = both ? packed_gates(*beta, t, *c.recurrent) : in_gguf_order(t);
            add(from, huggingface_dimensions(from));
        });
        if (!c.rope_factors.empty()) {
            const auto bytes = std::as_bytes(std::span(c.rope_factors));
            add({"rope_freqs.weight", GgmlType::F32, 1, uint32_t(c.rope_factors.size()), bytes}, {c.rope_factors.size()});
        }
    }

    Tensor in_gguf_order(const Tensor& t) const {
        const Config& c = model_.config;
        const bool pairs = c.architecture->gguf_pairs == RopePairs::neighbours;
        if (pairs && (t.name.ends_with("attn_q.weight") || t.name.ends_with("attn_k.weight")))
            return rope_neighbours(t, c.head_dim);
        return c.architecture->tiled_heads && c.recurrent ? in_tiled_order(t, *c.recurrent) : t;
    }

    std::vector<uint64_t> huggingface_dimensions(const Tensor& t) const {
        const Config& c = model_.config;
        if (t.name.ends_with("ssm_conv1d.weight")) return {c.recurrent->conv_kernel, t.cols / c.recurrent->conv_kernel};
        if (t.name.ends_with("_exps.weight")) return {t.cols, t.rows / c.num_experts, c.num_experts};
        if (t.rows == 1) return {t.cols};
        return {t.cols, t.rows};
    }

    void add(Tensor from, std::vector<uint64_t> ne) {
        const GgmlType kept = model_.file.rope_is_split() ? GgmlType::F32 : from.type;
        out_.tensors.push_back({std::move(from), std::move(ne), kept});
    }

    void choose_types() {
        std::vector<std::string_view> names;
        for (const ConvertedTensor& t : out_.tensors) names.push_back(t.from.name);
        const MixedTypes types(model_.file, names, *options_.mix, options_.mixed);
        std::map<std::pair<GgmlType, GgmlType>, uint32_t> replaced; // matrices, by the format wanted and that instead
        for (ConvertedTensor& t : out_.tensors) {
            std::array<uint64_t, 4> all{1, 1, 1, 1};
            std::copy(t.ne.begin(), t.ne.end(), all.begin());
            const std::optional<GgmlType> chosen = types.of(t.from.name, all);
            if (chosen && *chosen != types.requested(t.from.name)) ++replaced[{types.requested(t.from.name), *chosen}];
            t.type = chosen.value_or(t.type);
            check(t.from, t.type);
            out_.writer.add_tensor(t.from.name, t.type, t.ne);
        }
        for (const auto& [formats, count] : replaced)
            out_.notes.push_back(fmt::format("{} instead of {} for {}, with rows that are no multiple of {}",
                                             type_name(formats.second), type_name(formats.first),
                                             count == 1 ? "a matrix" : fmt::format("{} matrices", count),
                                             block_format(formats.first)->elements));
    }

    void check(const Tensor& from, GgmlType type) const {
        if (type == from.type) return;
        if (block_format(from.type)->has_factor)
            fail("{}: tensor '{}' is in {}, which tq-run quantize does not convert: take a file in F16, BF16 or F32",
                 utf8_text(model_.file.path()), printable(from.name), type_name(from.type));
        if (!is_plain(from.type) && !options_.allow_requantize)
            fail("{}: tensor '{}' is quantised already ({}), and would lose more: take a file in F16, BF16 or F32, or give "
                 "--allow-requantize",
                 utf8_text(model_.file.path()), printable(from.name), type_name(from.type));
        if (!has_encoder(type)) fail("tq-run quantize does not make {}", type_name(type));
    }

    const Model& model_;
    const ConversionOptions& options_;
    Conversion out_;
};

// Returns the importances of a row's columns; none if there are none of its matrix.
std::span<const float> importance_of(const std::vector<float>* all, const ConvertedTensor& t, uint32_t row) {
    if (all == nullptr) return {};
    const uint64_t lists = all->size() / t.from.cols, rows = std::max<uint64_t>(1, t.from.rows / lists);
    return std::span(*all).subspan(std::min(row / rows, lists - 1) * t.from.cols, t.from.cols);
}

// An imatrix of a stack of experts has a list for each expert, or one for all; both are a multiple of the columns. Importances of
// another length are not used.
const std::vector<float>* importances_of(const Importances& all, const ConvertedTensor& t) {
    const auto found = all.find(t.from.name);
    return found == all.end() || found->second.size() % t.from.cols != 0 || found->second.empty() ? nullptr : &found->second;
}

} // namespace

double ConversionError::relative() const { return norm > 0 ? std::sqrt(error / norm) : 0; }

Conversion plan_conversion(const Model& model, const ConversionOptions& options) { return Planner(model, options).plan(); }

std::optional<uint64_t> convert_tensor(ThreadPool& pool, const ConvertedTensor& t, const Importances& importances,
                                       const std::function<void(std::span<const std::byte>)>& write,
                                       const ConversionProgress& on_progress) {
    const uint64_t row = row_bytes(t.type, t.from.cols);
    const std::vector<float>* const importance = importances_of(importances, t);
    std::vector<std::byte> piece(row * piece_rows(t.from));
    uint64_t sum = 0, done = 0;
    bool stopped = false;
    each_piece(t.from, [&](uint32_t first, uint32_t count) {
        pool.each(count, 1, [&](uint32_t begin, uint32_t end) {
            std::vector<float> values(t.from.cols);
            std::vector<std::byte> scratch;
            for (uint32_t r = begin; r < end; ++r) {
                const std::span to = std::span(piece).subspan(r * row, row);
                if (t.type == t.from.type) {
                    std::memcpy(to.data(), t.from.read(first + r, 1, scratch).data(), row);
                    continue;
                }
                t.from.decode(first + r, values, scratch);
                quantise_row(t.type, to, values, importance_of(importance, t, first + r));
            }
        });
        check_mapped_files();
        const std::span made = std::span(piece).first(count * row);
        if (const auto bad = find_nonfinite_block(t.type, made))
            throw WrongWeight(fmt::format("tensor '{}', row {}: a weight is NaN, infinite or too large for {}{}",
                                          printable(t.from.name), first + *bad * block_format(t.type)->bytes / row,
                                          type_name(t.type), t.type == GgmlType::F16 ? ": BF16 has room for all of F32" : ""));
        write(made);
        sum = add_to(sum, made);
        done += made.size();
        return !(stopped = on_progress && !on_progress(done));
    });
    return stopped ? std::nullopt : std::optional(sum);
}

uint64_t conversion_checksum(const ConvertedTensor& t, std::span<const std::byte> bytes) {
    const uint64_t row = row_bytes(t.type, t.from.cols);
    uint64_t sum = 0;
    each_piece(t.from, [&](uint32_t first, uint32_t count) {
        sum = add_to(sum, bytes.subspan(first * row, count * row));
        return true;
    });
    return sum;
}

ConversionError conversion_error(ThreadPool& pool, const ConvertedTensor& t, std::span<const std::byte> bytes) {
    const uint64_t row = row_bytes(t.type, t.from.cols);
    std::vector<ConversionError> rows(t.from.rows);
    pool.each(t.from.rows, 1, [&](uint32_t begin, uint32_t end) {
        std::vector<float> original(t.from.cols), copy(t.from.cols);
        std::vector<std::byte> scratch;
        for (uint32_t r = begin; r < end; ++r) {
            t.from.decode(r, original, scratch);
            decode_row(t.type, copy, bytes.subspan(r * row, row));
            for (size_t i = 0; i < original.size(); ++i) {
                const double difference = double(copy[i]) - original[i];
                rows[r].error += difference * difference;
                rows[r].norm += double(original[i]) * original[i];
            }
        }
    });
    ConversionError sum{0, 0, uint64_t(t.from.rows) * t.from.cols};
    for (const ConversionError& one : rows) { // in their order, whatever thread had which
        sum.error += one.error;
        sum.norm += one.norm;
    }
    return sum;
}

} // namespace tq
