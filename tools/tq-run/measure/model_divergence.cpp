// Compares two files of one model (quantize -f): both are loaded at once with f16 caches, run over the same chunks, and their
// probabilities compared token by token. Memory must hold both.
#include "tools/tq-run/measure/model_divergence.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "tools/check/quality/compare.h"
#include "tools/tq-run/cli/time_left.h"
#include "tools/tq-run/engine/choose_device.h"
#include "tools/tq-run/engine/setup.h"
#include "tools/tq-run/engine/shared_model.h"
#include "tools/tq-run/measure/divergence_report.h"
#include <algorithm>

namespace tq {
namespace {

ModelArguments model_arguments(const std::filesystem::path& path, const DivergenceArguments& a, uint32_t threads) {
    ModelArguments model{.measured = true};
    model.model.path = utf8_text(path);
    model.device = a.device;
    model.context_size = a.context_size;
    model.threads = threads;
    model.kv.type_k = model.kv.type_v = "f16";
    return model;
}

} // namespace

void add_flags(ArgumentParser& command, DivergenceArguments& a) {
    ArgumentParser group = command.group("Divergence");
    add_option(group, "-f,--file", a.file, "FILE",
               "text on which the new file is then compared with the old one: KL divergence, perplexities")
        .values("FILE");
    add_option(group, "--chunks", a.chunks, "N", "number of chunks of -c tokens; default: the whole text");
    add_option(group, "-c,--ctx-size", a.context_size, "N", "tokens of a chunk, such as 2048 or 4k; default: 512")
        .transform(tokens(1 << 20));
    add_option(group, "--device", a.device, "NAME",
               "Vulkan device that runs both, by index or part of its name, or cpu; default: a GPU, else cpu")
        .values("cpu");
}

MeasuredText divergence_text(const DivergenceArguments& a, const Tokenizer& tokenizer) {
    find_devices(a.device);
    return read_measured_text(a.file, tokenizer, a.context_size);
}

int measure_divergence(const std::filesystem::path& measured_path, const std::filesystem::path& reference_path,
                       const MeasuredText& text, const DivergenceArguments& a, uint32_t threads, Console& console) {
    Setup measured = set_up(model_arguments(measured_path, a, threads), console),
          reference = set_up(model_arguments(reference_path, a, threads), console);
    const KvOptions exact_cache{KvType::f16, KvType::f16};
    for (Setup* each : {&measured, &reference}) check_memory(*each, std::array{exact_cache});
    const SharedModel measured_model(measured, console), reference_model(reference, console);
    const auto forward = measured_model.forward(exact_cache), exact = reference_model.forward(exact_cache);
    const size_t whole = text.ids.size() / a.context_size, count = a.chunks == 0 ? whole : std::min<size_t>(whole, a.chunks);
    Chunks chunks;
    const TimeLeft left(0);
    while (chunks.size() < count) {
        const auto keep_going = [&](uint32_t done) {
            console.status(
                fmt::format("chunk {} of {}, {} of {} tokens{}", chunks.size() + 1, count, done, a.context_size,
                            left.after(double(chunks.size()) * a.context_size + done, double(count) * a.context_size)));
            return !interrupted();
        };
        const std::span ids = std::span(text.ids).subspan(chunks.size() * a.context_size, a.context_size);
        auto tokens = quality::compare(std::array{forward.get()}, *exact, ids, keep_going);
        if (tokens.empty()) break;
        chunks.push_back(std::move(tokens[0]));
    }
    console.clear_status();
    if (!chunks.empty())
        write_text("\n" + measurement_heading(reference, text) + "\n" +
                   divergence_report(chunks, a.context_size, "the new file", "the old one"));
    return chunks.size() == count ? 0 : 130;
}

} // namespace tq
