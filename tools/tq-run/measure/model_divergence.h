// The change that another file of the same model makes: KL divergence and perplexities on a text, both with an f16 cache.
#pragma once
#include "tools/tq-run/cli/arguments.h"
#include "tools/tq-run/measure/measured_text.h"
#include <filesystem>

namespace tq {

struct DivergenceArguments {
    std::string file, device; // file: of the text; empty: nothing is measured
    uint32_t chunks = 0;      // 0: all
    uint32_t context_size = 512;
};

void add_flags(ArgumentParser& command, DivergenceArguments& arguments);

// Reads the text, and looks for the device, so that what is wrong with these is said before the file is made. Throws Error, or
// UsageError if the device does not exist.
MeasuredText divergence_text(const DivergenceArguments& arguments, const Tokenizer& tokenizer);

// Prints a report of `measured` beside `reference`. Returns the exit status: 130 after Ctrl-C. Throws Error, LoadStopped.
int measure_divergence(const std::filesystem::path& measured, const std::filesystem::path& reference, const MeasuredText& text,
                       const DivergenceArguments& arguments, uint32_t threads, Console& console);

} // namespace tq
