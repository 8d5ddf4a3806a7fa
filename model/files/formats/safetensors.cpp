// Reads safetensors. The header is small JSON, read whole; the data is used in place.
#include "model/files/formats/safetensors.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/git_lfs.h"
#include "model/files/formats/json.h"
#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace tq {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian, and tensors are read as they lie");

constexpr uint64_t max_header_bytes = 16u << 20; // the format allows 100,000,000; 707 tensors of Qwen3-32B take some 80,000
constexpr uint64_t max_tensors = 1u << 18;       // Qwen3-Next-80B-A3B has some 74,000: three for each of 512 experts in 48 layers
constexpr uint64_t max_index_bytes = 16u << 20;
constexpr uint64_t max_tensor_elements = uint64_t(1) << 57; // of one tensor, so that sizes in bits do not overflow
constexpr int header_depth = 3;                             // { name: { shape: [ ] } }

struct DType {
    const char* name;
    uint32_t bits;
    std::optional<GgmlType> ggml; // empty if we have no weight format for it
};

constexpr std::array<DType, 23> dtypes{{
    {"F32", 32, GgmlType::F32},
    {"F16", 16, GgmlType::F16},
    {"BF16", 16, GgmlType::BF16},
    {"F64", 64, {}},
    {"I64", 64, {}},
    {"U64", 64, {}},
    {"C64", 64, {}},
    {"I32", 32, safetensors_i32},
    {"U32", 32, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"I8", 8, {}},
    {"U8", 8, {}},
    {"BOOL", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
    {"F4_E2M1", 4, {}},
}};

// One entry of the header; its errors begin with the file and the tensor.
// Shape, type and offsets say the size of a tensor twice, and both must agree to the bit. Only then is the span made.
class EntryReader {
  public:
    EntryReader(const std::string& path, const std::string& name, const json& entry, bool integers)
        : subject_(fmt::format("{}: tensor '{}'", path, printable(name))), name_(name), entry_(entry), integers_(integers) {}

    struct Placed {
        FileTensor tensor; // without its data
        uint64_t begin, end;
    };

    Placed read(uint64_t data_bytes) const {
        if (!entry_.is_object()) error("it is {}, not an object", kind_of(entry_));
        for (const auto& [key, value] : entry_.items()) {
            if (key != "dtype" && key != "shape" && key != "data_offsets") error("it has an unknown key '{}'", printable(key));
        }
        const DType& dtype = read_dtype();
        Placed placed{{name_, dtype.ggml.value_or(GgmlType::F32), {1, 1, 1, 1}, {}}, 0, 0};
        const uint64_t elements = read_shape(placed.tensor.ne);
        read_offsets(placed, data_bytes);
        if (elements * dtype.bits % 8 != 0 || elements * dtype.bits / 8 != placed.end - placed.begin) {
            error("{} elements of {} need {} bits, but its data_offsets span {} bytes", elements, dtype.name,
                  elements * dtype.bits, placed.end - placed.begin);
        }
        if (!dtype.ggml || (dtype.ggml == safetensors_i32 && !integers_)) refuse_dtype(dtype);
        return placed;
    }

  private:
    template <class... Args> [[noreturn]] void error(fmt::format_string<Args...> format, Args&&... args) const {
        fail("{}: {}", subject_, fmt::format(format, std::forward<Args>(args)...));
    }

    const json& member(const char* key, json::value_t type, const char* expected) const {
        const auto found = entry_.find(key);
        if (found == entry_.end()) error("its '{}' is missing", key);
        if (found->type() != type) error("its '{}' is {}, not {}", key, kind_of(*found), expected);
        return *found;
    }

    uint64_t integer(const json& value, const char* key) const {
        if (!value.is_number_unsigned()) error("its '{}' is not a list of whole numbers of at least 0", key);
        return value.get<uint64_t>();
    }

    const DType& read_dtype() const {
        const auto& name = member("dtype", json::value_t::string, "a text").get_ref<const std::string&>();
        const auto* found = std::find_if(dtypes.begin(), dtypes.end(), [&](const DType& d) { return name == d.name; });
        if (found == dtypes.end()) error("its dtype '{}' does not exist", printable(name));
        return *found;
    }

    [[noreturn]] void refuse_dtype(const DType& dtype) const {
        if (std::string_view(dtype.name).starts_with("F8")) {
            error("its dtype is {}: this is an FP8 release. Take the release without FP8 in its name, whose weights are BF16; "
                  "--weights q8_0 stores them in 8 bits",
                  dtype.name);
        }
        error("its dtype is {}; tq-run runs F32, F16 and BF16", dtype.name);
    }

    // Returns the number of elements. A tensor may have more than 4 dimensions, such as the filters of a vision tower's patches,
    // which are passed over: its slowest ones become one.
    uint64_t read_shape(std::array<uint64_t, 4>& ne) const {
        const json& shape = member("shape", json::value_t::array, "a list");
        uint64_t elements = 1;
        for (size_t i = 0; i < shape.size(); ++i) {
            const uint64_t n = integer(shape[i], "shape");
            if (n != 0 && elements > max_tensor_elements / n) error("a shape of more than 2^57 elements");
            elements *= n;
            const size_t at = shape.size() - 1 - i;
            if (at < ne.size())
                ne[at] *= n;
            else
                ne.back() *= n;
        }
        return elements;
    }

    void read_offsets(Placed& placed, uint64_t data_bytes) const {
        const json& offsets = member("data_offsets", json::value_t::array, "a list");
        if (offsets.size() != 2) error("its 'data_offsets' are {} numbers, not 2", offsets.size());
        placed.begin = integer(offsets[0], "data_offsets");
        placed.end = integer(offsets[1], "data_offsets");
        if (placed.begin > placed.end || placed.end > data_bytes) {
            error("its data_offsets {} to {} do not lie in the {} bytes of data: the file is damaged or not whole", placed.begin,
                  placed.end, data_bytes);
        }
    }

    const std::string subject_;
    const std::string& name_;
    const json& entry_;
    const bool integers_;
};

void check_metadata(const std::string& path, const json& metadata) {
    if (!metadata.is_object()) fail("{}: its '__metadata__' is {}, not an object", path, kind_of(metadata));
    for (const auto& [key, value] : metadata.items()) {
        if (!value.is_string()) fail("{}: '{}' in its '__metadata__' is {}, not a text", path, printable(key), kind_of(value));
    }
}

// The format requires that the tensors are contiguous and fill the data.
// A gap could hide data that no tensor shows, and an overlap would let one tensor be changed by another's weights.
void check_covering(const std::string& path, std::vector<EntryReader::Placed>& placed, uint64_t data_bytes) {
    std::sort(placed.begin(), placed.end(),
              [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    uint64_t end = 0;
    for (const auto& p : placed) {
        if (p.begin != end) {
            fail("{}: tensor '{}' begins at byte {} of the data, but the one before it ends at {}: they {}", path,
                 printable(p.tensor.name), p.begin, end, p.begin < end ? "overlap" : "leave a gap");
        }
        end = p.end;
    }
    if (end != data_bytes) fail("{}: {} bytes of data, but its tensors end at {}", path, data_bytes, end);
}

// The first eight bytes say how long the header is. They may be those of any file, so the length is compared with a limit before
// it is compared with the file; a Git LFS pointer, which a clone without LFS leaves in place of the weights, is named as such.
uint64_t header_bytes(const std::string& path, std::span<const std::byte> bytes) {
    refuse_lfs_pointer({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
    uint64_t length = 0;
    if (bytes.size() < sizeof length) fail("{}: the file is cut off after {} bytes: download it again", path, bytes.size());
    std::memcpy(&length, bytes.data(), sizeof length);
    if (length > max_header_bytes)
        fail("{}: it is not a safetensors file: its first bytes give a header of {} bytes; we read at most {}", path, length,
             max_header_bytes);
    if (length > bytes.size() - sizeof length) {
        fail("{}: the file is cut off, or damaged: download it again (a header of {} bytes, but {} are left)", path, length,
             bytes.size() - sizeof length);
    }
    if (length == 0 || char(bytes[sizeof length]) != '{') fail("{}: its header does not begin with '{{'", path);
    return length;
}

// True for tensors that files may lack although an index names them: heads of models that are tied, which is checked later, and
// frequencies of RoPE, which nothing reads.
bool may_be_absent(std::string_view tensor) { return tensor == "lm_head.weight" || tensor.ends_with("rotary_emb.inv_freq"); }

// Returns the shards that an index names, sorted by name; whether each has tensors that it must have.
// An index names files. They are opened, so a name must be plain: no separator of any system, no leading dot, no zero byte.
std::map<std::string, bool> read_index(const std::filesystem::path& path, std::map<std::string, std::string>& weight_map) {
    const json index = read_json_file(path, max_index_bytes);
    const auto map = index.is_object() ? index.find("weight_map") : index.end();
    if (!index.is_object() || map == index.end() || !map->is_object()) {
        fail("{}: it has no object 'weight_map'", utf8_text(path));
    }
    if (map->size() > max_tensors)
        fail("{}: {} tensors, more than the {} that tq-run reads", utf8_text(path), map->size(), max_tensors);
    if (map->empty()) fail("{}: its 'weight_map' names no files", utf8_text(path));
    std::map<std::string, bool> shards;
    for (const auto& [tensor, shard] : map->items()) {
        const std::string name = shard.is_string() ? shard.get<std::string>() : "";
        // Only plain names: nothing that leads out of the directory on any system.
        if (!name.ends_with(".safetensors") || name.size() > 255 || name.starts_with('.') ||
            name.find_first_of(std::string_view("/\\:\0", 4)) != name.npos) {
            fail("{}: the file of tensor '{}' is {}, not the plain name of a .safetensors file", utf8_text(path),
                 printable(tensor), name.empty() ? kind_of(shard) : fmt::format("'{}'", printable(name)));
        }
        shards[name] |= !may_be_absent(tensor);
        weight_map.emplace(tensor, name);
    }
    return shards;
}

// Appends the tensors of one of several files. found: the file of each tensor.
void read_shard(ModelFile& file, const std::filesystem::path& directory, const std::string& shard,
                std::map<std::string, std::string>& found, std::vector<FileTensor>& tensors) {
    for (FileTensor& t : read_safetensors(file, directory / utf8_path(shard))) {
        const auto [entry, is_new] = found.emplace(t.name, shard);
        if (!is_new)
            fail("{}: tensor '{}' is in '{}' and in '{}'", utf8_text(directory), printable(t.name), printable(entry->second),
                 printable(shard));
        tensors.push_back(std::move(t));
    }
}

std::set<std::string> safetensors_files(const std::filesystem::path& directory) {
    std::set<std::string> names;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
        if (const std::string name = utf8_text(entry->path().filename()); name.ends_with(".safetensors")) names.insert(name);
    return names;
}

// Reads model-00001-of-00002.safetensors and all others that begin with "model", if there is no index; empty if there are none.
// A tensor that is in none of them is found to be missing later.
std::vector<FileTensor> read_shards_without_index(ModelFile& file, const std::filesystem::path& directory) {
    std::set<std::string> shards = safetensors_files(directory);
    std::erase_if(shards, [](const std::string& name) { return !name.starts_with("model"); });
    std::map<std::string, std::string> found;
    std::vector<FileTensor> tensors;
    for (const std::string& shard : shards) read_shard(file, directory, shard, found, tensors);
    return tensors;
}

// Index and files must agree in both directions: each tensor of the index is in the file that it names, and no tensor is in two
// files.
std::vector<FileTensor> read_sharded(ModelFile& file, const std::filesystem::path& index) {
    std::map<std::string, std::string> weight_map, found;
    std::vector<FileTensor> tensors;
    for (const auto& [shard, is_needed] : read_index(index, weight_map)) {
        const bool is_missing = !is_there(index.parent_path() / utf8_path(shard));
        if (is_missing && is_needed)
            fail("{}: it names the file '{}', which is missing from its directory", utf8_text(index), printable(shard));
        if (!is_missing) read_shard(file, index.parent_path(), shard, found, tensors);
    }
    for (const auto& [tensor, shard] : weight_map) {
        const auto entry = found.find(tensor);
        if (entry == found.end() && may_be_absent(tensor)) continue;
        if (entry == found.end() || entry->second != shard) {
            fail("{}: tensor '{}' is not in '{}', where it should be", utf8_text(index), printable(tensor), printable(shard));
        }
    }
    return tensors;
}

} // namespace

std::vector<FileTensor> read_safetensors(ModelFile& file, const std::filesystem::path& path, SafetensorsMetadata* metadata,
                                         bool integers) {
    const std::string name = utf8_text(path);
    const std::span bytes = file.add_mapping(MappedFile(path)).bytes();
    const uint64_t length = header_bytes(name, bytes);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof length, length);
    const std::span data = bytes.subspan(sizeof length + length);
    const json header = read_json(text, name + ": header", header_depth);
    if (header.size() > max_tensors) fail("{}: {} tensors, more than the {} that tq-run reads", name, header.size(), max_tensors);
    std::vector<EntryReader::Placed> placed;
    for (const auto& [key, entry] : header.items()) {
        if (key == "__metadata__") {
            check_metadata(name, entry);
            if (metadata) *metadata = entry.get<SafetensorsMetadata>();
        } else {
            placed.push_back(EntryReader(name, key, entry, integers).read(data.size()));
        }
    }
    check_covering(name, placed, data.size());
    std::vector<FileTensor> tensors;
    for (auto& p : placed) {
        p.tensor.data = data.subspan(p.begin, p.end - p.begin);
        tensors.push_back(std::move(p.tensor));
    }
    return tensors;
}

std::vector<FileTensor> read_safetensors_directory(ModelFile& file, const std::filesystem::path& directory) {
    namespace fs = std::filesystem;
    if (is_there(directory / "model.safetensors")) return read_safetensors(file, directory / "model.safetensors");
    const fs::path index = directory / "model.safetensors.index.json";
    if (is_there(index)) return read_sharded(file, index);
    if (auto tensors = read_shards_without_index(file, directory); !tensors.empty()) return tensors;
    for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
        if (is_there(directory / name)) {
            fail("{}: its weights are PyTorch files ({}), which are not supported, as they can run code when they are read: use "
                 "a release in safetensors or GGUF",
                 utf8_text(directory), name);
        }
    }
    const std::set<std::string> others = safetensors_files(directory);
    fail("{}: neither model.safetensors nor model.safetensors.index.json is there: the weights are missing{}",
         utf8_text(directory), others.empty() ? "" : fmt::format("; of safetensors there is {}", printable(*others.begin())));
}

uint64_t TensorShape::bytes() const {
    uint64_t elements = 1;
    for (const uint64_t n : shape) elements *= n;
    return elements * stored_format(type)->bytes;
}

std::string safetensors_header(std::span<const TensorShape> tensors, const SafetensorsMetadata& metadata) {
    json header{{"__metadata__", metadata}};
    uint64_t at = 0;
    for (const TensorShape& t : tensors) {
        header[t.name] = {{"dtype", type_name(t.type)}, {"shape", t.shape}, {"data_offsets", {at, at + t.bytes()}}};
        at += t.bytes();
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' '); // so that the data is aligned, as other writers do
    const uint64_t length = text.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

std::string safetensors_bytes(std::span<const FloatTensor> tensors, const SafetensorsMetadata& metadata) {
    std::vector<TensorShape> shapes;
    for (const FloatTensor& t : tensors) shapes.push_back({t.name, GgmlType::F32, t.shape});
    std::string bytes = safetensors_header(shapes, metadata);
    for (const FloatTensor& t : tensors) bytes.append(reinterpret_cast<const char*>(t.values.data()), t.values.size_bytes());
    return bytes;
}

} // namespace tq
