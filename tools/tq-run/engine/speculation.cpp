// Chooses who drafts. Drafters are asked in the order of --spec; the first that has a draft counts. Without flags only the
// model's own head drafts, and only on the CPU, if it was measured to gain; a draft model (-md) is asked for by naming it. The
// head is loaded with the model, so it must be decided before (Drafting). A conversation that was saved without the head's keys
// goes on without it.
// A draft model has as many slots and tokens as the model that it drafts for, so that it can follow every sequence. It takes
// tokens back after a rejection, which recurrent layers cannot, so models with recurrent layers are refused here.
#include "tools/tq-run/engine/speculation.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/text.h"
#include "model/cpu/forward.h"
#include "model/engine/speculation/draft_model.h"
#include "model/engine/speculation/mtp.h"
#include "model/engine/speculation/ngram.h"
#include "model/engine/speculation/speculation.h"
#include "model/engine/speculation/vocabulary_check.h"
#include "model/files/prompt_cache.h"
#include "model/forward.h"
#include "model/gpu/forward.h"
#include "tools/check/conformance/subject.h"
#include "tools/tq-run/cli/progress.h"
#include "tools/tq-run/engine/choose_device.h"
#include "tools/tq-run/engine/engine_conditioning.h"
#include "tools/tq-run/engine/proof.h"
#include <algorithm>

