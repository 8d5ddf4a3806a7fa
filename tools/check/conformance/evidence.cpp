// Records what a row ran and what it read, for a report. While an Evidence lives it sees each dispatch of the device
// (DispatchWatch) and each comparison (through `current`, since comparisons are free functions; a worker runs one row at a time).
// Without contents it keeps kernels, constants and sizes of up to 16 dispatches. With contents (--dump) a row is run once more,
// and each buffer is read back before the first dispatch that uses it, so that inputs are as they were; what would be too much is
// left out, and `complete_` says so, because an incomplete recording cannot be replayed.
#include "tools/check/conformance/evidence.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/whole_file.h"
#include "runtime/specialise.h"
#include "runtime/subgroup_size.h"
#include "tools/check/conformance/amber_script.h"
#include "tools/check/conformance/recording.h"
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

namespace tq::conformance {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t max_dispatches = 16, max_kept_dispatches = 1024; // kept: with the contents of buffers
constexpr uint64_t max_script_words = uint64_t(8) << 20;          // of row.amber, which is text
constexpr uint64_t max_bytes = uint64_t(64) << 20;                // of a buffer that is kept

Evidence* current = nullptr;

std::vector<uint32_t> words_of(std::span<const std::byte> bytes) {
    std::vector<uint32_t> out(bytes.size() / 4);
    std::memcpy(out.data(), bytes.data(), out.size() * 4);
    return out;
}

Json describe(const Dispatch& dispatch) {
    const AnyShader& shader = dispatch.shader;
    Json constants = Json::object(), workgroup = Json::array();
    const std::vector<std::string> names = constant_names(shader);
    for (size_t i = 0; i < names.size() && i < dispatch.constants.size(); i++) constants[names[i]] = dispatch.constants[i];
    for (size_t axis = 0; axis < 3; axis++) {
        const uint32_t id = shader.interface.workgroup_constant[axis];
        workgroup.push_back(id == Interface::literal ? shader.interface.workgroup[axis] : dispatch.constants[id]);
    }
    return {{"kernel", shader.name},  {"spirv", std::string(shader.name) + ".spv"},
            {"workgroup", workgroup}, {"groups", {dispatch.groups.x, dispatch.groups.y, dispatch.groups.z}},
            {"constants", constants}, {"push_constants", words_of(dispatch.push)}};
}

template <class Range> void write_values(const std::filesystem::path& path, const Range& values) {
    if (write_file(path, {std::as_bytes(std::span(values))}))
        fail("{} cannot be written: choose another folder with --dump", utf8_text(path));
}

} // namespace

Evidence::Evidence(Rig& rig, bool contents, std::function<void(const Evidence&)> on_new_kernel)
    : rig_(rig), contents_(contents), on_new_kernel_(std::move(on_new_kernel)),
      watch_([this](const Dispatch& dispatch) { note(dispatch); }) {
    current = this;
}

Evidence::~Evidence() { current = nullptr; }

// A buffer is read when a dispatch first names it, which is before that dispatch is recorded: what earlier recordings wrote is
// there. Reading is itself work of the device and must not be noted (reading_).
std::string Evidence::keep(const Buffer& buffer) {
    const auto [found, fresh] =
        buffers_.try_emplace(buffer.keep(), fmt::format("buffer-{}.bin", buffers_.size()), std::vector<uint32_t>());
    if (fresh && buffer.bytes() <= max_bytes) {
        reading_ = true;
        found->second.second = rig_.read(buffer);
        reading_ = false;
    }
    complete_ = complete_ && buffer.bytes() <= max_bytes;
    return found->second.first;
}

