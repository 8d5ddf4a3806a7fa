// Reads GGUF: header, keys, descriptions of tensors, then, aligned, their data, which stays in the mapped file. The file is
// untrusted: every length and count is compared with the remaining bytes before it is used or allocated for, and products of
// dimensions are checked by division. Offsets are looked at only when all descriptions are read, because the data begins after
// the last; tensors must then lie in the file and not overlap. An error that a broken download explains says so (cut_off).
// A split model is read from any part: the others are found by name, and name and keys must agree.
#include "model/files/formats/gguf.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/git_lfs.h"
#include "model/files/formats/ik_types.h"
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <type_traits>

namespace tq {
namespace {

constexpr uint64_t max_entries = 65536;           // keys, and tensors, of one file; real files have tens, and hundreds
constexpr uint64_t max_array_elements = 1u << 24; // all arrays of one file together; a large vocabulary is some 2^19
constexpr int max_array_depth = 8;
constexpr uint64_t max_parts = 9999; // of a split model
constexpr uint64_t max_name_bytes = 65535;
constexpr uint64_t max_file_bytes = uint64_t(1) << 50; // of a model before its file was truncated
constexpr uint64_t max_elements = uint64_t(1) << 62;   // of one tensor, so that sizes in bytes need only one more check

enum class ValueType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

constexpr std::array value_type_bytes{1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8}; // the minimum bytes of a value

// A cursor that cannot leave the file. Its errors begin with the file and the item that is read.
// All reads go through scalar(), text() and count(), and each of these compares with the bytes that are left before it moves. A
// count is believed only if as many of the smallest possible items fit into the rest, so that a file of 100 bytes cannot ask for
// gigabytes of memory. An error that a file which is cut off would cause says so: the most frequent reason is a download that
// broke off.
class Reader {
  public:
    Reader(std::string file, std::span<const std::byte> bytes) : file_(std::move(file)), bytes_(bytes) {}

    uint64_t position() const { return position_; }
    uint64_t remaining() const { return bytes_.size() - position_; }
    std::span<const std::byte> bytes() const { return bytes_; }
    const std::string& file() const { return file_; }

    void enter(std::string subject) { subject_ = std::move(subject); }

    template <class... Args> [[noreturn]] void error(fmt::format_string<Args...> format, Args&&... args) const {
        fail("{}: {}: {}", file_, subject_, fmt::format(format, std::forward<Args>(args)...));
    }

    // Throws the Error of a file that ends too early.
    template <class... Args> [[noreturn]] void cut_off(fmt::format_string<Args...> format, Args&&... args) const {
        fail("{}: the file is cut off, or damaged: download it again ({}: {})", file_, subject_,
             fmt::format(format, std::forward<Args>(args)...));
    }
    // `whole`: the expected size in bytes.
    [[noreturn]] void cut_off_at(uint64_t whole, const std::string& detail) const {
        fail("{}: the file is cut off: {:.1f} of {:.1f} MB are there; download it again ({}: {})", file_,
             double(bytes_.size()) * 1e-6, double(whole) * 1e-6, subject_, detail);
    }

    template <class T> T scalar() {
        if (remaining() < sizeof(T)) {
            cut_off("the file ends at byte {}, inside a field of {} bytes at {}", bytes_.size(), sizeof(T), position_);
        }
        T value;
        std::memcpy(&value, bytes_.data() + position_, sizeof(T));
        position_ += sizeof(T);
        return value;
    }

    std::string_view text() {
        const auto length = scalar<uint64_t>();
        if (length > remaining()) cut_off("a text of {} bytes at byte {}, but {} are left", length, position_, remaining());
        const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + position_), length);
        position_ += length;
        return text;
    }

