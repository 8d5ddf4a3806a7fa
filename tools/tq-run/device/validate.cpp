// tq-run validate: a model on a device against the same on the CPU, or on another device: stored codes, residual stream and
// logits of a prompt and of a greedy continuation, layer by layer.
// Two machines round differently, and a code at a threshold then falls to the other side, so equality cannot be asked for. The
// limits come from a third run: the reference with weights that have noise of the size of rounding (with_noise). A larger
// difference than that of this run is an error, and its first place is printed. With an f32 cache, where no code can flip, the
// limits are tightest; that comparison is first, on fewer tokens.
#include "base/error.h"
#include "base/interrupt.h"
#include "base/printable.h"
#include "model/cpu/forward.h"
#include "model/gpu/forward.h"
#include "model/gpu/tuning_file.h"
#include "model/weights/channel_scales.h"
#include "tools/check/conformance/agreement.h"
#include "tools/check/conformance/logits.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/cli/progress.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/choose_device.h"
#include "tools/tq-run/engine/engine.h"
#include "tools/tq-run/engine/engine_conditioning.h"
#include "tools/tq-run/engine/setup.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

constexpr uint32_t exact_prompt = 64, exact_decode = 4; // tokens, at most, of the comparison with an f32 cache

using conformance::Agreement, conformance::Equal, conformance::LayerAgreement, conformance::MakeForward;
using Json = nlohmann::ordered_json;

struct ValidateArguments {
    ConsoleArguments console;
    ModelArguments model{.measured = true};
    PromptArguments prompt;
    std::string against = "cpu";
    uint32_t decode = 32;
    bool json = false;
};

// The agreement with an f32 cache, where only rounding may differ, and with the requested cache. The first is empty if the
// two are the same.
struct Agreements {
    std::optional<Agreement> exact;
    Agreement cache;

    bool passed() const { return cache.passed() && (!exact || exact->passed()); }
};

// The names that are printed with the agreement.
struct Names {
    std::string model, kv, measured, reference;
    const Tokenizer& tokenizer;
};

const char* name(KvSide side) { return side == KvSide::key ? "key" : "value"; }

std::string text_of(const Tokenizer& tokenizer, std::span<const uint32_t> ids) {
    Utf8Stream stream;
    std::string text = stream.push(tokenizer.decode(ids, false));
    return harmless(text + stream.flush());
}

std::string percent(const Equal& equal) {
    return equal.of == 0 ? "-" : equal.equal == equal.of ? "100" : fmt::format("{:.3f}", 100 - equal.different() * 100);
}

std::string layer_table(const std::vector<LayerAgreement>& layers) {
    std::vector<std::vector<std::string>> rows{
        {"layer", "keys", "scales", "values", "scales", "cosine", "error", "(limit)", "median", "(limit)"}};
    for (size_t i = 0; i < layers.size(); i++) {
        const LayerAgreement& l = layers[i];
        rows.push_back({std::to_string(i), percent(l.k_codes), percent(l.k_scales), percent(l.v_codes), percent(l.v_scales),
                        fmt::format("{:.7f}", l.cosine)});
        for (const double error : {l.error, l.error_limit, l.typical, l.typical_limit})
            rows.back().push_back(fmt::format("{:.1e}", error));
    }
    return aligned(std::move(rows), 0, text_columns(), {5});
}

// Counts values that were encoded again, in all layers and tokens.
Equal encoded(const Agreement& a) {
    Equal all;
    for (const auto* layers : {&a.prompt, &a.decoded})
        for (const LayerAgreement& l : *layers) {
            all.of += l.encoded.of;
            all.equal += l.encoded.equal;
        }
    return all;
}

// The text that greedy sampling would have given.
std::string greedy_text(const Agreement& a, const Tokenizer& tokenizer) {
    if (a.greedy.empty()) return "";
    std::string text = fmt::format("greedy: {} of {} tokens are the same", a.same, a.greedy.size());
    if (a.different) {
        const auto& d = *a.different;
        text += fmt::format(
            "; token {} is \"{}\" instead of \"{}\", which the reference prefers by {:.3g} ({} {:.3g}); logits are off by "
            "{:.3g} there",
            d.after + 1, text_of(tokenizer, {&d.id, 1}), text_of(tokenizer, {&d.reference_id, 1}), d.margin,
            d.margin <= d.limit ? "a near tie: rounding explains" : "rounding explains only", d.limit, d.logit_error);
    }
    return text + fmt::format("\nthe reference's continuation: {}\n", text_of(tokenizer, a.greedy));
}

std::string exact_text(const Agreement& a) {
    const LayerAgreement* const worst = a.worst_layer();
    const double error = worst ? worst->error : 0, limit = worst ? worst->error_limit : 0;
    return fmt::format(
        "with an f32 cache, {} tokens and {} after them: the residual stream is off by {:.1e} (limit {:.1e}), logits by "
        "{:.1e} (limit {:.1e})\n",
        a.prompt_tokens, a.greedy.size(), error, limit, a.logit_error, a.logit_limit);
}

