// Writes the inputs that the fuzz targets begin with, a directory for each: make_fuzz_corpus DIRECTORY [NAME.spv...]
// Inputs in DIRECTORY/NAME.large are too long to be changed, and are only run.
#include "model/files/formats/gguf_writer.h"
#include "model/files/formats/huggingface.h"
#include "model/files/kv_file.h"
#include "model/gpu/tuning_fields.h"
#include "model/gpu/tuning_file.h"
#include "tests/fuzz/fuzz_device.h"
#include "tests/fuzz/prompt_cache_owner.h"
#include "tests/support/huggingface_files.h"
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <iterator>

using namespace tq::test;
using tq::GgmlType, tq::GgufWriter, tq::raw;

namespace {

void write(const std::filesystem::path& path, const std::string& bytes) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}

// A model of one layer, one head of 64, 4 rows of embedding; hidden and ffn 32, or 256 if the type has blocks of that length.
std::string gguf_model(GgmlType type) {
    const uint64_t wide = tq::block_format(type)->elements > 32 ? 256 : 32;
    const GgmlType narrow = wide == 32 ? type : GgmlType::Q8_0; // of rows of 64
    GgufWriter w;
    w.set("general.architecture", "qwen3");
    for (const auto& [key, value] : {std::pair("block_count", uint64_t(1)),
                                     {"context_length", 64},
                                     {"embedding_length", wide},
                                     {"feed_forward_length", wide},
                                     {"attention.head_count", 1},
                                     {"attention.head_count_kv", 1},
                                     {"attention.key_length", 64}})
        w.set(std::string("qwen3.") + key, value);
    w.set("qwen3.rope.freq_base", 1e6);
    w.set("qwen3.attention.layer_norm_rms_epsilon", 1e-6);
    w.add_tensor("token_embd.weight", type, {wide, 4});
    w.add_tensor("output_norm.weight", GgmlType::F32, {wide});
    for (const auto& [name, cols] : {std::pair("attn_norm", wide), {"ffn_norm", wide}, {"attn_q_norm", 64}, {"attn_k_norm", 64}})
        w.add_tensor(std::string("blk.0.") + name + ".weight", GgmlType::F32, {cols});
    for (const char* name : {"attn_q", "attn_k", "attn_v"})
        w.add_tensor(std::string("blk.0.") + name + ".weight", type, {wide, 64});
    w.add_tensor("blk.0.attn_output.weight", narrow, {64, wide});
    for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"})
        w.add_tensor(std::string("blk.0.") + name + ".weight", type, {wide, wide});
    if (tq::block_format(type)->has_factor) w.add_tensor("blk.0.ffn_up.scale", GgmlType::F32, {1});
    return w.zeros();
}

std::string gguf_values() {
    GgufWriter w;
    w.set("i", int64_t(-7));
    w.set("b", true);
    w.set("texts", std::vector<std::string_view>{"one", "", "three"});
    w.set("ints", std::vector<int64_t>{1, -2});
    w.set_raw("split.no", 2, raw(uint16_t(0)));
    w.set_raw("split.count", 2, raw(uint16_t(1)));
    w.add_tensor("a", GgmlType::Q6_K, {256, 2});
    return w.zeros();
}

std::string text_of_bytes(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// `kind` is the first byte, as the targets read it.
std::string prompt_cache(uint8_t kind) {
    const tq::CacheOwner owner = tq::fuzz::prompt_cache_owner(kind);
    const std::vector<uint32_t> ids{3, 1, 4};
    std::string bytes(1, char(kind));
    tq::SavedSlot window{2, 2};
    window.window.resize(window_layout(page_layout(owner.config, owner.kv)).bytes(2));
    tq::write_prompt_cache(
        owner, ids, 2, [](uint32_t, std::span<std::byte> page) { std::ranges::fill(page, std::byte(1)); }, window,
        [&](std::span<const std::byte> piece) { bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size()); });
    return bytes;
}

