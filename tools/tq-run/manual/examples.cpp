// The examples and exit statuses of all commands, in one table for --help and the man pages. Status 1 has a text of its own if
// it can mean more than a failure.
#include "tools/tq-run/manual/examples.h"
#include "tools/tq-run/commands.h"
#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>

namespace tq::manual {
namespace {

struct CommandExample {
    const char* command; // empty: the program
    Example example;
};

constexpr CommandExample all_examples[] = {
    {"", {"tq-run chat", "chat with the small demo model"}},
    {"", {"tq-run chat -hf Qwen/Qwen3-4B-GGUF:Q4_K_M", "with a model from Hugging Face"}},
    {"", {"tq-run serve -m FILE.gguf", "serve APIs and a page for chats"}},
    {"", {"tq-run generate -m FILE.gguf -p \"Once\" -n 64", "generate text from a prompt"}},
    {"", {"tq-run plan -m FILE.gguf -c 32k --memory 8G", "check whether that fits"}},
    {"", {"tq-run help chat", "show the flags of a command"}},
    {"", {"tq-run help environment", "list the environment variables that it reads"}},
    {"chat", {"tq-run chat", "chat with the small demo model"}},
    {"chat", {"tq-run chat -hf Qwen/Qwen3-4B-GGUF:Q4_K_M", "with a model from Hugging Face, downloaded once"}},
    {"chat", {"tq-run chat -m FILE.gguf --resume", "go on with the latest conversation"}},
    {"chat", {"tq-run chat -m FILE.gguf -st -p \"Why?\"", "ask one question"}},
    {"serve", {"tq-run serve -m FILE.gguf", "at http://127.0.0.1:8080, with a page"}},
    {"serve", {"tq-run serve -hf Qwen/Qwen3-4B-GGUF -np 4 -c 32k", "four clients at a time"}},
    {"launch", {"tq-run launch claude", "start a coding agent on a model"}},
    {"generate", {"tq-run generate -p \"Once upon a time\" -n 64", "continue a text"}},
    {"generate", {"tq-run generate -m FILE.gguf -f PROMPT.txt --temp 0", "always the same text"}},
    {"bench", {"tq-run bench -m FILE.gguf -p 512 -n 128", "as llama-bench measures"}},
    {"bench", {"tq-run bench -m FILE.gguf -d 0,8192 -ctk tq4,f16 -o json", "two caches, at two depths"}},
    {"bench", {"tq-run bench --compare A.json B.json", "results side by side, also llama-bench's"}},
    {"perplexity", {"tq-run perplexity -m FILE.gguf -f TEXT.txt -ctk tq4", "what a cache costs, beside f16"}},
    {"needle", {"tq-run needle -m FILE.gguf --lengths 1024,4096", "facts found in long texts"}},
    {"validate", {"tq-run validate -m FILE.gguf --device 0", "the device beside the CPU, layer by layer"}},
    {"ablate", {"tq-run ablate -m FILE.gguf -c 2048", "which part of a cache's cost is whose"}},
    {"mix", {"tq-run mix -m FILE.gguf --budget 20k -o FILE.kv.json", "types for each layer"}},
    {"calibrate", {"tq-run calibrate -m FILE.gguf -o FILE.calibration", "for --kv-condition"}},
    {"quantize", {"tq-run quantize DIRECTORY FILE.gguf Q4_K_M", "a model as Hugging Face has it, for a card"}},
    {"quantize", {"tq-run quantize F16.gguf FILE.gguf Q4_K_M -f TEXT.txt", "and what that costs on a text"}},
    {"plan", {"tq-run plan -m FILE.gguf -c 32k --memory 8G", "check whether that fits"}},
    {"plan", {"tq-run plan --synthetic qwen3-8b:q4_k_m --predict \"RTX 4090\"", "speed on a GPU that is not there"}},
    {"cache", {"tq-run cache list", "models with pages on the disk"}},
    {"cache", {"tq-run cache prune --cache-disk 4G", "keep 4 GiB of what was used last"}},
    {"models", {"tq-run models", "what -hf has downloaded"}},
    {"models", {"tq-run models remove Qwen/Qwen3-4B-GGUF:Q4_K_M", "delete one model"}},
    {"devices", {"tq-run devices", "indices and names for --device"}},
    {"doctor", {"tq-run doctor", "drivers and devices, each checked"}},
    {"conformance", {"tq-run conformance --device 0 --json report.json --dump failed", "for a report of a device"}},
    {"conformance", {"tq-run conformance --filter \"swiglu *\" --filter rms_norm", "some kernels"}},
    {"conformance", {"tq-run conformance --expect KNOWN.txt --junit FILE.xml", "in CI, with known failures"}},
    {"conformance", {"tq-run conformance --replay failed/ROW --spirv OTHER.spv", "a row with another module"}},
    {"codec", {"tq-run codec info", "the cache types, with their errors"}},
    {"codec", {"tq-run codec bench --type tq4 --device 0", "vectors a second"}},
    {"shaders", {"tq-run shaders --filter q4_k", "the variants of some kernels"}},
    {"shaders", {"tq-run shaders --check --device 0", "compile all, and look for spills"}},
    {"tokenize", {"tq-run tokenize -m FILE.gguf --text \"Once\"", "a text's token ids"}},
    {"template", {"tq-run template -m FILE.gguf < MESSAGES.json", "messages as the model gets them"}},
    {"grammar", {"tq-run grammar --json-schema-file SCHEMA.json", "a JSON schema as a grammar"}},
    {"logits", {"tq-run logits -m FILE.gguf -p \"Once\" --json", "of the next token"}},
    {"environment", {"TQ_PROVE=120 tq-run devices", "wait longer for a slow driver"}},
};

// Meanings of status 1 for commands for which it may be more than a failure.
constexpr std::pair<const char*, const char*> ones[] = {
    {"bench", "a failure; a device that would not be the one asked for, wrong results, or a test without room"},
    {"cache", "a failure; verify: a damaged page"},
    {"conformance", "a row failed that was not expected to, or passed though a failure was"},
    {"doctor", "a driver or a device has a problem"},
    {"grammar", "a failure, or the text does not match"},
    {"plan", "a failure, or it does not fit"},
    {"shaders", "a failure; --check: a variant does not compile, or spills"},
    {"validate", "a failure, or the results differ"},
};

} // namespace

std::vector<Example> examples(const std::string& command) {
    std::vector<Example> out;
    for (const CommandExample& one : all_examples)
        if (command == one.command) out.push_back(one.example);
    return out;
}

std::vector<ExitStatus> exit_statuses(const std::string& command) {
    const auto found = std::ranges::find(ones, command, &std::pair<const char*, const char*>::first);
    std::vector<ExitStatus> out{{0, "success"},
                                {1, found == std::end(ones) ? "a failure; one line on standard error says what" : found->second},
                                {2, "wrong usage"}};
    if (command == "conformance")
        out.push_back({77, "nothing was tested: no driver, no such device or row, or nothing supported"});
    out.push_back({130, "ended with Ctrl-C"});
    return out;
}

} // namespace tq::manual

namespace tq {

std::string help_footer(const std::string& command) {
    const std::vector<manual::Example> all = manual::examples(command);
    size_t width = 0;
    for (const manual::Example& one : all) width = std::max(width, std::strlen(one.line));
    std::string text = all.empty() ? "" : "Examples:\n";
    for (const manual::Example& one : all) text += fmt::format("  {:<{}}   {}\n", one.line, width, one.what);
    text += "\nExit status:\n";
    for (const manual::ExitStatus& one : manual::exit_statuses(command))
        text += fmt::format("  {:<5} {}\n", one.status, one.meaning);
    return text;
}

} // namespace tq