namespace tq {

// Throws Error for a word that names none.
static std::vector<std::string> drafters_of(const std::string& text) {
    std::vector<std::string> out;
    for (std::string& word : split(text, ",")) {
        if (word == "draft-mtp") word = "mtp";
        if (word != "ngram" && word != "draft" && word != "mtp")
            fail("it must be none, or ngram, draft, mtp (also draft-mtp), or several of these with commas, not {}",
                 printable(text));
        if (std::ranges::find(out, word) == out.end()) out.push_back(std::move(word));
    }
    return out;
}

std::vector<std::string> SpeculationArguments::drafters() const {
    if (kinds.empty()) return model.empty() ? std::vector<std::string>{} : std::vector<std::string>{"draft"};
    return kinds == "none" ? std::vector<std::string>{} : drafters_of(kinds);
}

bool SpeculationArguments::has(std::string_view drafter) const {
    const std::vector<std::string> all = drafters();
    return std::ranges::find(all, drafter) != all.end();
}

void SpeculationArguments::check() const {
    if (drafts_by_model() && model.empty()) throw UsageError("--spec draft needs a draft model: name its file with -md");
    if (!drafts_by_model() && !model.empty())
        throw UsageError(fmt::format("--spec {} uses no draft model: leave -md out, or give --spec draft", kinds));
    if (draft_max != 0 && draft_min > draft_max)
        throw UsageError(fmt::format("--draft-min is {} but --draft-max {}: it must not be the larger", draft_min, draft_max));
}

SpeculationOptions SpeculationArguments::options() const {
    const bool by_head_alone = by_default() || drafters() == std::vector<std::string>{"mtp"};
    const uint32_t max = draft_max != 0 ? draft_max : by_head_alone ? MtpDrafter::draft_max : max_draft_tokens;
    return {.draft_max = std::min(max, max_draft_tokens),
            .draft_min = std::min(draft_min, max_draft_tokens),
            .adaptive = !draft_always};
}

// Returns what must be known before the model is loaded: whether the head's layer is loaded with it, and how many tokens may be
// pending in recurrent layers, since the memory of their states depends on that.
Drafting SpeculationArguments::drafting(const std::string& prompt_cache) const {
    if (by_default() && !prompt_cache.empty() && saved_without_head(utf8_path(prompt_cache))) return {};
    if (by_default()) return {.head = MtpHead::if_there, .pending = options().draft_max};
    if (!on()) return {};
    return {.on = true, .head = by_head() ? MtpHead::requested : MtpHead::left_out, .pending = options().draft_max};
}

void add_flags(ArgumentParser& command, SpeculationArguments& a) {
    ArgumentParser group = command.group("Speculative decoding");
    add_option(group, "--spec", a.kinds, "HOW",
               "draft tokens that are then verified together, for the same answer in less time: ngram (looks them up in the text "
               "so far), draft (a draft model), mtp (the model's own head for multi-token prediction), or several with commas, "
               "of which the first that has a draft counts; none; default: with -md draft, else on the CPU mtp if the model has "
               "a head, else none")
        .values("none ngram draft mtp draft-mtp")
        .check(parsed_by([](const std::string& text) {
            if (text != "none") drafters_of(text);
        }));
    add_option(group, "--model-draft", a.model, "PATH", "draft model: a smaller one with the same vocabulary")
        .check([](std::string& text) { return std::string(text.empty() ? "it is empty: name a file" : ""); });
    add_option(group, "--device-draft", a.device, "NAME", "device of the draft model, as --device; default: that of the model");
    add_option(group, "--threads-draft", a.threads, "N", "threads of the draft model on the CPU; default: those of -t")
        .transform(thread_number());
    add_option(group, "--draft-max", a.draft_max, "N",
               "most tokens of a draft; a pass verifies 7 to 15, of all requests together; default: as many as it does, with mtp "
               "alone 3")
        .check(number(1, 1024));
    add_option(group, "--draft-min", a.draft_min, "N", "shorter drafts are not verified; default: 1").check(number(0, 1024));
    add_flag(group, "--draft-always", a.draft_always, "draft also where that loses time; default: only where it gains");
}

namespace {

// A draft is a list of ids, so the two vocabularies must be the same, id by id. The draft model's context may be shorter than the
// model's: beyond it, there are no drafts.
std::unique_ptr<Forward> load_draft_model(Speculator& to, const SpeculationArguments& arguments, const DraftedFor& target,
                                          uint32_t threads, Console& console) {
    to.model.emplace(load_model(utf8_path(arguments.model)));
    const Model& model = *to.model;
    if (model.config.recurrent)
        fail("{}: a draft model takes tokens back, which its recurrent layers cannot: choose another with -md", model.name);
    require_same_vocabulary(model.tokenizer, model.name, target.model.tokenizer, target.model.name);
    const Cache::Shape& shape = target.forward.cache().shape();
    ForwardOptions options{.context_size = std::min(shape.context_size, model.config.max_position_embeddings),
                           .slots = shape.slots,
                           .threads = arguments.threads == 0 ? threads : arguments.threads};
    if (shape.slots > 1) options.cache_tokens = shape.pages * page_tokens; // as many as the model's
    if (const auto chosen = arguments.device.empty() ? std::nullopt : find_device(arguments.device))
        to.device = open_proven(*chosen, conformance::subject_of(model.config, model.weights, options.kv), console);
    Device* const device = arguments.device.empty() ? target.device : to.device.get();
    TransferStatus status(console);
    const LoadProgress on_load = status.loading(fmt::format("loading {}", model.name));
    catch_interrupts();
    const auto open = [&](const ForwardOptions& with) {
        return device != nullptr ? make_gpu_forward(*device, model.config, model.weights, with, on_load)
                                 : make_cpu_forward(model.config, model.weights, with, on_load);
    };
    if (wants_measured_keys(options.kv, model))
        options.kv.conditioning.calibration = measured_keys(model, options, console, open);
    return open(options);
}

} // namespace

Speculator::~Speculator() = default;

std::unique_ptr<Speculator> start_speculation(const SpeculationArguments& arguments, const DraftedFor& target, uint32_t threads,
                                              Console& console) {
    const bool by_default = arguments.by_default() && target.model.config.mtp && target.forward.drafts();
    const std::vector<std::string> kinds = by_default ? std::vector<std::string>{"mtp"} : arguments.drafters();
    if (kinds.empty()) return nullptr;
    if (arguments.by_head() && !target.forward.drafts())
        fail("{}: its head for multi-token prediction drafts only if all of the model is on one device: use --spec ngram here",
             target.model.name);
    auto out = std::make_unique<Speculator>();
    std::vector<std::unique_ptr<Drafter>> drafters;
    for (const std::string& kind : kinds) {
        if (!out->description.empty()) out->description += ", then ";
        if (kind == "draft") {
            auto forward = load_draft_model(*out, arguments, target, threads, console);
            drafters.push_back(std::make_unique<DraftModel>(std::move(forward),
                                                            unsampled_ids(out->model->tokenizer, out->model->config.vocab_size)));
            out->description += out->model->name;
        } else if (kind == "mtp") {
            drafters.push_back(std::make_unique<MtpDrafter>());
            out->description += "the model's own head";
        } else {
            drafters.push_back(std::make_unique<NgramDrafter>());
            out->description += "prompt lookup";
        }
    }
    SpeculationOptions options = arguments.options();
    if (console.verbose()) options.on_change = [](const std::string& what) { write_error(fmt::format("tq-run: {}\n", what)); };
    out->description += fmt::format(", at most {} tokens", std::min(options.draft_max, target.forward.max_separate_rows() - 1));
    out->speculation = std::make_unique<Speculation>(std::move(drafters), options);
    return out;
}

std::unique_ptr<Speculator> start_speculation(const SpeculationArguments& arguments, const Engine& engine, uint32_t threads,
                                              Console& console) {
    return start_speculation(arguments, DraftedFor{engine.model, engine.device.get(), *engine.forward}, threads, console);
}

} // namespace tq