std::string verdict(const Agreements& all) {
    if (all.exact && !all.exact->passed()) return fmt::format("THEY DIFFER, even with an f32 cache. {}\n", all.exact->verdict);
    if (!all.cache.passed()) return fmt::format("THEY DIFFER. {}\n", all.cache.verdict);
    return "they agree: everything that differs is explained by rounding\n";
}

std::string report(const Agreements& all, const Names& names) {
    const Agreement& a = all.cache;
    std::string text = fmt::format("model      {}\nmeasured   {}\nreference  {}\ncache      {}\n\n", names.model, names.measured,
                                   names.reference, names.kv);
    text +=
        fmt::format("the prompt, {} tokens: % of codes and scales that are equal; of the residual stream the least cosine, the "
                    "greatest error and its median over the tokens\n\n{}",
                    a.prompt_tokens, layer_table(a.prompt));
    if (!a.greedy.empty()) text += fmt::format("\n{} tokens after it\n\n{}", a.greedy.size(), layer_table(a.decoded));
    text += a.first ? fmt::format("\nthe first code that differs: {} of layer {}, kv head {}, position {}\n", name(a.first->side),
                                  a.first->layer, a.first->head, a.first->position)
                    : "\nno code differs\n";
    const Equal again = encoded(a);
    text += fmt::format("values that are stored as the CPU stores the same vectors: {} of {}\n", again.equal, again.of);
    text += fmt::format("logits: off by {:.2e} at most, as a vector (limit {:.2e}); one of them by {:.3g}\n", a.logit_error,
                        a.logit_limit, a.logit_difference);
    text += greedy_text(a, names.tokenizer);
    if (all.exact) text += exact_text(*all.exact);
    return text + verdict(all);
}

Json to_json(const Equal& equal) { return {{"of", equal.of}, {"equal", equal.equal}}; }

Json to_json(const std::vector<LayerAgreement>& layers) {
    Json out = Json::array();
    for (const LayerAgreement& l : layers)
        out.push_back({{"key_codes", to_json(l.k_codes)},
                       {"key_scales", to_json(l.k_scales)},
                       {"value_codes", to_json(l.v_codes)},
                       {"value_scales", to_json(l.v_scales)},
                       {"values_encoded_again", to_json(l.encoded)},
                       {"code_limit", l.code_limit},
                       {"cosine", l.cosine},
                       {"error", l.error},
                       {"error_limit", l.error_limit},
                       {"typical_error", l.typical},
                       {"typical_error_limit", l.typical_limit}});
    return out;
}

Json to_json(const Agreement& a) {
    Json json{{"prompt_tokens", a.prompt_tokens},
              {"prompt", to_json(a.prompt)},
              {"decoded", to_json(a.decoded)},
              {"logit_error", a.logit_error},
              {"logit_limit", a.logit_limit},
              {"logit_difference", a.logit_difference},
              {"greedy", a.greedy},
              {"greedy_same", a.same}};
    if (a.first)
        json["first_difference"] = {
            {"layer", a.first->layer}, {"side", name(a.first->side)}, {"head", a.first->head}, {"position", a.first->position}};
    if (a.different)
        json["greedy_difference"] = {{"after", a.different->after},
                                     {"id", a.different->id},
                                     {"reference_id", a.different->reference_id},
                                     {"margin", a.different->margin},
                                     {"margin_limit", a.different->limit},
                                     {"logit_error", a.different->logit_error}};
    json["verdict"] = a.verdict;
    return json;
}

Json to_json(const Agreements& all, const Names& names) {
    Json json{{"schema", "tq-run-validate"},  {"version", 1},   {"model", names.model},        {"measured", names.measured},
              {"reference", names.reference}, {"kv", names.kv}, {"build", build_description()}};
    json.update(to_json(all.cache));
    if (all.exact) json["exact"] = to_json(*all.exact);
    json["passed"] = all.passed();
    return json;
}

std::string describe_device(const Device* device) {
    if (device == nullptr) return "CPU";
    const Capabilities& c = device->capabilities();
    return printable(fmt::format("{}, {} {}", c.name, c.driver_name, c.driver_info), 160);
}

bool rounds_to_fp16(const Device* device) {
    return device != nullptr && gpu::tuning_for(device->capabilities()).rounds_to_fp16();
}

