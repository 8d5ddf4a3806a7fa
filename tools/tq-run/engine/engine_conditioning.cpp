// Measures the means and scales of a model's keys, once. A few hundred tokens of a built-in text (calibration_text) are run with
// an f32 cache, and statistics of each channel are taken by a tap (quality::KeyStatistics). The result is kept in the cache
// directory under a checksum of the model's files, the text and the number of tokens; other processes read it instead of
// measuring. A kept file that is damaged is measured again.
// The measuring needs the model on its device with a cache of its own. So it runs before the model is loaded for the answers, and
// its forward pass is gone by then. If memory or the device fails, the scales from the weights' norms remain, which need no run.
#include "tools/tq-run/engine/engine_conditioning.h"
#include "base/cache_directory.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/error_text.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/calibration.h"
#include "tools/check/quality/calibrate.h"
#include "tools/check/quality/calibration_text.h"
#include "tools/tq-run/cli/byte_files.h"
#include "tools/tq-run/cli/progress.h"
#include <algorithm>
#include <chrono>

namespace tq {
namespace {

namespace fs = std::filesystem;

constexpr size_t measured_tokens = 384, min_tokens = 64;
constexpr auto patience = std::chrono::seconds(1); // nobody asks why less is waited

std::string checksum_text(std::string_view text) { return fmt::format("{:016x}", checksum(std::as_bytes(std::span(text)))); }

// The measured keys as a file, for one model, text and way of measuring.
class KeptKeys {
  public:
    KeptKeys(const Model& model, Console& console) : model_(model), console_(console) {
        const std::string files = file_fingerprint(model.config, model.weights);
        const fs::path directory = cache_directory();
        if (files.empty() || directory.empty()) return;
        fingerprint_ = fmt::format("{}, {} tokens of {}", files, measured_tokens, checksum_text(calibration_text));
        path_ = directory / "conditioning" / (checksum_text(fingerprint_) + ".safetensors");
    }

    std::shared_ptr<const KeyCalibration> read() const {
        std::error_code error;
        if (path_.empty() || !fs::is_regular_file(path_, error)) return nullptr;
        try {
            return std::make_shared<const KeyCalibration>(
                read_calibration(path_, model_.config, model_.weights, [this] { return fingerprint_; }));
        } catch (const Error& unusable) {
            say(fmt::format("{}; the keys are measured again", unusable.what()));
            return nullptr;
        }
    }

    void write(const KeyCalibration& keys, uint64_t tokens) const {
        if (path_.empty())
            return say("what was measured is not kept: there is no cache directory, or the model has just changed");
        try {
            std::error_code ignored; // that of writing tells more
            fs::create_directories(path_.parent_path(), ignored);
            if (fs::exists(path_, ignored) && !fs::is_regular_file(path_, ignored)) // a named pipe would wait for a reader
                return say(fmt::format("what was measured is not kept: {} is no regular file", printable(utf8_text(path_), 300)));
            ByteOutput file(utf8_text(path_), ByteInput("-"));
            const std::string bytes = calibration_bytes(keys, fingerprint_, {model_.name, tokens});
            file.write({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
            file.commit();
        } catch (const std::exception& failed) { // of the file system, too
            say(fmt::format("what was measured is not kept: {}", error_text(failed)));
        }
    }

  private:
    void say(const std::string& text) const {
        if (console_.verbose()) write_error(fmt::format("tq-run: {}\n", text));
    }

    const Model& model_;
    Console& console_;
    std::string fingerprint_;
    fs::path path_; // empty: none
};

// Empty if the model has no tokenizer for it.
std::vector<uint32_t> ids_to_measure(const Model& model) try {
    std::vector<uint32_t> ids = model.tokenizer.encode(calibration_text);
    ids.resize(std::min({ids.size(), measured_tokens, size_t(model.config.max_position_embeddings)}));
    return ids;
} catch (const Error&) {
    return {};
}

// Keys are measured exactly: with an f32 cache, one slot and no drafts, whatever the run itself will use. So the result belongs
// to the model and may be kept for all caches.
KeyCalibration measure_with(const Model& model, const std::vector<uint32_t>& ids, const ForwardOptions& given, Console& console,
                            const OpenForward& open) {
    quality::KeyStatistics keys(model.config, model.weights);
    ForwardOptions options = given;
    options.kv = {KvType::f32, KvType::f32};
    options.context_size = uint32_t(ids.size());
    options.slots = 1;
    options.cache_tokens = 0;
    options.speculative = false;
    options.tap = keys.tap();
    const auto forward = open(options);
    WorkStatus status(console, "tokens");
    bool said = false;
    const auto keep_going = [&, began = std::chrono::steady_clock::now()](uint32_t done, uint32_t total) {
        if (!said && std::chrono::steady_clock::now() - began > patience) {
            console.say(
                fmt::format("measuring the keys of {} once, {} tokens: later runs need not wait for it", model.name, total));
            said = true;
        }
        status.update(fmt::format("measuring the keys of {}", model.name), done, total);
        return !interrupted();
    };
    if (forward->run(ids, keep_going).empty()) throw LoadStopped();
    return keys.calibration(quality::CalibrationParts::both);
}

} // namespace

bool wants_measured_keys(const KvOptions& kv, const Model& model) {
    if (kv.conditioning.kind != KeyConditioning::Kind::automatic || kv.conditioning.calibration || model.weights.files.empty())
        return false;
    for (uint32_t layer = 0, count = model.config.num_hidden_layers; layer < count; layer++)
        if (is_coded(kv.at(layer, count).k)) return true;
    return false;
}

// Measuring is an improvement and no condition: if memory or the device fails, the run goes on with what the weights alone tell
// (norms).
std::shared_ptr<const KeyCalibration> measured_keys(const Model& model, const ForwardOptions& options, Console& console,
                                                    const OpenForward& open) {
    const KeptKeys kept(model, console);
    if (auto found = kept.read()) return found;
    const std::vector<uint32_t> ids = ids_to_measure(model);
    if (ids.size() < min_tokens) return nullptr;
    const auto without = [&](const Error& error) {
        write_error(fmt::format("tq-run: {}: the keys could not be measured, and --kv-condition norms remains\n", error.what()));
        return std::shared_ptr<const KeyCalibration>();
    };
    try {
        auto keys = std::make_shared<const KeyCalibration>(measure_with(model, ids, options, console, open));
        kept.write(*keys, ids.size());
        return keys;
    } catch (const OutOfMemory& error) {
        return without(error);
    } catch (const DeviceLost& error) {
        return without(error);
    }
}

} // namespace tq
