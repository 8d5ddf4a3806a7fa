// Typed access to a model's metadata. Files disagree about types: one converter writes a count as u32, another as i32, lists of
// one as a scalar. So integer() takes any integer that is not negative, real() any number, and integers() a single one as a list.
// Errors name the key as the file does (label()) and say what it is and what it should be.
#include "model/files/formats/model_file.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include <algorithm>
#include <cmath>

namespace tq {
namespace {

constexpr std::array value_kind_names{
    "an unsigned integer",         "a signed integer",   "a real number",     "a boolean",       "a text",
    "a list of unsigned integers", "a list of integers", "a list of numbers", "a list of texts", "a list of lists"};
static_assert(value_kind_names.size() == std::variant_size_v<ModelFile::Value>);

[[noreturn]] void fail_key(const ModelFile& file, std::string_view key, const ModelFile::Value& value, const char* expected) {
    fail("{} is {}, not {}", file.label(key), value_kind_names[value.index()], expected);
}

const ModelFile::Value& required(const ModelFile& file, std::string_view key) {
    const ModelFile::Value* value = file.find(key);
    if (!value) fail("{} is missing", file.label(key));
    return *value;
}

template <class T>
const T& expect(const ModelFile& file, std::string_view key, const ModelFile::Value& value, const char* expected) {
    const T* typed = std::get_if<T>(&value);
    if (!typed) fail_key(file, key, value, expected);
    return *typed;
}

} // namespace

std::string ModelFile::label(std::string_view key) const {
    const auto found = labels_.find(key);
    return found == labels_.end() ? fmt::format("{}: key '{}'", utf8_text(path_), printable(key)) : found->second;
}

std::vector<FileIdentity> ModelFile::identities() const {
    std::vector<FileIdentity> out;
    for (const MappedFile& mapping : mappings_) out.push_back(mapping.identity());
    return out;
}

void ModelFile::absorb_tensors(ModelFile other) {
    for (MappedFile& mapping : other.mappings_) mappings_.push_back(std::move(mapping));
    for (FileTensor& tensor : other.tensors_) tensors_.push_back(std::move(tensor));
}

const ModelFile::Value* ModelFile::find(std::string_view key) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? nullptr : &found->second;
}

const FileTensor* ModelFile::find_tensor(std::string_view name) const {
    const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const FileTensor& t) { return t.name == name; });
    return found == tensors_.end() ? nullptr : &*found;
}

uint64_t ModelFile::integer(std::string_view key) const {
    const Value& value = required(*this, key);
    const auto* number = std::get_if<int64_t>(&value);
    const auto* real = std::get_if<double>(&value); // 20.0, as some programs write 20
    if (real && *real >= 0 && *real < 0x1p63 && *real == std::floor(*real)) return uint64_t(*real);
    if (!number) return expect<uint64_t>(*this, key, value, "an integer");
    if (*number < 0) fail("{} is {}, less than 0", label(key), *number);
    return uint64_t(*number);
}

double ModelFile::real(std::string_view key) const {
    const Value& value = required(*this, key);
    if (const auto* number = std::get_if<uint64_t>(&value)) return double(*number);
    if (const auto* number = std::get_if<int64_t>(&value)) return double(*number);
    return expect<double>(*this, key, value, "a number");
}

std::string_view ModelFile::text(std::string_view key) const {
    return expect<std::string_view>(*this, key, required(*this, key), "a text");
}

const std::vector<std::string_view>& ModelFile::strings(std::string_view key) const {
    return expect<std::vector<std::string_view>>(*this, key, required(*this, key), "a list of texts");
}

std::vector<uint64_t> ModelFile::integers(std::string_view key) const {
    const Value& value = required(*this, key);
    if (const auto* list = std::get_if<std::vector<uint64_t>>(&value)) return *list;
    const auto* list = std::get_if<std::vector<int64_t>>(&value);
    if (!list && !std::holds_alternative<uint64_t>(value) && !std::holds_alternative<int64_t>(value))
        fail_key(*this, key, value, "a list of integers");
    if (!list) return {integer(key)};
    for (const int64_t one : *list)
        if (one < 0) fail("{} has {}, less than 0", label(key), one);
    return {list->begin(), list->end()};
}

bool ModelFile::boolean(std::string_view key, bool fallback) const {
    const Value* value = find(key);
    return value ? expect<bool>(*this, key, *value, "a boolean") : fallback;
}

uint64_t ModelFile::integer(std::string_view key, uint64_t fallback) const { return find(key) ? integer(key) : fallback; }

double ModelFile::real(std::string_view key, double fallback) const { return find(key) ? real(key) : fallback; }

std::string_view ModelFile::text(std::string_view key, std::string_view fallback) const {
    return find(key) ? text(key) : fallback;
}

} // namespace tq
