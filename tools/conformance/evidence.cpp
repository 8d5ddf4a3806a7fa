#include "tools/conformance/evidence.h"
#include "base/error.h"
#include "base/path_text.h"
#include "runtime/specialise.h"
#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tq::conformance {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t max_dispatches = 16;
constexpr uint64_t max_bytes = uint64_t(64) << 20; // of a buffer that is kept

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

void write_words(const std::filesystem::path& path, std::span<const uint32_t> words) {
    std::ofstream file(path, std::ios::binary);
    if (!file.write(reinterpret_cast<const char*>(words.data()), std::streamsize(words.size_bytes())).flush())
        fail("{} cannot be written: choose another folder with --dump", utf8_text(path));
}

} // namespace

Evidence::Evidence(Rig& rig, bool contents)
    : rig_(rig), contents_(contents), watch_([this](const Dispatch& dispatch) { note(dispatch); }) {
    current = this;
}

Evidence::~Evidence() { current = nullptr; }

std::string Evidence::keep(const Buffer& buffer) {
    const auto [found, fresh] =
        buffers_.try_emplace(&buffer.impl(), fmt::format("buffer-{}.bin", buffers_.size()), std::vector<uint32_t>());
    if (fresh && buffer.bytes() <= max_bytes) {
        reading_ = true;
        found->second.second = rig_.read(buffer);
        reading_ = false;
    }
    return found->second.first;
}

void Evidence::note(const Dispatch& dispatch) {
    if (reading_ || dispatches_.size() == max_dispatches) return;
    Json json = describe(dispatch);
    if (contents_) {
        json["buffers"] = Json::array();
        for (const View& view : dispatch.views)
            json["buffers"].push_back({{"before", keep(*view.buffer)}, {"offset", view.offset}, {"bytes", view.bytes}});
    }
    if (std::ranges::find(shaders_, &dispatch.shader) == shaders_.end()) shaders_.push_back(&dispatch.shader);
    if (std::ranges::find(dispatches_, json) == dispatches_.end()) dispatches_.push_back(std::move(json));
}

void Evidence::compared(const char* type, std::span<const uint32_t> got, std::span<const uint32_t> want, bool passed) {
    if (current == nullptr || !current->contents_ || want.empty()) return;
    const std::span first = got.first(std::min(got.size(), want.size()));
    current->comparisons_.push_back({type, passed, {first.begin(), first.end()}, {want.begin(), want.end()}});
}

nlohmann::ordered_json Evidence::dispatches() const { return dispatches_; }

void Evidence::write(const std::filesystem::path& folder, Json about) const {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) fail("the folder {} cannot be made: {}", utf8_text(folder), error.message());
    about["dispatches"] = dispatches_;
    about["byte_order"] = "little-endian words of 4 bytes; buffers as they were before the first dispatch";
    for (const auto& [buffer, named] : buffers_)
        if (!named.second.empty()) write_words(folder / named.first, named.second);
    for (const AnyShader* shader : shaders_) write_words(folder / (std::string(shader->name) + ".spv"), shader->code());
    about["comparisons"] = Json::array();
    for (size_t i = 0; i < comparisons_.size(); i++) {
        const Comparison& one = comparisons_[i];
        const std::string got = fmt::format("result-{}.bin", i), want = fmt::format("expected-{}.bin", i);
        write_words(folder / got, one.got);
        write_words(folder / want, one.want);
        about["comparisons"].push_back(
            {{"type", one.type}, {"elements", one.want.size()}, {"passed", one.passed}, {"result", got}, {"expected", want}});
    }
    std::ofstream file(folder / "row.json");
    if (!(file << about.dump(1, ' ', false, Json::error_handler_t::replace) << '\n').flush())
        fail("{} cannot be written: choose another folder with --dump", utf8_text(folder / "row.json"));
}

} // namespace tq::conformance
