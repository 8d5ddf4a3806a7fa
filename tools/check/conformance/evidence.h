// The record of what a row has run and compared, to find out why it failed.
#pragma once
#include "runtime/dispatch_watch.h"
#include "tools/check/conformance/rig.h"
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>

namespace tq::conformance {

// Records while it exists. One at a time.
class Evidence {
  public:
    // `contents`: the contents of buffers and the compared data are recorded too. on_new_kernel: called before a kernel is
    // compiled for the first time.
    Evidence(Rig& rig, bool contents, std::function<void(const Evidence&)> on_new_kernel = {});
    ~Evidence();
    Evidence(const Evidence&) = delete;
    Evidence& operator=(const Evidence&) = delete;

    // [{"kernel", "spirv", "workgroup", "groups", "constants": {name: value}, "push_constants": [words]}], each once, the first
    // few of many.
    nlohmann::ordered_json dispatches() const;

    // Writes into `folder`: the modules, each buffer's contents before anything ran, each result with its expected values
    // (little-endian words), row.json, which describes them and contains `about` (docs/devices.md), and row.amber
    // (amber_script.h). Throws Error if they cannot be written.
    void write(const std::filesystem::path& folder, nlohmann::ordered_json about) const;

    // Called by the functions that compare 4-byte words; type: "float32" or "uint32". allowed: of floats, the greatest norm of
    // the difference.
    static void compared(const char* type, std::span<const uint32_t> got, std::span<const uint32_t> want, bool passed,
                         double allowed = 0, std::span<const WordRange> halves = {});
    // Called with what was read back from a buffer: a comparison that follows is of its first words, if they are equal.
    static void was_read(const Buffer& buffer, std::span<const uint32_t> words);

  private:
    struct Comparison {
        const char* type;
        bool passed;
        double allowed;
        std::string buffer; // that it is of; empty: values that were computed from some
        size_t after;       // how many dispatches had run when it was read
        std::vector<uint32_t> got, want;
        std::vector<WordRange> halves;
    };
    void note(const Dispatch& dispatch);
    nlohmann::ordered_json description(nlohmann::ordered_json about) const;
    std::string keep(const Buffer& buffer);

    Rig& rig_;
    const bool contents_;
    const std::function<void(const Evidence&)> on_new_kernel_;
    bool reading_ = false; // this object's own work is not recorded
    std::vector<nlohmann::ordered_json> dispatches_;
    std::vector<const AnyShader*> shaders_;
    // Name and content. By owner, not by address: a later buffer may have the address of one that is gone.
    std::map<std::weak_ptr<Buffer::Impl>, std::pair<std::string, std::vector<uint32_t>>, std::owner_less<>> buffers_;
    std::vector<Comparison> comparisons_;
    struct Read {
        std::string buffer;
        std::vector<uint32_t> words;
        size_t after = 0; // dispatches
    };
    Read read_;            // the last one
    bool complete_ = true; // every dispatch and buffer was kept
    DispatchWatch watch_;
};

} // namespace tq::conformance
