// Replies to llama.cpp's flags that tq-run does not have. A flag without a refusal changes speed, logging or layout at most; it
// is ignored with a note, so that scripts go on working. A flag with a refusal would change an answer, and is an error that names
// the way here; with its neutral value it is ignored. The first row that has a name counts. A command that has the flag itself
// never asks here (command_line.cpp).
#include "tools/tq-run/cli/llama_flags.h"
#include <algorithm>
#include <array>

namespace tq {
namespace {

using enum FlagValue;

constexpr std::string_view no_sampler = "use --temp, --top-k, --top-p, --min-p and the penalties";
constexpr std::string_view no_grammar = "only tq-run generate and chat have it";
constexpr std::string_view no_adapter = "merge adapters and control vectors into the model";
constexpr std::string_view no_images = "models read and write text only";
constexpr std::string_view no_server = "only tq-run serve has it";
constexpr std::string_view own_template = "the chat template is always that of the model's family";
constexpr std::string_view no_task = "tq-run perplexity measures perplexity and KL divergence only";

constexpr std::array flags{
    // The placement of cache and work: with the layers (-ngl, --n-cpu-moe).
    LlamaFlag{"-sm --split-mode", one},
    LlamaFlag{"-mg --main-gpu", one},
    LlamaFlag{"-ot --override-tensor", one},
    LlamaFlag{"-ncffn --n-cpu-ffn --moe-cache-mib --moe-cache", one},
    LlamaFlag{"-nkvo --no-kv-offload -kvo --kv-offload", perhaps},
    LlamaFlag{"--op-offload", perhaps},
    LlamaFlag{"--no-host", perhaps},
    LlamaFlag{"-fitt --fit-target -fitc --fit-ctx", one},
    LlamaFlag{"--rpc -rpc", one, "a model runs on devices of this machine"},
    // The arithmetic: attention is always fused, weights are always repacked.
    LlamaFlag{"-fa --flash-attn", perhaps},
    LlamaFlag{"--repack -nr --no-repack", perhaps},
    LlamaFlag{"--warmup --no-warmup", none},
    LlamaFlag{"--swa-full -kvu --kv-unified -no-kvu --no-kv-unified", none},
    LlamaFlag{"-bs --backend-sampling", none},
    LlamaFlag{"-dt --defrag-thold -np --parallel -ns --sequences", one},
    LlamaFlag{"-cb --cont-batching -nocb --no-cont-batching", none},
    LlamaFlag{"-ctxcp --ctx-checkpoints --swa-checkpoints --cache-reuse -cram --cache-ram", one},
    LlamaFlag{"--keep", one},
    LlamaFlag{"--context-shift --no-context-shift", none},
    // Threads and priorities.
    LlamaFlag{"-tb --threads-batch -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll", one},
    LlamaFlag{"-Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch --numa", one},
    // The reading of files.
    LlamaFlag{"--mlock --mmap --no-mmap -dio --direct-io -ndio --no-direct-io --check-tensors", none},
    LlamaFlag{"-mmp", perhaps},
    LlamaFlag{"-lm --load-mode -lzm --lazy-mode", one},
    LlamaFlag{"--override-kv", one,
              "only RoPE's metadata can be overridden, with --rope-scaling and the other flags of long contexts"},
    LlamaFlag{"-mu --model-url", one, "a model comes from a file (-m) or from Hugging Face (-hf user/repository)"},
    LlamaFlag{"-dr --docker-repo", one, "a model comes from a file (-m) or from Hugging Face (-hf user/repository)"},
    LlamaFlag{"-cl --cache-list", none, "tq-run models lists the models that -hf has downloaded"},
    // The output.
    LlamaFlag{"--perf --no-perf --show-timings --no-show-timings --verbose-prompt", none},
    LlamaFlag{"--display-prompt --no-display-prompt", none},
    LlamaFlag{"--log-disable --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --log-jsonl --no-log-jsonl", none},
    LlamaFlag{"--log-colors", perhaps},
    LlamaFlag{"--log-file -lv --verbosity --log-verbosity --log-prompts-dir", one},
    LlamaFlag{"-sp --special", none, "special tokens are never shown"},
    LlamaFlag{"-ptc --print-token-count", one},
    // The mode of a conversation.
    LlamaFlag{"-i --interactive -if --interactive-first -cnv --conversation -mli --multiline-input", none},
    LlamaFlag{"-no-cnv --no-conversation", none},
    LlamaFlag{"-e --escape --no-escape", none},
    LlamaFlag{"--jinja --no-jinja", none},
    LlamaFlag{"--skip-chat-parsing --no-skip-chat-parsing", none},
    LlamaFlag{"--reasoning-format", one},
    LlamaFlag{"--reasoning-preserve --no-reasoning-preserve", none},
    LlamaFlag{"-rea --reasoning", one, "use --think or --no-think", "auto"},
    LlamaFlag{"--reasoning-budget", one, "thinking has no budget; --no-think turns it off", "-1"},
    LlamaFlag{"--reasoning-effort", one, "only tq-run chat and serve have it", "default"},
    LlamaFlag{"--chat-template --chat-template-file --chat-template-kwargs", one, own_template},
    LlamaFlag{"-r --reverse-prompt", one, "an answer ends where the model ends it, or after -n tokens"},
    LlamaFlag{"--in-prefix --in-suffix", one, "the chat template alone decides what surrounds a question"},
    LlamaFlag{"--in-prefix-bos", none, "the chat template alone decides what surrounds a question"},
    LlamaFlag{"-bf --binary-file", one, "a prompt is text: use -f FILE"},
    // Sampling.
    LlamaFlag{"--samplers --sampler-seq --sampling-seq", one, "the order of the samplers is fixed"},
    LlamaFlag{"--typical --typical-p", one, no_sampler, "1"},
    LlamaFlag{"--top-nsigma --top-n-sigma --adaptive-target", one, no_sampler, "-1"},
    LlamaFlag{"--xtc-probability --dynatemp-range --mirostat --dry-multiplier", one, no_sampler, "0"},
    LlamaFlag{"--xtc-threshold --dynatemp-exp --mirostat-lr --mirostat-ent --adaptive-decay", one},
    LlamaFlag{"--dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker", one},
    LlamaFlag{"-l --logit-bias", one, "the logits of single tokens cannot be changed, except with --ignore-eos"},
    LlamaFlag{"--grammar --grammar-file -j --json-schema -jf --json-schema-file", one, no_grammar}, // of other commands
    // Positions.
    LlamaFlag{"--rope-freq-scale", one, "use its inverse, --rope-scale", "1"},
    LlamaFlag{"--yarn-ext-factor", one, "YaRN always mixes as in its paper", "-1"},
    LlamaFlag{"-gan --grp-attn-n", one, "use --rope-scaling yarn to extend the context", "1"},
    // Other models besides the model. Draft models change the speed, not the answers.
    LlamaFlag{"-md --model-draft --spec-draft-model -hfd -hfrd --hf-repo-draft --spec-draft-hf --spec-type", one},
    LlamaFlag{"-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl -devd --device-draft --spec-draft-device", one},
    LlamaFlag{"-ctkd --cache-type-k-draft --spec-draft-type-k -ctvd --cache-type-v-draft --spec-draft-type-v", one},
    LlamaFlag{"-td --threads-draft --spec-draft-threads -tbd --threads-batch-draft --spec-draft-threads-batch", one},
    LlamaFlag{"--draft --draft-n --draft-max --draft-min --draft-n-min --spec-draft-n-max --spec-draft-n-min", one},
    LlamaFlag{"--draft-p-min --spec-draft-p-min --draft-p-split --spec-draft-p-split -cd --ctx-size-draft", one},
    LlamaFlag{"--spec-default", none},
    LlamaFlag{"--lora --lora-scaled --control-vector --control-vector-scaled --lora-init-without-apply", one, no_adapter},
    LlamaFlag{"-mm --mmproj -mmu --mmproj-url --image --audio --video", one, no_images},
    LlamaFlag{"--no-mmproj --no-mmproj-auto --mmproj-auto --mmproj-offload --no-mmproj-offload", none},
    // Flags of other programs.
    LlamaFlag{"--host --port --api-key --api-key-file -a --alias --ssl-key-file --ssl-cert-file", one, no_server},
    LlamaFlag{"--path --slot-save-path --server-base --api-prefix --media-path", one,
              "tq-run serve has its own page, paths and cache"},
    LlamaFlag{"--embedding --embeddings --reranking --rerank --metrics --slots --no-slots --props", none, no_server},
    LlamaFlag{"--webui --no-webui --cache-prompt --no-cache-prompt --no-cache-idle-slots --cache-idle-slots", none},
    LlamaFlag{"-to --timeout --threads-http --slot-prompt-similarity -sps --sse-ping-interval", one},
    LlamaFlag{"-embd", perhaps, "only generation is timed", "0"},
    LlamaFlag{"--kl-divergence", none},
    LlamaFlag{"--kl-divergence-base --save-all-logits", one, no_task},
    LlamaFlag{"--hellaswag --winogrande --multiple-choice", none, no_task},
    LlamaFlag{"--hellaswag-tasks --winogrande-tasks --multiple-choice-tasks --ppl-stride --ppl-output-type", one, no_task},
    LlamaFlag{"-pg -oe --output-err", one, "only tq-run bench has it"},
    LlamaFlag{"--delay", one},
    LlamaFlag{"--progress", none},
    LlamaFlag{"--n-gen-warmup", one},
    // Former flags of bench.
    LlamaFlag{"--plots", perhaps, "tools/plot speed A.json B.json -o DIR draws what bench measured"},
};

} // namespace

const LlamaFlag* find_llama_flag(std::string_view name) {
    const auto has_name = [&](const LlamaFlag& flag) {
        for (std::string_view rest = flag.names; !rest.empty();) {
            const std::string_view first = rest.substr(0, rest.find(' '));
            if (first == name) return true;
            rest.remove_prefix(std::min(first.size() + 1, rest.size()));
        }
        return false;
    };
    const auto* found = std::ranges::find_if(flags, has_name);
    return found == flags.end() ? nullptr : &*found;
}

} // namespace tq
