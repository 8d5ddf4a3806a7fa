// Speculative decoding of a command: its flags, and the draft model if there is one.
#pragma once
#include "tools/tq-run/engine/engine.h"

namespace tq {

class Speculation;
struct SpeculationOptions;

struct SpeculationArguments {
    // Any of "ngram", "draft" and "mtp" in their order, with commas, or "none"; empty: draft if there is a draft model, else
    // mtp if the model is loaded with its head (Drafting).
    std::string kinds;
    std::string model, device;
    uint32_t threads = 0, draft_max = 0, draft_min = 1; // draft_max 0: as the kind has it
    bool draft_always = false;                          // not only if it gains time

    std::vector<std::string> drafters() const; // that are asked for; none: no drafts, or by default
    bool by_default() const { return kinds.empty() && model.empty(); }
    bool has(std::string_view drafter) const;
    bool on() const { return !drafters().empty(); }
    bool by_head() const { return has("mtp"); }
    bool drafts_by_model() const { return has("draft"); }
    void check() const; // throws UsageError if flags contradict each other
    SpeculationOptions options() const;
    // prompt_cache: a file of --prompt-cache, or empty; if that was saved without the model's head, it is left out by default.
    Drafting drafting(const std::string& prompt_cache = "") const;
};

void add_flags(ArgumentParser& command, SpeculationArguments& arguments);

struct Speculator {
    std::optional<Model> model;     // the draft model; none: nothing needs one
    std::unique_ptr<Device> device; // its own; none: the CPU, or the device of the model that it drafts for
    std::string description;        // "prompt lookup, at most 7 tokens"
    std::unique_ptr<Speculation> speculation;

    ~Speculator();
};

// The model that is drafted for, and where it runs; all outlive what start_speculation() returns.
struct DraftedFor {
    const Model& model;
    Device* device; // none: the CPU
    Forward& forward;
};

// Loads the draft model, if there is one, showing progress. Returns null if the arguments ask for no drafts. Throws Error,
// also if the vocabularies differ; LoadStopped on Ctrl-C. threads: of the model
std::unique_ptr<Speculator> start_speculation(const SpeculationArguments& arguments, const DraftedFor& target, uint32_t threads,
                                              Console& console);
std::unique_ptr<Speculator> start_speculation(const SpeculationArguments& arguments, const Engine& engine, uint32_t threads,
                                              Console& console);

} // namespace tq
