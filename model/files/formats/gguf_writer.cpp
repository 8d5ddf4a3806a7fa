// Writes GGUF version 3. Keys and tensors are encoded as they are added, so the object holds bytes, not values. Offsets of data
// are known then, too, as each tensor's size follows from its type and dimensions. The data itself is written by the caller,
// tensor by tensor.
// Integers take the smallest of 32 and 64 bits that holds them, all of a list alike, which is what llama.cpp's converter writes
// and readers expect.
// The positions of all lengths, counts and types are noted (Section::fields) for one purpose: tests damage each of them and read
// the file again.
#include "model/files/formats/gguf_writer.h"
#include "base/ensure.h"
#include "base/sizes.h"
#include <algorithm>
#include <limits>
#include <sstream>
#include <type_traits>

namespace tq {
namespace {

enum : uint32_t {
    type_u32 = 4,
    type_i32 = 5,
    type_f32 = 6,
    type_bool = 7,
    type_text = 8,
    type_list = 9,
    type_u64 = 10,
    type_i64 = 11
};

constexpr size_t fixed_header_bytes = 24;

struct Raw {
    uint32_t type;
    std::string bytes;
};

template <class Small, class Wide> bool fits(Wide value) { return value == Wide(Small(value)); }

Raw encode(uint64_t v) { return fits<uint32_t>(v) ? Raw{type_u32, raw(uint32_t(v))} : Raw{type_u64, raw(v)}; }
Raw encode(int64_t v) { return fits<int32_t>(v) ? Raw{type_i32, raw(int32_t(v))} : Raw{type_i64, raw(v)}; }
Raw encode(double v) { return {type_f32, raw(float(v))}; }
Raw encode(bool v) { return {type_bool, raw(uint8_t(v))}; }
Raw encode(std::string_view v) { return {type_text, raw(uint64_t(v.size())) + std::string(v)}; }

Raw encode(const ModelFile::Nested&) { return {type_list, raw(uint32_t(type_list)) + raw(uint64_t(0))}; }

// Returns a list as one of T, whatever each element would be stored as alone.
template <class T> Raw list_of(uint32_t type, const auto& elements) {
    std::string bytes = raw(type) + raw(uint64_t(elements.size()));
    for (const auto& element : elements) bytes += raw(T(element));
    return {type_list, bytes};
}

template <class Small, class Wide> Raw integers(const std::vector<Wide>& list, uint32_t small, uint32_t wide) {
    return std::ranges::all_of(list, fits<Small, Wide>) ? list_of<Small>(small, list) : list_of<Wide>(wide, list);
}

Raw encode(const std::vector<uint64_t>& list) { return integers<uint32_t>(list, type_u32, type_u64); }
Raw encode(const std::vector<int64_t>& list) { return integers<int32_t>(list, type_i32, type_i64); }
Raw encode(const std::vector<double>& list) { return list_of<float>(type_f32, list); }
Raw encode(const std::vector<std::string_view>& list) {
    std::string bytes = raw(uint32_t(type_text)) + raw(uint64_t(list.size()));
    for (const std::string_view text : list) bytes += encode(text).bytes;
    return {type_list, bytes};
}

} // namespace

template <class T> void GgufWriter::Section::number(T value, std::string what) {
    fields.push_back({std::move(what), bytes.size(), sizeof value});
    bytes += raw(value);
}

void GgufWriter::Section::text(std::string_view value, const std::string& what) {
    number(uint64_t(value.size()), what);
    bytes += value;
}

void GgufWriter::set(std::string_view key, const ModelFile::Value& value) {
    const Raw encoded = std::visit([](const auto& v) { return encode(v); }, value);
    set_raw(key, encoded.type, encoded.bytes);
}

void GgufWriter::set_raw(std::string_view key, uint32_t type, std::string_view value) {
    const std::string of = " of key " + std::string(key);
    metadata_.text(key, "name length" + of);
    metadata_.number(type, "type" + of);
    const size_t begin = metadata_.bytes.size();
    if (type == type_text) metadata_.fields.push_back({"length" + of, begin, 8});
    if (type == type_list) {
        metadata_.fields.push_back({"element type" + of, begin, 4});
        metadata_.fields.push_back({"count" + of, begin + 4, 8});
        metadata_.fields.push_back({"first element" + of, begin + 12, 8});
    }
    metadata_.bytes += value;
    ++metadata_.count;
}

void GgufWriter::add_tensor(std::string_view name, GgmlType type, const std::vector<uint64_t>& ne) {
    const std::string of = " of tensor " + std::string(name);
    infos_.text(name, "name length" + of);
    infos_.number(uint32_t(ne.size()), "dimensions" + of);
    uint64_t elements = 1;
    for (const uint64_t n : ne) {
        infos_.number(n, "dimension" + of);
        elements *= n;
    }
    infos_.number(uint32_t(type), "type" + of);
    infos_.number(data_bytes_, "offset" + of);
    ++infos_.count;
    const BlockFormat* format = stored_format(type);
    ENSURE(format, "{}", type_name(type));
    tensors_.push_back({elements / format->elements * format->bytes, data_bytes_});
    data_bytes_ += round_up(tensors_.back().bytes, alignment_);
}

std::string GgufWriter::header() const {
    std::string bytes = "GGUF" + raw(version_) + raw(infos_.count) + raw(metadata_.count) + metadata_.bytes + infos_.bytes;
    bytes.resize(round_up(bytes.size(), alignment_));
    return bytes;
}

std::vector<GgufField> GgufWriter::fields() const {
    std::vector<GgufField> all{{"magic", 0, 4}, {"version", 4, 4}, {"tensor count", 8, 8}, {"key count", 16, 8}};
    for (const GgufField& f : metadata_.fields) all.push_back({f.what, fixed_header_bytes + f.position, f.bytes});
    for (const GgufField& f : infos_.fields) {
        all.push_back({f.what, fixed_header_bytes + metadata_.bytes.size() + f.position, f.bytes});
    }
    return all;
}

void GgufWriter::write(std::ostream& out, const Fill& fill) const {
    out << header();
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const auto begin = out.tellp();
        fill(i, out);
        ENSURE(!out || uint64_t(out.tellp() - begin) == tensors_[i].bytes, "{} bytes for tensor {}", tensors_[i].bytes, i);
        out << std::string(round_up(tensors_[i].bytes, alignment_) - tensors_[i].bytes, '\0');
    }
}

std::string GgufWriter::zeros() const { return header() + std::string(data_bytes_, '\0'); }

} // namespace tq
