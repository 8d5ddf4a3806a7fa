// A Hugging Face directory as if it were a GGUF file: names of tensors are translated by tables, and differences between the two
// formats are removed here, so that the loader knows one form:
// - A tied model has no output.weight. A copy that its files may have is dropped.
// - A head for multi-token prediction is "mtp." in one, and layers after the last in the other.
// - A model for pictures and texts has its text model nested; the encoders are dropped.
// - Experts are single matrices or stacks; both are accepted.
// Two things are not translated: rows of heads that RoPE turns stay in halves (rope_is_split()), and the experts are not stacked.
// The loader does both, by views.
// Nothing is copied: tensors stay views into the mapped files.
#include "model/files/formats/huggingface.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/architecture.h"
#include "model/files/formats/safetensors.h"
#include <algorithm>
#include <set>
#include <utility>

namespace tq {
namespace {

namespace fs = std::filesystem;
using Names = std::pair<std::string_view, std::string_view>; // PyTorch's and GGUF's

// Without the "model." that a model without a head, as some of embeddings are, has not.
constexpr std::array whole_names{Names{"embed_tokens.weight", "token_embd.weight"}, Names{"norm.weight", "output_norm.weight"},
                                 Names{"lm_head.weight", "output.weight"}};
constexpr std::array layer_names{
    Names{"input_layernorm.weight", "attn_norm.weight"}, Names{"post_attention_layernorm.weight", "ffn_norm.weight"},
    Names{"self_attn.q_proj.weight", "attn_q.weight"}, Names{"self_attn.k_proj.weight", "attn_k.weight"},
    Names{"self_attn.q_proj.bias", "attn_q.bias"}, Names{"self_attn.k_proj.bias", "attn_k.bias"},
    Names{"self_attn.v_proj.bias", "attn_v.bias"}, Names{"self_attn.v_proj.weight", "attn_v.weight"},
    Names{"self_attn.o_proj.weight", "attn_output.weight"}, Names{"self_attn.q_norm.weight", "attn_q_norm.weight"},
    Names{"self_attn.k_norm.weight", "attn_k_norm.weight"}, Names{"mlp.gate_proj.weight", "ffn_gate.weight"},
    Names{"mlp.up_proj.weight", "ffn_up.weight"}, Names{"mlp.down_proj.weight", "ffn_down.weight"},
    Names{"mlp.gate.weight", "ffn_gate_inp.weight"},
    // Names of hybrids. Their mixtures may have the matrices of all experts in one.
    Names{"linear_attn.in_proj_qkv.weight", "attn_qkv.weight"}, Names{"linear_attn.in_proj_z.weight", "attn_gate.weight"},
    Names{"linear_attn.in_proj_qkvz.weight", "ssm_in.weight"}, Names{"linear_attn.in_proj_ba.weight", "ssm_ba.weight"},
    Names{"linear_attn.in_proj_b.weight", "ssm_beta.weight"}, Names{"linear_attn.in_proj_a.weight", "ssm_alpha.weight"},
    Names{"linear_attn.conv1d.weight", "ssm_conv1d.weight"}, Names{"linear_attn.A_log", "ssm_a"},
    Names{"linear_attn.dt_bias", "ssm_dt.bias"}, Names{"linear_attn.norm.weight", "ssm_norm.weight"},
    Names{"linear_attn.out_proj.weight", "ssm_out.weight"}, Names{"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    Names{"mlp.experts.down_proj", "ffn_down_exps.weight"}, Names{"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
    Names{"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
    Names{"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
    Names{"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"}};
constexpr std::array expert_names{Names{"gate_proj.weight", "ffn_gate"}, Names{"up_proj.weight", "ffn_up"},
                                  Names{"down_proj.weight", "ffn_down"}};

template <size_t count> std::string_view translated(const std::array<Names, count>& names, std::string_view name) {
    const auto found = std::find_if(names.begin(), names.end(), [&](const Names& n) { return n.first == name; });
    return found == names.end() ? std::string_view() : found->second;
}

// Returns "ffn_up.7.weight" of "mlp.experts.7.up_proj.weight"; otherwise nothing.
std::string translated_expert(std::string_view name) {
    constexpr std::string_view experts = "mlp.experts.";
    if (!name.starts_with(experts)) return {};
    const std::string_view rest = name.substr(experts.size());
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view matrix = translated(expert_names, rest.substr(std::min(dot + 1, rest.size())));
    return matrix.empty() ? std::string() : fmt::format("{}.{}.weight", matrix, rest.substr(0, dot));
}

// Returns the model's usual name: its directory, or the repository that a snapshot in the hub's cache belongs to, at
// models--USER--REPOSITORY/snapshots/COMMIT.
std::string model_name(const fs::path& directory) {
    std::error_code unknown;
    fs::path path = fs::absolute(directory, unknown).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    if (path.parent_path().filename() == "snapshots") path = path.parent_path().parent_path();
    const std::string name = utf8_text(path.filename());
    return name.starts_with("models--") ? name.substr(name.rfind("--") + 2) : name;
}

// Removes the copy of the head that a tied model's files may contain; transformers ignores it, too. Without a head the embedding
// stands in for it, as in llama.cpp.
void tie(ModelFile& file, std::vector<FileTensor>& tensors, bool is_headless) {
    const bool tied = file.boolean("tie_word_embeddings", false);
    const auto head = std::find_if(tensors.begin(), tensors.end(), [](const FileTensor& t) { return t.name == "output.weight"; });
    if (tied && head != tensors.end()) tensors.erase(head);
    if (tied || head != tensors.end()) return;
    if (!is_headless)
        fail("{}: tensor 'lm_head.weight' is missing, and 'tie_word_embeddings' in config.json is not true",
             utf8_text(file.path()));
    file.add_note(fmt::format("{} has no head (lm_head.weight): it makes embeddings, and texts that it generates mean nothing",
                              utf8_text(file.path())));
}

constexpr std::array mtp_names{Names{"fc.weight", "eh_proj.weight"}, Names{"pre_fc_norm_embedding.weight", "enorm.weight"},
                               Names{"pre_fc_norm_hidden.weight", "hnorm.weight"},
                               Names{"norm.weight", "shared_head_norm.weight"},
                               Names{"lm_head.weight", "shared_head_head.weight"}};

// Gives the tensors of a head for multi-token prediction ("mtp.") GGUF's names of layers after the last one, and the file GGUF's
// keys for it, if there is one.
void name_mtp(ModelFile& file, std::vector<FileTensor>& tensors) {
    constexpr std::string_view mtp = "mtp.", layer = "layers.";
    const Architecture& a = architecture_of(file);
    const uint64_t layers = file.integer(a.key("block_count"));
    uint64_t heads = 0;
    for (FileTensor& t : tensors) {
        if (!t.name.starts_with(mtp)) continue;
        const std::string rest = t.name.substr(mtp.size());
        const bool is_first = rest.starts_with("layers.0."), is_other = rest.starts_with(layer) && !is_first;
        heads = std::max<uint64_t>(heads, is_other ? 2 : 1);
        const std::string_view name = translated(mtp_names, rest);
        t.name = is_first ? fmt::format("model.layers.{}.{}", layers, rest.substr(std::string_view("layers.0.").size()))
                          : fmt::format("blk.{}.nextn.{}", layers + (is_other ? 1 : 0), name.empty() ? rest : name);
    }
    if (heads == 0) return;
    file.mutable_metadata().insert_or_assign(a.key("nextn_predict_layers"), heads);
    file.mutable_metadata().insert_or_assign(a.key("block_count"), layers + heads);
}

// Leaves a hybrid's tensors of the text model: without encoders of images. Their names lose "language_model.", and filters of the
// convolution the dimension of one input.
void keep_text_model(ModelFile& file, std::vector<FileTensor>& tensors) {
    constexpr std::string_view nested = "model.language_model.", model = "model.";
    std::erase_if(tensors, [](const FileTensor& t) { return t.name.starts_with("model.visual."); });
    name_mtp(file, tensors);
    for (FileTensor& t : tensors) {
        if (t.name.starts_with(nested)) t.name = std::string(model) + t.name.substr(nested.size());
        if (t.name.ends_with(".conv1d.weight") && t.ne[1] == 1 && t.ne[3] == 1) t.ne = {t.ne[0], t.ne[2], 1, 1};
    }
}

// Gives the tensors GGUF's names. Returns whether they had the names of a model without a head.
// A name that no table has is an error rather than ignored, since a tensor that is not used is part of another computation than
// ours. The set finds a tensor that is there both with "model." and without.
bool rename(std::vector<FileTensor>& tensors, const ModelFile& file) {
    std::set<std::string> names;
    bool is_headless = true;
    for (FileTensor& t : tensors) {
        const bool is_named = t.name.starts_with("blk.") && t.name.find(".nextn.") != std::string::npos; // name_mtp()
        std::string name = is_named ? t.name : gguf_tensor_name(t.name);
        if (const size_t norm = name.find(".ffn_norm."); norm != std::string::npos) // whose name differs in GGUF
            name.replace(norm + 1, std::string_view("ffn_norm").size(), architecture_of(file).ffn_norm);
        if (name == t.name && !is_named)
            fail("{}: tensor '{}' does not belong to a model of '{}'", utf8_text(file.path()), printable(t.name),
                 architecture_of(file).name);
        if (!names.insert(name).second)
            fail("{}: tensor '{}' is there twice, with \"model.\" before its name and without", utf8_text(file.path()),
                 printable(t.name));
        if (t.name.starts_with("model.")) is_headless = false;
        t.name = std::move(name);
    }
    return is_headless;
}

void check_vocab_size(const ModelFile& file, uint64_t vocab_size) {
    const FileTensor* embedding = file.find_tensor("token_embd.weight");
    if (!embedding) fail("{}: tensor 'model.embed_tokens.weight' is missing", utf8_text(file.path()));
    if (embedding->ne[1] != vocab_size) {
        fail("{} is {}, but tensor 'model.embed_tokens.weight' has {} rows", file.label(architecture_of(file).key("vocab_size")),
             vocab_size, embedding->ne[1]);
    }
}

} // namespace

std::string gguf_tensor_name(const std::string& name) {
    constexpr std::string_view model = "model.", layers = "layers.";
    std::string_view bare = name;
    if (bare.starts_with(model)) bare.remove_prefix(model.size());
    if (const std::string_view whole = translated(whole_names, bare); !whole.empty()) return std::string(whole);
    if (!bare.starts_with(layers)) return name;
    const size_t end = std::min(bare.find('.', layers.size()), bare.size());
    const std::string_view number = bare.substr(layers.size(), end - layers.size()),
                           rest = bare.substr(std::min(end + 1, bare.size()));
    const std::string expert = translated_expert(rest);
    const std::string_view in_layer = expert.empty() ? translated(layer_names, rest) : expert;
    return in_layer.empty() ? name : fmt::format("blk.{}.{}", number, in_layer);
}

ModelFile read_huggingface(const fs::path& directory) {
    ModelFile file(directory);
    file.set_rope_split();
    read_huggingface_config(file, directory);
    std::vector<FileTensor> tensors = read_safetensors_directory(file, directory);
    // Frequencies of RoPE that older files repeat; transformers ignores them, too.
    std::erase_if(tensors, [](const FileTensor& t) { return t.name.ends_with("rotary_emb.inv_freq"); });
    if (architecture_of(file).hybrid) keep_text_model(file, tensors);
    const bool is_headless = rename(tensors, file);
    tie(file, tensors, is_headless);
    file.mutable_tensors() = std::move(tensors);
    const uint64_t vocab_size = file.integer(architecture_of(file).key("vocab_size"));
    check_vocab_size(file, vocab_size);
    read_huggingface_tokenizer(file, directory, vocab_size);
    file.mutable_metadata().emplace("general.name", file.add_text(model_name(directory)));
    return file;
}

} // namespace tq