    // Returns the value from `begin`, the offset of its type, to the position.
    ModelFile::Stored stored(uint64_t begin) const {
        ModelFile::Stored value{};
        std::memcpy(&value.type, bytes_.data() + begin, sizeof value.type);
        begin += sizeof value.type;
        value.bytes = {reinterpret_cast<const char*>(bytes_.data()) + begin, position_ - begin};
        return value;
    }

    std::string_view name() {
        const std::string_view name = text();
        if (name.empty()) error("its name is empty");
        if (name.size() > max_name_bytes) error("its name has {} bytes, more than {}", name.size(), max_name_bytes);
        return name;
    }

    // Reads a count of items that take at least `min_bytes` each.
    uint64_t count(const char* things, uint64_t max, uint64_t min_bytes) {
        const auto count = scalar<uint64_t>();
        if (count > remaining() / min_bytes) cut_off("{} {}, but {} bytes are left", count, things, remaining());
        if (count > max) error("{} {}, more than the {} that tq-run reads", count, things, max);
        return count;
    }

  private:
    std::string file_;
    std::string subject_ = "header";
    std::span<const std::byte> bytes_;
    uint64_t position_ = 0;
};

// elements_left_ is a budget for all arrays of a file together. A list of lists would multiply otherwise: each nested one passes
// the check against the remaining bytes.
class ValueReader {
  public:
    explicit ValueReader(Reader& in) : in_(in) {}

    ModelFile::Value value() {
        switch (value_type()) {
        case ValueType::u8: return uint64_t(in_.scalar<uint8_t>());
        case ValueType::i8: return int64_t(in_.scalar<int8_t>());
        case ValueType::u16: return uint64_t(in_.scalar<uint16_t>());
        case ValueType::i16: return int64_t(in_.scalar<int16_t>());
        case ValueType::u32: return uint64_t(in_.scalar<uint32_t>());
        case ValueType::i32: return int64_t(in_.scalar<int32_t>());
        case ValueType::u64: return in_.scalar<uint64_t>();
        case ValueType::i64: return in_.scalar<int64_t>();
        case ValueType::f32: return double(in_.scalar<float>());
        case ValueType::f64: return in_.scalar<double>();
        case ValueType::boolean: return boolean();
        case ValueType::string: return in_.text();
        case ValueType::array: return array(value_type());
        }
        return {}; // unreachable: value_type() returns no other
    }

  private:
    ValueType value_type() {
        const auto type = in_.scalar<uint32_t>();
        if (type >= value_type_bytes.size()) in_.error("value type {} does not exist", type);
        return ValueType(type);
    }

    bool boolean() {
        const auto value = in_.scalar<uint8_t>();
        if (value > 1) in_.error("a boolean of {}, neither 0 nor 1", value);
        return value;
    }

    ModelFile::Value array(ValueType type) {
        const uint64_t n = in_.count("array elements", elements_left_, value_type_bytes[uint32_t(type)]);
        elements_left_ -= n;
        switch (type) {
        case ValueType::u8: return numbers<uint8_t, uint64_t>(n);
        case ValueType::i8: return numbers<int8_t, int64_t>(n);
        case ValueType::u16: return numbers<uint16_t, uint64_t>(n);
        case ValueType::i16: return numbers<int16_t, int64_t>(n);
        case ValueType::u32: return numbers<uint32_t, uint64_t>(n);
        case ValueType::i32: return numbers<int32_t, int64_t>(n);
        case ValueType::u64: return numbers<uint64_t, uint64_t>(n);
        case ValueType::i64: return numbers<int64_t, int64_t>(n);
        case ValueType::f32: return numbers<float, double>(n);
        case ValueType::f64: return numbers<double, double>(n);
        case ValueType::boolean: return list<uint64_t>(n, [this] { return uint64_t(boolean()); });
        case ValueType::string: return list<std::string_view>(n, [this] { return in_.text(); });
        case ValueType::array: return nested(n);
        }
        return {}; // unreachable: value_type() returns no other
    }