// `count` parts, opened by part `opened`; part `wrong` has the number of another.
std::string split_gguf(uint16_t count, uint8_t opened, int wrong = -1) {
    std::string bytes(1, char(opened));
    for (uint16_t i = 0; i < count; i++) {
        GgufWriter w;
        if (i == 0) w.set("general.name", "whole");
        w.set_raw("split.no", 2, raw(uint16_t(i == wrong ? i + 1 : i)));
        w.set_raw("split.count", 2, raw(count));
        w.set_raw("split.tensors.count", 5, raw(int32_t(count - 1)));
        if (i > 0) w.add_tensor("t" + std::to_string(i), GgmlType::F32, {4});
        const std::string part = w.zeros();
        bytes += raw(uint32_t(part.size())) + part;
    }
    return bytes;
}

// Many values in little text: an algorithm that takes time for each pair of them takes too long.
std::string empty_objects(int count) {
    std::string list = "{}";
    for (int i = 1; i < count; i++) list += ",{}";
    return list;
}

std::string hub_reply(const std::string& body, const std::string& headers = {}) {
    return "HTTP/1.1 200 OK\n" + headers + "\n" + body;
}

json hub_file(const std::string& path, uint64_t size, bool large) {
    json file{{"type", "file"}, {"path", path}, {"size", size}, {"oid", std::string(40, 'a')}};
    if (large) file["lfs"] = {{"oid", std::string(64, 'b')}, {"size", size}, {"pointerSize", 134}};
    return file;
}

void write_hub(const std::filesystem::path& to) {
    const std::string commit = hub_reply(R"({"sha": ")" + std::string(40, 'c') + R"("})");
    const auto listed = [&](const char* name, const json& files) {
        write(to / name, commit + "\n-\n" + hub_reply(files.dump()));
    };
    listed("one", {hub_file("model-Q4_K_M.gguf", 1000, true)});
    listed("quants",
           {hub_file("m-Q8_0.gguf", 9, true), hub_file("m-Q4_0.gguf", 5, true), {{"type", "directory"}, {"path", "d"}}});
    listed("split", {hub_file("m-00001-of-00002.gguf", 9, true), hub_file("m-00002-of-00002.gguf", 9, true)});
    listed("safetensors", {hub_file("config.json", 9, false), hub_file("tokenizer.json", 9, false),
                           hub_file("generation_config.json", 9, false), hub_file("model.safetensors", 9, true)});
    write(to / "pages", commit + "\n-\n" +
                            hub_reply(json::array({hub_file("a.txt", 1, false)}).dump(),
                                      "Link: </api/next?cursor=1>; rel=\"next\", <x>; rel=\"first\"\n") +
                            "\n-\n" + hub_reply(json::array({hub_file("d/m-F16.gguf", 2, true)}).dump()));
    write(to / "refused", "HTTP/1.1 429 Too Many\nRetry-After: 5\nX-Error-Message: slow\nContent-Range: bytes 7-9/10\n\n{}");
    write(to / "interim", "HTTP/1.1 100 Continue\nHTTP/2 404\nX-Error-Code: RepoNotFound\n\n");
    json many = json::array();
    for (int i = 0; i < 10000; i++) many.push_back(hub_file("f" + std::to_string(i), 1, false));
    many.push_back(hub_file("model-Q4_K_M.gguf", 1000, true));
    write(to.string() + ".large/files", commit + "\n-\n" + hub_reply(many.dump()));
    write(to.string() + ".large/objects", commit + "\n-\n" + hub_reply('[' + empty_objects(400000) + ']'));
}

void write_kv_json(const std::filesystem::path& to) {
    for (const auto& [type, name] : tq::kv_types) {
        tq::KvOptions kv;
        kv.set({type, tq::KvType::tq4});
        write(to / name, tq::kv_file_text(kv, 2, "a seed"));
    }
    write(to.string() + ".large/layers", R"({"schema": "tq-run-kv", "version": 1, "layers": [)" + empty_objects(300000) + "]}");
}

