// tq-run calibrate: measures a model's keys for --kv-condition FILE. The text is run in stretches of the context with an f32
// cache, and a tap gathers statistics of each key channel before storing (quality::KeyStatistics). The output is opened before
// the long work, and has the model's fingerprint, so it cannot be used with another. --kv-condition auto does the same with less
// text (engine_conditioning.cpp).
#include "tools/check/quality/calibrate.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/calibration.h"
#include "model/files/formats/json.h"
#include "tools/check/quality/calibration_text.h"
#include "tools/tq-run/cli/byte_files.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/setup.h"
#include "tools/tq-run/engine/shared_model.h"
#include <algorithm>

namespace tq {
namespace {

using quality::CalibrationParts;

constexpr uint64_t max_calibration_text = 1 << 30;
constexpr uint32_t calibrate_context = 2048, min_calibration_tokens = 64;

struct CalibrateArguments {
    ConsoleArguments console;
    ModelArguments model;
    std::string file, out, only;
};

CalibrationParts parse_parts(std::string_view text) {
    if (text == "scales") return CalibrationParts::scales;
    if (text == "means") return CalibrationParts::means;
    fail("it must be scales or means, not {}", printable(text));
}

// Refuses flags without effect on the measurement: keys are the same whatever the cache will be.
void check_cache_flags(const KvArguments& given) {
    const KvArguments none;
    if (given.preset != none.preset || given.type_k != none.type_k || given.type_v != none.type_v ||
        given.layers != none.layers || given.conditioning != none.conditioning || given.window != none.window ||
        given.rotation != none.rotation || given.scale_rule != none.scale_rule)
        throw UsageError("calibrate measures the keys before they are stored: leave the flags of the KV cache out");
}

// Runs the text in stretches of the context's length. False on Ctrl-C.
bool measure(quality::KeyStatistics& keys, Forward& forward, std::span<const uint32_t> ids, Console& console) {
    const uint32_t context = forward.context_size();
    for (size_t at = 0; at < ids.size(); at += context) {
        keys.begin_text();
        forward.truncate(0);
        const auto keep_going = [&](uint32_t done, uint32_t) {
            console.status(fmt::format("{} of {} tokens", at + done, ids.size()));
            return !interrupted();
        };
        if (forward.run(ids.subspan(at, std::min<size_t>(context, ids.size() - at)), keep_going).empty()) return false;
    }
    console.clear_status();
    return true;
}

// A summary for people: the range of the scales.
std::string summary(const KeyCalibration& k) {
    double min = k.scales[0], max = min;
    for (const float scale : k.scales) {
        min = std::min<double>(min, scale);
        max = std::max<double>(max, scale);
    }
    return fmt::format("{} layers, {} kv heads of {} channels; scales from {:.3g} to {:.3g}\n", k.layers, k.kv_heads, k.head_dim,
                       min, max);
}

int run(const CalibrateArguments& given) {
    CalibrateArguments arguments = given;
    check_cache_flags(arguments.model.kv);
    const std::string text =
        arguments.file.empty() ? calibration_text : read_text_file(utf8_path(arguments.file), max_calibration_text);
    ByteOutput file(arguments.out, ByteInput("-")); // fails before the long work
    if (!arguments.model.context_size) arguments.model.context_size = calibrate_context;
    Console console = arguments.console.console();
    Setup setup = set_up(arguments.model, console);
    const Model& model = setup.model;
    const std::vector<uint32_t> ids = model.tokenizer.prompt(text);
    if (ids.size() < min_calibration_tokens)
        fail("a text of {} tokens is too short to measure: give one of at least {}", ids.size(), min_calibration_tokens);
    setup.options.context_size = std::min(setup.options.context_size, uint32_t(std::min<size_t>(ids.size(), UINT32_MAX)));
    if (setup.options.context_size < min_calibration_tokens)
        fail("a context of {} tokens is too short to measure: give at least {} with -c", setup.options.context_size,
             min_calibration_tokens);
    quality::KeyStatistics keys(model.config, model.weights);
    setup.options.tap = keys.tap();
    catch_interrupts();
    const KvOptions plain{KvType::f32, KvType::f32};
    check_memory(setup, std::array{plain});
    const SharedModel shared(setup, console);
    if (!measure(keys, *shared.forward(plain), ids, console)) return 130;
    const KeyCalibration result = keys.calibration(arguments.only.empty() ? CalibrationParts::both : parse_parts(arguments.only));
    const std::string bytes = calibration_bytes(result, fingerprint(model, console), {model.name, keys.tokens()});
    file.write({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    file.commit();
    write_error(fmt::format("{}: {} tokens, {}", printable(arguments.out), keys.tokens(), summary(result)));
    return 0;
}

} // namespace

void add_calibrate(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, CalibrateArguments& a) {
        add_option(command, "-o,--output", a.out, "FILE", "file to write, for --kv-condition").required();
        add_option(command, "-f,--file", a.file, "FILE",
                   "text of the kind that the model will see; default: a short built-in text");
        add_option(command, "--only", a.only, "PART", "measure only the scales or only the means; default: both")
            .check(parsed_by(parse_parts))
            .values("scales means");
        add_flags(command, a.model);
        hide_flags(command, {"--kv", "--cache-type-k", "--cache-type-v", "--kv-layers", "--kv-rotation", "--kv-scale",
                             "--kv-condition", "--kv-window"});
        add_flags(command, a.console);
    };
    add_command<CalibrateArguments>(app, action, "calibrate",
                                    "Measure the channel scales and means of a model's keys, for --kv-condition", flags, run);
}

} // namespace tq