    // Reads past the elements: they are checked and counted, and not kept.
    ModelFile::Value nested(uint64_t n) {
        if (++depth_ > max_array_depth) in_.error("arrays in arrays, more than {} levels deep", max_array_depth);
        for (uint64_t i = 0; i < n; ++i) array(value_type());
        --depth_;
        return ModelFile::Nested{};
    }

    template <class Stored, class Wide> ModelFile::Value numbers(uint64_t n) {
        return list<Wide>(n, [this] { return Wide(in_.scalar<Stored>()); });
    }

    template <class T, class Read> ModelFile::Value list(uint64_t n, Read read) {
        std::vector<T> out;
        out.reserve(n);
        for (uint64_t i = 0; i < n; ++i) out.push_back(read());
        return out;
    }

    Reader& in_;
    uint64_t elements_left_ = max_array_elements;
    int depth_ = 0;
};

struct Counts {
    uint64_t tensors, keys;
};

Counts read_header(Reader& in) {
    const auto magic = in.scalar<std::array<char, 4>>();
    if (std::string_view(magic.data(), 4) != "GGUF") {
        refuse_lfs_pointer({reinterpret_cast<const char*>(in.bytes().data()), in.bytes().size()}, in.file());
        in.error(
            "not a GGUF file: it begins with \"{}\"; a model is a GGUF file, or a directory with config.json and safetensors",
            printable({magic.data(), 4}));
    }
    const auto version = in.scalar<uint32_t>();
    if (version != 0 && (version & 0xffff) == 0) in.error("a big-endian GGUF file, which we do not read");
    if (version == 1) in.error("GGUF version 1 is obsolete; convert the model again, to version 3");
    if (version != 2 && version != 3) in.error("GGUF version {}; we read 2 and 3", version);
    const uint64_t tensors = in.count("tensors", max_entries, 33); // 8 + 1 name, 4 + 8 dimensions, 4 type, 8 offset
    const uint64_t keys = in.count("keys", max_entries, 14);       // 8 + 1 name, 4 type, 1 value
    return {tensors, keys};
}

void read_metadata(ModelFile& file, Reader& in, uint64_t count) {
    ValueReader values(in);
    for (uint64_t i = 0; i < count; ++i) {
        in.enter(fmt::format("key {} of {}", i + 1, count));
        const std::string_view key = in.name();
        in.enter(fmt::format("key '{}'", printable(key)));
        const uint64_t begin = in.position();
        if (!file.mutable_metadata().try_emplace(std::string(key), values.value()).second) in.error("it occurs twice");
        file.add_stored(std::string(key), in.stored(begin));
    }
}

// A tensor as the file declares it; `data` is still empty.
struct Declared {
    FileTensor tensor;
    uint64_t bytes, offset;
};

// Products of dimensions are checked by division before they are made. After that elements and bytes fit 62 bits, and sums of two
// of them do not overflow.
Declared read_tensor_info(Reader& in) {
    Declared t{{std::string(in.name()), GgmlType::F32, {1, 1, 1, 1}, {}}, 0, 0};
    in.enter(fmt::format("tensor '{}'", printable(t.tensor.name)));
    const auto dimensions = in.scalar<uint32_t>();
    if (dimensions < 1 || dimensions > 4) in.error("{} dimensions; a tensor has 1 to 4", dimensions);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < dimensions; ++i) {
        const auto n = in.scalar<uint64_t>();
        if (n == 0) in.error("dimension {} is 0", i);
        if (n > max_elements / elements) in.error("dimension {} of {} makes more elements than fit 62 bits", i, n);
        elements *= n;
        t.tensor.ne[i] = n;
    }
    t.tensor.type = GgmlType(in.scalar<uint32_t>());
    const BlockFormat* format = stored_format(t.tensor.type);
    if (const char* ik = ik_type_name(uint32_t(t.tensor.type)); ik != nullptr && !format)
        in.error("its weight format is {}, which ik_llama.cpp alone runs; take a file in Q4_K_M or another format of llama.cpp",
                 ik);
    if (const char* removed = removed_type_name(uint32_t(t.tensor.type)); removed != nullptr)
        in.error(
            "its weight format is {}, which ggml has removed; take a file in Q4_0 or another format of llama.cpp, or quantise "
            "the original anew",
            removed);
    if (!format)
        in.error("its weight format, {}, is none of ggml's: forks have formats of their own, which they "
                 "alone run; take "
                 "a file in Q4_K_M or another format of llama.cpp",
                 type_name(t.tensor.type));
    if (t.tensor.ne[0] % format->elements != 0) {
        in.error("rows of {} elements, not a multiple of {}'s blocks of {}", t.tensor.ne[0], format->name, format->elements);
    }
    const uint64_t blocks = elements / format->elements;
    if (blocks > max_elements / format->bytes) in.error("{} blocks of {} bytes do not fit 62 bits", blocks, format->bytes);
    t.bytes = blocks * format->bytes;
    t.offset = in.scalar<uint64_t>();
    return t;
}