void write_run_log(const std::filesystem::path& to) {
    const std::string what = R"({"what": "perplexity", "model": "m", "chunks": 3})";
    const std::string part = R"({"chunk": 1, "nll": [1.5, 2.25e-3], "types": {"k": "tq4"}})";
    write(to / "begun", what + "\n");
    write(to / "two", what + "\n" + part + "\n" + part + "\n");
    write(to / "cut", what + "\n" + part + "\n" + part.substr(0, 20));
    write(to / "broken", what + "\n" + part.substr(0, 20) + "\n" + part + "\n");
    write(to / "empty", "");
    write(to.string() + ".large/list", what + "\n[" + empty_objects(300000) + "]\n");
}

void write_template(const std::filesystem::path& to) {
    const char* sources[] = {"{%- if enable_thinking is defined and enable_thinking is false %}",
                             "{{- '<|im_start|>assistant\\n<think>\\n' }}",
                             "{{- '<|im_start|>assistant\\n' }}",
                             "",
                             "<|start_header_id|>{{ strftime_now('%d') }}Cutting Knowledge Date",
                             "<parameter= preserve_thinking is undefined",
                             "<parameter= enable_thinking is true",
                             "<parameter= following tools:"};
    const char* messages[] = {
        R"([{"role": "user", "content": "Hello"}])",
        R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi.", "reasoning_content": "hm"}, {"role": "user", "content": "?"}])",
        R"([{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": null, "tool_calls": [{"type": "function",
            "function": {"name": "weather", "arguments": {"city": "\u00fc"}}}, {"name": "time", "arguments": "{}"}]},
            {"role": "tool", "content": "sun"}, {"role": "tool", "content": "noon"}])",
    };
    const char* tools = R"([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}])";
    for (size_t i = 0; i < std::size(sources); i++)
        for (size_t k = 0; k < std::size(messages); k++)
            write(to / (std::to_string(i) + std::to_string(k)),
                  sources[i] + std::string("\n-\n") + messages[k] + (k == 1 ? "" : std::string("\n-\n") + tools));
    std::string list;
    for (int i = 0; i < 20000; i++) list += std::string(i == 0 ? "" : ",") + R"({"role": "user", "content": "Hello"})";
    write(to.string() + ".large/list", "\n-\n[" + list + "]");
}

void write_grammars(const std::filesystem::path& to) {
    const char* grammars[] = {
        "root ::= \"{\" (\"a:\" value (\",\" value)*)? \"}\"\nvalue ::= root | [0-9]{1,3}\n-\n{a:12,{}}",
        "root ::= ([^\\x00-\\x1F\"] | .)+ # text\n-\nabc\u00e9",
        "root ::= \"(\" root \")\" | <think> | \"x\"?\n-\n((x",
        "root ::= root \"a\" | \"\"",
    };
    for (size_t i = 0; i < std::size(grammars); i++) write(to / "gbnf" / std::to_string(i), grammars[i]);
    const char* schemas[] = {
        R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": -3, "maximum": 120}, "b": {"$ref": "#/$defs/b"}}, "required": ["a"],
            "additionalProperties": {"type": "string"}, "$defs": {"b": {"type": "array", "items": {"$ref": "#/$defs/b"}, "minItems": 1}}})",
        R"({"anyOf": [{"enum": ["x", 1, null]}, {"type": ["string", "null"], "minLength": 2, "maxLength": 5}, {"format": "date-time"}]})",
        R"({"allOf": [{"properties": {"p": {"pattern": "^[a-z]+(-\\d{2,3})?$"}}}, {"required": ["p"]}], "oneOf": [{"type": "object"}]})",
        R"({"type": "number", "exclusiveMinimum": 0.25, "maximum": 3.5, "nullable": true})",
        R"({"prefixItems": [{"const": {"a": 1}}, true], "items": false, "minItems": 1})",
    };
    for (size_t i = 0; i < std::size(schemas); i++) write(to / "json_schema" / std::to_string(i), schemas[i]);
    const char* answers[] = {
        "<think>\nhm\n</think>\n\nYes.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": [1, \"}\"]}}\n</tool_call>\n",
        "<tool_call>\n<function=f>\n<parameter=n>\n4\n</parameter>\n<parameter=e>null</parameter></function>\n</tool_call>",
        "<tool_call>{\"arguments\": \"{}\", \"name\": \"f\"}</tool_call><tool_call>{oops</tool_call> text",
        "{\"name\": \"f\", \"parameters\": {\"n\": 1}}; {\"name\": \"f\", \"parameters\": {}} {",
    };
    for (size_t i = 0; i < std::size(answers); i++) write(to / "tool_calls" / std::to_string(i), answers[i]);
}