void Evidence::note(const Dispatch& dispatch) {
    if (reading_) return;
    if (dispatches_.size() == (contents_ ? max_kept_dispatches : max_dispatches)) {
        complete_ = false;
        return;
    }
    Json json = describe(dispatch);
    if (contents_) {
        json["specialisation"] = std::vector<uint32_t>(dispatch.constants.begin(), dispatch.constants.end());
        json["subgroup_size"] = subgroup_size_of(dispatch.shader, rig_.device.capabilities());
        json["buffers"] = Json::array();
        for (const View& view : dispatch.views)
            json["buffers"].push_back({{"before", keep(*view.buffer)}, {"offset", view.offset}, {"bytes", view.bytes}});
    }
    const bool fresh = std::ranges::find(shaders_, &dispatch.shader) == shaders_.end();
    if (fresh) shaders_.push_back(&dispatch.shader);
    if (contents_ || std::ranges::find(dispatches_, json) == dispatches_.end()) dispatches_.push_back(std::move(json));
    if (fresh && on_new_kernel_) on_new_kernel_(*this);
}

// A comparison knows words, not buffers. It is of the buffer that was read last if it begins with the same words; a replay can
// then compare that buffer again. Else it is kept without a buffer, for people to read.
void Evidence::compared(const char* type, std::span<const uint32_t> got, std::span<const uint32_t> want, bool passed,
                        double allowed, std::span<const WordRange> halves) {
    if (current == nullptr || !current->contents_ || want.empty()) return;
    const std::span first = got.first(std::min(got.size(), want.size()));
    const auto& [buffer, words, after] = current->read_;
    const bool is_of_buffer = words.size() >= first.size() && std::ranges::equal(first, std::span(words).first(first.size()));
    current->comparisons_.push_back({.type = type,
                                     .passed = passed,
                                     .allowed = allowed,
                                     .buffer = is_of_buffer ? buffer : "",
                                     .after = after,
                                     .got = {first.begin(), first.end()},
                                     .want = {want.begin(), want.end()},
                                     .halves = {halves.begin(), halves.end()}});
}

void Evidence::was_read(const Buffer& buffer, std::span<const uint32_t> words) {
    if (current == nullptr || !current->contents_ || current->reading_) return;
    const auto found = current->buffers_.find(buffer.keep());
    current->read_ = {
        found == current->buffers_.end() ? "" : found->second.first, {words.begin(), words.end()}, current->dispatches_.size()};
}

nlohmann::ordered_json Evidence::dispatches() const { return dispatches_; }

Json Evidence::description(Json about) const {
    about["dispatches"] = dispatches_;
    about["complete"] = complete_;
    uint64_t words = 0;
    for (const auto& [buffer, named] : buffers_) words += named.second.size();
    about["amber"] = complete_ && words <= max_script_words;
    about["byte_order"] = "little-endian words of 4 bytes; buffers as they were before the first dispatch";
    about["comparisons"] = Json::array();
    for (size_t i = 0; i < comparisons_.size(); i++) {
        const Comparison& one = comparisons_[i];
        Json json{{"type", one.type},
                  {"elements", one.want.size()},
                  {"passed", one.passed},
                  {"after_dispatches", one.after},
                  {"result", fmt::format("result-{}.bin", i)},
                  {"expected", fmt::format("expected-{}.bin", i)}};
        if (one.type == std::string_view("float32")) json["allowed_norm_of_difference"] = one.allowed;
        if (!one.buffer.empty()) json["buffer"] = one.buffer;
        for (const auto& [begin, count] : one.halves) json["fp16_pairs"].push_back({begin, count});
        about["comparisons"].push_back(std::move(json));
    }
    return about;
}

void Evidence::write(const std::filesystem::path& folder, Json about) const {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) fail("the folder {} cannot be made: {}", utf8_text(folder), error.message());
    for (const auto& [buffer, named] : buffers_)
        if (!named.second.empty()) write_values(folder / named.first, named.second);
    for (const AnyShader* shader : shaders_) write_values(folder / (std::string(shader->name) + ".spv"), shader->code());
    for (size_t i = 0; i < comparisons_.size(); i++) {
        write_values(folder / fmt::format("result-{}.bin", i), comparisons_[i].got);
        write_values(folder / fmt::format("expected-{}.bin", i), comparisons_[i].want);
    }
    const Json json = description(std::move(about));
    write_values(folder / "row.json", json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n');
    if (json.at("amber") == true) write_values(folder / "row.amber", amber_script(read_recording(folder)));
}

} // namespace tq::conformance