// Returns the end of the last tensor within the file; more than max_file_bytes if that is beyond any file.
uint64_t end_of_data(const Reader& in, const std::vector<Declared>& tensors, uint64_t alignment) {
    uint64_t end = 0;
    for (const Declared& t : tensors) end = std::max(end, t.offset > max_file_bytes ? UINT64_MAX / 2 : t.offset + t.bytes);
    return (in.position() + alignment - 1) / alignment * alignment + end;
}

// Sets tensor.data; the data section begins at the reader's position, aligned. `whole`: end_of_data.
void place(const Reader& in, Declared& t, uint64_t alignment, uint64_t whole) {
    if (t.offset % alignment != 0) in.error("its offset {} is not a multiple of the alignment {}", t.offset, alignment);
    const uint64_t begin = (in.position() + alignment - 1) / alignment * alignment;
    const uint64_t size = in.bytes().size();
    if (begin > size || t.offset > size - begin || t.bytes > size - begin - t.offset) {
        const std::string detail =
            fmt::format("its {} bytes at offset {} of the data at byte {} lie beyond the end of the file at "
                        "{}",
                        t.bytes, t.offset, begin, size);
        if (whole <= max_file_bytes) in.cut_off_at(whole, detail);
        in.error("{}", detail);
    }
    t.tensor.data = in.bytes().subspan(begin + t.offset, t.bytes);
}

// Overlapping tensors would be harmless to read, but no writer makes them, so a file that has them is damaged.
void check_disjoint(Reader& in, const std::vector<FileTensor>& tensors) {
    std::vector<const FileTensor*> order;
    order.reserve(tensors.size());
    for (const FileTensor& t : tensors) order.push_back(&t);
    std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->name < b->name; });
    for (size_t i = 1; i < order.size(); ++i) {
        in.enter(fmt::format("tensor '{}'", printable(order[i]->name)));
        if (order[i]->name == order[i - 1]->name) in.error("it occurs twice");
    }
    std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->data.data() < b->data.data(); });
    for (size_t i = 1; i < order.size(); ++i) {
        const FileTensor &a = *order[i - 1], &b = *order[i];
        in.enter(fmt::format("tensor '{}'", printable(b.name)));
        const auto distance = uint64_t(b.data.data() - a.data.data());
        if (distance < a.data.size()) {
            in.error("it begins {} bytes after '{}', which has {}: they overlap", distance, printable(a.name), a.data.size());
        }
    }
}