// Files as store_tuning writes them: the device's own choice, and with each field at each of its values.
void write_tuning(const std::filesystem::path& to) {
    ::setenv("TQ_CACHE_DIR", (to.string() + ".made").c_str(), 1);
    const tq::Capabilities device = tq::fuzz::device();
    const tq::gpu::Tuning chosen = tq::gpu::choose_tuning(device);
    const auto store = [&](const std::string& name, const tq::gpu::Tuning& tuning) {
        tq::gpu::store_tuning(device, tuning, {{"about", "a seed"}});
        std::filesystem::create_directories(to);
        std::filesystem::rename(tq::gpu::tuning_path(device), to / name);
    };
    store("chosen", chosen);
    for (const tq::gpu::TuningField& field : tq::gpu::tuning_fields())
        for (const uint32_t value : field.values) {
            tq::gpu::Tuning tuning = chosen;
            field.set(tuning, value);
            store(field.name + std::to_string(value), tuning);
        }
    std::filesystem::remove_all(to.string() + ".made");
}

void write_pipelines(const std::filesystem::path& to) {
    const tq::Capabilities device = tq::fuzz::device();
    std::string data = raw(uint32_t(32)) + raw(uint32_t(1)) + raw(device.vendor_id) + raw(device.device_id);
    data.append(device.pipeline_cache_uuid.begin(), device.pipeline_cache_uuid.end());
    write(to / "header", '\0' + data);
    write(to / "data", '\0' + data + std::string(100, 'x'));
    write(to / "other", '\0' + std::string(64, 'x'));
    const uint64_t magic = 0x3165686361637174; // "tqcache1"
    write(to / "whole_file", '\1' + raw(magic) + raw(uint64_t(data.size())) + raw(uint64_t(0)) + data);
    write(to / "short_file", '\1' + raw(magic) + raw(uint64_t(1000)) + raw(uint64_t(0)) + data);
}

void write_tokenizer(const std::filesystem::path& to, HuggingFaceFiles& files) {
    json tokenizer = files.documents["tokenizer.json"];
    const std::string config = "\n-\n" + files.documents["tokenizer_config.json"].dump();
    write(to / "texts", tokenizer.dump() + config);
    tokenizer["model"]["merges"] = json::array({json::array({"a", "a"}), json::array({"u", "s"})});
    write(to / "pairs", tokenizer.dump());
    write(to / "no_merges", (tokenizer["model"]["merges"] = json::array(), tokenizer.dump() + config));
    tokenizer["added_tokens"] = json::array();
    write(to / "no_added", tokenizer.dump());
    write(to.string() + ".large/list", R"({"added_tokens": [)" + empty_objects(400000) + "]}");
}

