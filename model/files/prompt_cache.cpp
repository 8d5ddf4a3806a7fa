#include "model/files/prompt_cache.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/printable.h"
#include <algorithm>
#include <cstring>
#include <fmt/ranges.h>
#include <sstream>

namespace tq {
namespace {

constexpr const char *prompt_cache_format = "tq-run-prompt-cache", *prompt_cache_version = "2";
constexpr const char* another_file = "name another file with --prompt-cache, or delete this one to have it made again";

std::string part_name(uint32_t layer, KvSide side, const char* part) {
    return fmt::format("layers.{}.{}.{}", layer, side == KvSide::key ? "k" : "v", part);
}

KvType type_of(const KvTypes& types, KvSide side) { return side == KvSide::key ? types.k : types.v; }

// Returns the codec without the rotation, since a dense one takes long to make.
KvCodec codec_of(KvType type, uint32_t head_dim) {
    KvCodec codec;
    codec.type = type;
    codec.rotation.head_dim = head_dim;
    return codec;
}

std::vector<TensorShape> tensor_shapes(const Config& c, const KvOptions& kv, uint64_t tokens) {
    std::vector<TensorShape> all{{"ids", safetensors_i32, {tokens}}};
    for (uint32_t layer = 0; layer < c.num_hidden_layers; layer++)
        for (const KvSide side : {KvSide::key, KvSide::value}) {
            const KvType type = type_of(kv.at(layer, c.num_hidden_layers), side);
            const uint64_t heads = c.num_key_value_heads, words = code_words(type, c.head_dim),
                           scales = scale_count(type, c.head_dim);
            all.push_back({part_name(layer, side, "codes"), safetensors_i32, {heads, tokens, words}});
            if (scales > 0) all.push_back({part_name(layer, side, "scales"), GgmlType::F16, {heads, tokens, scales}});
        }
    all.push_back({"check", safetensors_i32, {all.size(), 2}});
    return all;
}

std::string rope_text(const Config& c) {
    const RopeScaling& r = c.rope_scaling;
    return fmt::format("{} x{} of {}, attn {}, beta {} {}, theta {}", name(r.type), r.factor, r.original_context_length,
                       r.attn_factor, r.beta_fast, r.beta_slow, c.rope_theta);
}

std::string types_text(const PromptCacheOwner& owner) {
    std::vector<std::string> all;
    for (uint32_t layer = 0; layer < owner.config.num_hidden_layers; layer++) {
        const KvTypes types = owner.kv.at(layer, owner.config.num_hidden_layers);
        all.push_back(fmt::format("{}/{}", name(types.k), name(types.v)));
    }
    return fmt::format("{}", fmt::join(all, " "));
}

std::string conditioning_text(const PromptCacheOwner& owner) {
    const KeyConditioning& by = owner.kv.conditioning;
    if (by.kind != KeyConditioning::Kind::measured) {
        std::vector<std::string> all;
        for (uint32_t layer = 0; layer < owner.config.num_hidden_layers; layer++)
            all.push_back(describe(owner.kv.conditioning_of(layer, owner.config.num_hidden_layers)));
        if (std::ranges::count(all, all[0]) == std::ptrdiff_t(all.size())) return all[0];
        return fmt::format("{}", fmt::join(all, " "));
    }
    ENSURE(by.calibration != nullptr, "{} was not read", by.file);
    std::vector<float> all = by.calibration->scales;
    all.insert(all.end(), by.calibration->means.begin(), by.calibration->means.end());
    return fmt::format("measured {:016x}", checksum(std::as_bytes(std::span(all))));
}

SafetensorsMetadata metadata_of(const PromptCacheOwner& owner) {
    return {{"format", prompt_cache_format},
            {"version", prompt_cache_version},
            {"fingerprint", owner.fingerprint},
            {"rope", rope_text(owner.config)},
            {"types", types_text(owner)},
            {"rotation", name(owner.kv.rotation)},
            {"scale_rule", name(owner.kv.scale_rule)},
            {"conditioning", conditioning_text(owner)},
            {"model", printable(owner.model)}};
}

void check_types(const std::string& shown, const std::string& theirs, const std::string& ours) {
    std::istringstream saved(theirs), here(ours);
    std::string a, b;
    for (uint32_t layer = 0; here >> b; layer++) {
        if (!(saved >> a)) a = "nothing";
        if (a != b)
            fail("{}: it was saved with layer {} in {}, but this cache stores it in {}: give the cache types that it was saved "
                 "with (--kv, -ctk, -ctv, --kv-layers), or {}",
                 shown, layer, printable(a), b, another_file);
    }
}

// Throws Error with the difference.
void check_owner(const std::string& shown, SafetensorsMetadata saved, const PromptCacheOwner& owner) {
    SafetensorsMetadata here = metadata_of(owner);
    if (saved["format"] != prompt_cache_format) fail("{}: it is not a file of {}: {}", shown, prompt_cache_format, another_file);
    if (saved["version"] != prompt_cache_version)
        fail("{}: another version of tq-run saved it as {} {}, but this one reads {}: {}", shown, prompt_cache_format,
             printable(saved["version"]), prompt_cache_version, another_file);
    const auto compare = [&](const char* key, const char* what, const char* flags) {
        if (saved[key] != here[key])
            fail("{}: it was saved with {} {}, but this run has {}: give the same {}, or {}", shown, what, printable(saved[key]),
                 here[key], flags, another_file);
    };
    compare("rope", "positions", "--rope flags");
    if (saved["fingerprint"] != here["fingerprint"])
        fail("{}: it was saved with another model, or with other --weights: \"{}\", fingerprint {}, but this model has {}: {}",
             shown, printable(saved["model"]), printable(saved["fingerprint"]), here["fingerprint"], another_file);
    check_types(shown, saved["types"], here["types"]);
    compare("rotation", "the rotation", "--kv-rotation");
    compare("scale_rule", "the scale rule", "--kv-scale");
    compare("conditioning", "the channel scaling", "--kv-condition");
}

void check_shapes(const std::string& shown, const ModelFile& file, const std::vector<TensorShape>& shapes) {
    for (const TensorShape& want : shapes) {
        const FileTensor* tensor = file.find_tensor(want.name);
        std::array<uint64_t, 4> ne{1, 1, 1, 1};
        std::ranges::reverse_copy(want.shape, ne.begin());
        if (!tensor || tensor->type != want.type || tensor->ne != ne)
            fail("{}: its tensor {} is not {} of {}: the file is damaged; {}", shown, want.name, type_name(want.type),
                 fmt::join(want.shape, " x "), another_file);
    }
    if (file.tensors().size() != shapes.size())
        fail("{}: {} tensors, not {}: the file is damaged; {}", shown, file.tensors().size(), shapes.size(), another_file);
}

// values = the rows' first bytes: row i begins at i * from.size() / rows.
template <class T> void gather(std::span<T> values, std::span<const std::byte> from, size_t rows) {
    const std::span to = std::as_writable_bytes(values);
    for (size_t i = 0; i < rows; i++)
        std::ranges::copy(from.subspan(from.size() / rows * i, to.size() / rows), to.begin() + ptrdiff_t(to.size() / rows * i));
}

} // namespace

uint64_t prompt_cache_bytes(const PromptCacheOwner& owner, uint32_t tokens) {
    const auto shapes = tensor_shapes(owner.config, owner.kv, tokens);
    uint64_t bytes = safetensors_header(shapes, metadata_of(owner)).size();
    for (const TensorShape& t : shapes) bytes += t.bytes();
    return bytes;
}

void write_prompt_cache(const PromptCacheOwner& owner, std::span<const uint32_t> ids, const StoredSource& stored,
                        const std::function<void(std::span<const std::byte>)>& write) {
    ENSURE(!ids.empty(), "{} tokens", ids.size());
    const std::string header = safetensors_header(tensor_shapes(owner.config, owner.kv, ids.size()), metadata_of(owner));
    std::vector<uint64_t> check;
    const auto add = [&](std::span<const std::byte> tensor) {
        check.push_back(checksum(tensor));
        write(tensor);
    };
    write(std::as_bytes(std::span(header)));
    add(std::as_bytes(ids));
    for (uint32_t layer = 0; layer < owner.config.num_hidden_layers; layer++)
        for (const KvSide side : {KvSide::key, KvSide::value}) {
            const StoredSide all = stored(layer, side);
            ENSURE(all.codec.type == type_of(owner.kv.at(layer, owner.config.num_hidden_layers), side) &&
                       all.heads == owner.config.num_key_value_heads && all.tokens == ids.size(),
                   "{} of {} tokens, {} heads of {}", all.tokens, ids.size(), all.heads, name(all.codec.type));
            add(std::as_bytes(std::span(all.codes)));
            if (!all.scales.empty()) add(std::as_bytes(std::span(all.scales)));
        }
    write(std::as_bytes(std::span(check)));
}

PromptCacheFile::PromptCacheFile(const std::filesystem::path& path, const PromptCacheOwner& owner)
    : shown_(printable(utf8_text(path), 200)), file_(path), kv_(owner.kv), config_(owner.config) {
    SafetensorsMetadata metadata;
    file_.mutable_tensors() = read_safetensors(file_, path, &metadata, true);
    check_owner(shown_, metadata, owner);
    const FileTensor* ids = file_.find_tensor("ids");
    const uint64_t tokens = ids ? ids->ne[0] : 0;
    if (tokens == 0 || tokens > UINT32_MAX) fail("{}: {} tokens: the file is damaged; {}", shown_, tokens, another_file);
    shapes_ = tensor_shapes(config_, kv_, tokens);
    check_shapes(shown_, file_, shapes_);
    ids_.resize(tokens);
    gather(std::span(ids_), checked("ids"), 1);
    if (const auto bad = std::ranges::find_if(ids_, [&](uint32_t id) { return id >= config_.vocab_size; }); bad != ids_.end())
        fail("{}: token {} of a vocabulary of {}: the file is damaged; {}", shown_, *bad, config_.vocab_size, another_file);
}

// Returns the bytes of a tensor after checking their checksum.
std::span<const std::byte> PromptCacheFile::checked(const std::string& name) const {
    const size_t index = size_t(std::ranges::find(shapes_, name, &TensorShape::name) - shapes_.begin());
    ENSURE(index + 1 < shapes_.size(), "{}", name);
    const std::span data = file_.find_tensor(name)->data;
    uint64_t written;
    std::memcpy(&written, file_.find_tensor("check")->data.data() + index * sizeof written, sizeof written);
    const bool as_written = checksum(data) == written;
    check_mapped_files();
    if (!as_written) fail("{}: its tensor {} has a wrong checksum: the file is damaged; {}", shown_, name, another_file);
    return data;
}

StoredSide PromptCacheFile::read(uint32_t layer, KvSide side, uint32_t tokens) const {
    ENSURE(tokens <= ids_.size(), "{} of {}", tokens, ids_.size());
    StoredSide out(codec_of(type_of(kv_.at(layer, config_.num_hidden_layers), side), config_.head_dim),
                   config_.num_key_value_heads, tokens);
    gather(std::span(out.codes), checked(part_name(layer, side, "codes")), out.heads);
    if (out.codec.scales() > 0) gather(std::span(out.scales), checked(part_name(layer, side, "scales")), out.heads);
    return out;
}

} // namespace tq