// Compares the prompt `ids` and `decode` tokens after it, with a cache of `options`. Nothing after Ctrl-C.
// Three runs of the same tokens: what is measured, the reference, and the reference with noisy weights, which says how far
// rounding alone may drive them apart. If one of the devices multiplies in fp16, the noise is of that size. value_scales are the
// factors of values before they are stored: the comparison encodes values again.
std::optional<Agreement> compare(const Setup& setup, Device* other, const ForwardOptions& forward, std::span<const uint32_t> ids,
                                 uint32_t decode, Console& console) {
    const std::string cache = describe(forward.kv);
    conformance::AgreementOptions options{.decode = decode,
                                          .fp16_products = rounds_to_fp16(setup.device.get()) || rounds_to_fp16(other),
                                          .keep_going = [&](uint32_t done, uint32_t total) {
                                              console.status(fmt::format("{} cache: {} of {} tokens", cache, done, total));
                                              return !interrupted();
                                          }};
    TransferStatus status(console);
    const auto on = [&](Device* device, const Weights& weights, const char* what) -> MakeForward {
        return [&, device, what](const Tap& tap) {
            ForwardOptions with_tap = forward;
            with_tap.tap = tap;
            const LoadProgress on_load = status.loading(fmt::format("loading {}, {}", setup.model.name, what));
            return device != nullptr ? make_gpu_forward(*device, setup.model.config, weights, with_tap, on_load)
                                     : make_cpu_forward(setup.model.config, weights, with_tap, on_load);
        };
    };
    const Weights& weights = setup.model.weights;
    ThreadPool pool;
    for (uint32_t layer = 0, layers = uint32_t(weights.layers.size()); layer < layers; layer++)
        options.value_scales.push_back(forward.kv.scales_values(layer, layers)
                                           ? value_scales(setup.model.config, attention_squares(pool, weights.layers[layer]))
                                           : std::vector<float>());
    const conformance::NoisyWeights noisy =
        conformance::with_noise(weights, conformance::noise_like_rounding(options.fp16_products));
    return conformance::compare(setup.model.config, on(setup.device.get(), weights, "to measure"),
                                on(other, weights, "the reference"), on(other, noisy.weights, "to tell rounding"), ids, options);
}

// Compares with an f32 cache first, on a part of the tokens: there the limits are the tightest. Nothing after Ctrl-C.
std::optional<Agreements> compare(const ValidateArguments& arguments, const Setup& setup, Device* other,
                                  const std::vector<uint32_t>& ids, Console& console) {
    Agreements all;
    if (!conformance::is_exact(setup.options.kv)) {
        ForwardOptions exact = setup.options;
        exact.kv = {KvType::f32, KvType::f32};
        all.exact = compare(setup, other, exact, std::span(ids).first(std::min<size_t>(ids.size(), exact_prompt)),
                            std::min(arguments.decode, exact_decode), console);
        if (!all.exact) return std::nullopt;
    }
    auto cache = compare(setup, other, setup.options, ids, arguments.decode, console);
    if (!cache) return std::nullopt;
    all.cache = std::move(*cache);
    return all;
}

// Measured conditioning is computed once, on the reference, and given to both sides: with two measurements keys would be divided
// by different factors, and no code could be compared.
int run(const ValidateArguments& arguments) {
    if (!arguments.prompt.given) throw UsageError("validate needs a prompt: -p TEXT or -f FILE");
    Console console = arguments.console.console();
    const std::string prompt = arguments.prompt.read();
    Setup setup = set_up(arguments.model, console, WithoutGpu::software);
    require_one_device(setup);
    const auto other = choose_device(arguments.against, WithoutGpu::software);
    require_chosen(arguments.against, find_devices(arguments.against, WithoutGpu::software), other ? 1 : 0);
    const std::vector<uint32_t> ids = setup.model.tokenizer.prompt(prompt);
    if (ids.empty()) fail("the prompt is empty: there is nothing to compare");
    const uint64_t tokens = ids.size() + uint64_t(arguments.decode);
    if (tokens > setup.options.context_size)
        fail("the prompt has {} tokens, and with {} more they exceed the context of {}: shorten it, or ask for a larger context "
             "with -c",
             ids.size(), arguments.decode, setup.options.context_size);
    setup.options.context_size = uint32_t(tokens);

    catch_interrupts();
    if (wants_measured_keys(setup.options.kv, setup.model)) // by the reference, for both
        setup.options.kv.conditioning.calibration =
            measured_keys(setup.model, setup.options, console, [&](const ForwardOptions& exact) {
                const Model& model = setup.model;
                return other ? make_gpu_forward(*other, model.config, model.weights, exact)
                             : make_cpu_forward(model.config, model.weights, exact);
            });
    const auto all = compare(arguments, setup, other.get(), ids, console);
    console.clear_status();
    if (!all) return 130;
    const Names names{setup.model.name, describe(setup.options.kv), setup.device_name, describe_device(other.get()),
                      setup.model.tokenizer};
    (arguments.json ? write_output : write_text)(arguments.json ? to_json(*all, names).dump(2) + "\n" : report(*all, names));
    return all->passed() ? 0 : 1;
}

} // namespace

void add_validate(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, ValidateArguments& a) {
        add_flags(command, a.prompt);
        add_option(command, "--against", a.against, "NAME",
                   "reference: Vulkan device by index or part of its name, or cpu; default: cpu");
        add_option(command, "-n,--predict", a.decode, "N", "tokens to generate after the prompt; default: 32")
            .check(number(0, 100'000));
        add_flag(command, "--json", a.json, "print the result as JSON");
        add_flags(command, a.model);
        command.get_option("--device")
            .description("Vulkan device by index or part of its name (see tq-run devices), or cpu; default: the best device");
        add_flags(command, a.console);
    };
    add_command<ValidateArguments>(app, action, "validate",
                                   "Compare what a device stores and computes with the CPU, layer by layer", flags, run);
}

} // namespace tq