void write_config(const std::filesystem::path& to, HuggingFaceFiles& files) {
    json& config = files.documents["config.json"];
    const std::string generation = "\n-\n" + files.documents["generation_config.json"].dump();
    write(to / "plain", config.dump() + generation);
    write(to / "no_generation", config.dump());
    json linear = config, yarn = config, dtype = config;
    linear["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
    write(to / "linear", linear.dump() + generation);
    yarn.erase("rope_theta");
    yarn["rope_parameters"] = {{"rope_type", "yarn"},
                               {"factor", 4.0},
                               {"original_max_position_embeddings", 1024},
                               {"rope_theta", 1e6},
                               {"attention_factor", 1.5}};
    write(to / "yarn", yarn.dump());
    dtype["quantization_config"] = {{"quant_method", "fp8"}};
    dtype["eos_token_id"] = {260, 261};
    write(to / "lists", dtype.dump() + generation);
    write(to.string() + ".large/list", R"({"architectures": [)" + empty_objects(300000) + "]}");
}

void write_safetensors(const std::filesystem::path& to) {
    SafetensorsWriter weights;
    weights.add("model.norm.weight", "F32", {2, 3}, std::string(24, 'a'));
    weights.add("lm_head.weight", "BF16", {4}, std::string(8, 'b'));
    weights.add("scalar", "F16", {}, "cc");
    weights.header["__metadata__"] = {{"format", "pt"}};
    write(to / "three", weights.bytes());
    for (const auto& [dtype, bytes] : {std::pair("F64", 8), {"F32", 4}, {"BF16", 2}, {"I8", 1}, {"F8_E4M3", 1}, {"BOOL", 1}}) {
        SafetensorsWriter one;
        one.add("t", dtype, {2, 2}, std::string(size_t(bytes) * 4, 'd'));
        one.add("empty", dtype, {0, 2}, "");
        write(to / dtype, one.bytes());
    }
    SafetensorsWriter many;
    for (int i = 0; i < 20000; i++) many.add("t" + std::to_string(i), "F16", {1}, "ee");
    write(to.string() + ".large/tensors", many.bytes());
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 2) return std::cerr << "usage: make_fuzz_corpus DIRECTORY [NAME.spv...]\n", 2;
    const std::filesystem::path to = argv[1];
    for (const GgmlType type : tq::weight_formats) write(to / "gguf" / tq::type_name(type), gguf_model(type));
    write(to / "gguf/values", gguf_values());
    for (size_t kind = 0; kind < tq::kv_types.size(); kind++)
        for (const char* target : {"prompt_cache", "restore"})
            write(to / target / std::to_string(kind), prompt_cache(uint8_t(kind)));
    for (const uint32_t tokens : {1, 33, 256}) {
        const std::vector<uint32_t> ids(tokens, 7);
        const std::vector<std::byte> content(8 * tokens, std::byte(3));
        const auto head = page_head_bytes(tq::make_page_head({1, 2}, {3, 4}, ids, tokens / 2), content);
        write(to / "page" / std::to_string(tokens), text_of_bytes(head) + text_of_bytes(content));
    }
    for (const uint16_t count : {1, 2, 3, 4})
        for (uint8_t opened = 0; opened < count; opened++)
            write(to / fmt::format("split_gguf/{}of{}", opened, count), split_gguf(count, opened));
    write(to / "split_gguf/wrong", split_gguf(3, 0, 1));

    HuggingFaceFiles files = small_huggingface_model();
    write_tokenizer(to / "tokenizer", files);
    write_config(to / "config", files);
    write_safetensors(to / "safetensors");
    write_hub(to / "hub");
    write_kv_json(to / "kv_json");
    write_run_log(to / "run_log");
    write_template(to / "template");
    write_grammars(to);
    write_tuning(to / "tuning");
    write_pipelines(to / "pipelines");
    for (int i = 2; i < argc; i++) {
        std::ifstream file(argv[i], std::ios::binary);
        write(to / "reflect" / std::filesystem::path(argv[i]).stem(), {std::istreambuf_iterator<char>(file), {}});
    }
}