std::vector<FileTensor> read_tensors(Reader& in, uint64_t count, uint64_t alignment) {
    in.enter("key 'general.alignment'");
    if (alignment < 8 || alignment > 1u << 30 || !std::has_single_bit(alignment)) {
        in.error("{}, but an alignment is a power of two from 8 to 2^30", alignment);
    }
    std::vector<Declared> declared;
    declared.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
        in.enter(fmt::format("tensor {} of {}", i + 1, count));
        declared.push_back(read_tensor_info(in));
    }
    std::vector<FileTensor> tensors;
    tensors.reserve(count);
    const uint64_t whole = end_of_data(in, declared, alignment);
    for (Declared& t : declared) {
        in.enter(fmt::format("tensor '{}'", printable(t.tensor.name)));
        place(in, t, alignment, whole);
        tensors.push_back(std::move(t.tensor));
    }
    check_disjoint(in, tensors);
    return tensors;
}

ModelFile read_one(const std::filesystem::path& path) {
    ModelFile file(path);
    Reader in(utf8_text(path), file.add_mapping(MappedFile(path)).bytes());
    const Counts counts = read_header(in);
    read_metadata(file, in, counts.keys);
    file.mutable_tensors() = read_tensors(in, counts.tensors, file.integer("general.alignment", 32));
    return file;
}

// Returns the path of part `number` (from 1) of a split model, given its part `given_number`: NAME-00002-of-00003.gguf
std::filesystem::path part_path(const std::filesystem::path& part, uint64_t number, uint64_t given_number, uint64_t count) {
    const auto ending = [&](uint64_t n) { return fmt::format("-{:05}-of-{:05}.gguf", n, count); };
    const std::string name = utf8_text(part.filename()), own = ending(given_number);
    if (!name.ends_with(own)) {
        fail("{}: it is part {} of {} of a split model, so its name must end in {} for the others to be found", utf8_text(part),
             given_number, count, own);
    }
    return part.parent_path() / utf8_path(name.substr(0, name.size() - own.size()) + ending(number));
}

void check_part(const ModelFile& part, uint64_t number, uint64_t count) {
    const uint64_t no = part.integer("split.no"), parts = part.integer("split.count");
    if (no != number - 1 || parts != count) {
        fail("{}: its keys say that it is part {} of {}, but it is named as part {} of {}", utf8_text(part.path()), no + 1, parts,
             number, count);
    }
}

// Returns the first part's keys and every part's tensors. `given` is any of them.
// Any part may be given. The others are found by its name, and each says in its own keys which part it is; both must agree, as
// files are renamed. Names of tensors may not occur in two parts.
ModelFile read_split(ModelFile given, uint64_t count) {
    if (count > max_parts) fail("{}: one of {} parts; we read at most {}", utf8_text(given.path()), count, max_parts);
    const std::filesystem::path path = given.path();
    const uint64_t given_number = given.integer("split.no") + 1;
    std::optional<ModelFile> model;
    for (uint64_t number = 1; number <= count; ++number) {
        const std::filesystem::path name = part_path(path, number, given_number, count);
        std::error_code unknown;
        if (!std::filesystem::exists(name, unknown)) {
            fail("{}: part {} of {} is missing: there is no {}", utf8_text(path), number, count, utf8_text(name));
        }
        ModelFile part = number == given_number ? std::move(given) : read_one(name);
        check_part(part, number, count);
        if (model)
            model->absorb_tensors(std::move(part));
        else
            model = std::move(part);
    }
    const uint64_t tensors = model->integer("split.tensors.count");
    if (tensors != model->tensors().size()) {
        fail("{}: key 'split.tensors.count' is {}, but its {} parts hold {} tensors", utf8_text(model->path()), tensors, count,
             model->tensors().size());
    }
    std::set<std::string_view> names;
    for (const FileTensor& t : model->tensors()) {
        if (!names.insert(t.name).second) fail("{}: two parts hold tensor '{}'", utf8_text(model->path()), printable(t.name));
    }
    return std::move(*model);
}

} // namespace

ModelFile read_gguf(const std::filesystem::path& path) {
    ModelFile file = read_one(path);
    const uint64_t parts = file.integer("split.count", 1);
    return parts > 1 ? read_split(std::move(file), parts) : std::move(file);
}

} // namespace tq
