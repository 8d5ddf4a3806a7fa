// The program as its users see it: its output on each stream, and its exit status.
#include "base/error.h"
#include "model/cpu/forward.h"
#include "model/files/formats/gguf.h"
#include "tests/support/child_process.h"
#include "tests/support/golden.h"
#include "tests/support/qwen3_vocabulary.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

using namespace tq;
using namespace tq::test;

namespace {

// A random model: its answers are meaningless, but always the same.
const std::string& random_model() {
    static const TemporaryFile file;
    static const std::string path = [] {
        write_random_model(file.path(), {.config = small_config()});
        return file.path().string();
    }();
    return path;
}

Command command(std::vector<std::string> arguments, std::string input = {}) {
    arguments.insert(arguments.begin(), TQ_RUN);
    return {std::move(arguments), std::move(input), {}};
}

// The arguments on the CPU, with the random model.
std::vector<std::string> on_cpu(std::vector<std::string> arguments) {
    for (const std::string& more : {std::string("--device"), std::string("cpu"), std::string("-m"), random_model()})
        arguments.push_back(more);
    return arguments;
}

size_t count_lines(const std::string& text) { return size_t(std::count(text.begin(), text.end(), '\n')); }

std::string join(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

// Standard error has one line, which begins with the program's name and holds `text`; standard output has nothing.
void check_complaint(const Finished& finished, int status, const std::string& text) {
    INFO(finished.error);
    CHECK(finished.status == status);
    CHECK(finished.output == "");
    CHECK(count_lines(finished.error) == 1);
    CHECK(finished.error.starts_with("tq-run: "));
    CHECK(finished.error.find(text) != std::string::npos);
}

std::vector<float> logits_of(const Finished& finished) {
    REQUIRE_MESSAGE(finished.status == 0, finished.error);
    return nlohmann::json::parse(finished.output).at("logits").get<std::vector<float>>();
}

} // namespace

TEST_CASE("help and version are answers") {
    for (const std::vector<std::string>& arguments :
         std::vector<std::vector<std::string>>{{"--help"}, {"chat", "--help"}, {"--version"}}) {
        const Finished finished = tq_run(arguments);
        CHECK(finished.status == 0);
        CHECK(finished.error == "");
        CHECK(finished.output.find(arguments[0] == "--version" ? "tq-run 0." : "[OPTIONS]") != std::string::npos);
    }
    const std::string help = tq_run({"chat", "--help"}).output; // formatted by CLI11, differently in its versions
    for (const char* flag : {"-ctk,", "--cache-type-k", "-m,", "--single-turn"}) CHECK(help.find(flag) != std::string::npos);
    const Finished nothing = tq_run({});
    CHECK(nothing.status == 2);
    CHECK(nothing.output == "");
    CHECK(nothing.error.find("[OPTIONS]") != std::string::npos);
}

TEST_CASE("wrong usage: status 2 and one line that names what is wrong") {
    const std::pair<std::vector<std::string>, std::string> cases[]{
        {{"chat", "--frobnicate"}, "unknown flag --frobnicate"},
        {{"frobnicate"}, "unknown command frobnicate (tq-run --help"},
        {{"chatt"}, "unknown command chatt: did you mean chat?"},
        {{"chat", "extra"}, "unexpected argument extra"},
        {{"chat", "-n"}, "--predict needs a value"},
        {{"chat", "-ctk", "q5_1"}, "--cache-type-k: unknown KV cache type 'q5_1': use tq2 to tq6 or tq8"},
        {{"chat", "-ctv=q5_1"}, "--cache-type-v: unknown KV cache type 'q5_1'"},
        {{"chat", "--kv", "small"}, "--kv: unknown preset 'small': use one of balanced, accurate, compact, smallest"},
        {{"chat", "--kv-layers", "0-1"}, "--kv-layers: '0-1' is not a list of layers and types"},
        {{"chat", "--kv-window", "1025"}, "--kv-window: it must be a number from 0 to 1024, not 1025"},
        {{"bench", "--kernels", "--kv-window", "16"}, "--kv-window"},
        {{"chat", "--kv-rotation", "qr"}, "--kv-rotation: unknown rotation 'qr': use one of wht, haar"},
        {{"chat", "--top-p", "1.5"}, "--top-p: it must be a number from 0 to 1, not 1.5"},
        {{"chat", "--temp", "nan"}, "--temp: it must be a number from 0 to 100, not nan"},
        {{"chat", "--temp", "-1"}, "--temp: it must be a number from 0 to 100, not -1"},
        {{"chat", "--top-k", "1.5"}, "--top-k: 1.5 is not a valid value"},
        {{"chat", "-c", "99999999999999999999"},
         "--ctx-size: it must be a number of tokens from 0 to 16777216, such as 8192 or 32k"},
        {{"chat", "--color=maybe"}, "--color: it must be auto, on or off, not maybe"},
        {{"chat", "--think", "--no-think"}, "--think and --no-think cannot be used together"},
        {{"generate", "-p", "x", "-f", "y"}, "--prompt and --file cannot be used together"},
        {{"tokenize", "--json", "--jsonl"}, "--json and --jsonl cannot be used together"},
        {{"logits"}, "needs token ids"},
        {{"logits", "--ids", "1,x"}, "--ids: it must be token ids such as 1,2,3, not 1,x"},
        {{"logits", "--ids", ""}, "--ids: it is empty"},
        {{"logits", "--ids", "1,2,,3"}, "--ids: it must be token ids such as 1,2,3, not 1,2,,3"},
        {{"logits", "--ids", "1,2,"}, "--ids: it must be token ids"},
        {{"logits", "--ids", "4294967296"}, "--ids: it must be token ids"},
        {{"generate", "-p", "x", "-m", ""}, "--model: it is empty"},
        {{"codec"}, "tq-run: a command is missing (see tq-run codec --help)"},
        {{"generate", "--device", "no such device", "-p", "x"}, "no device matches \"no such device\"; the devices here: 0 = "},
        {{"generate", "--device", "evil\x1b[2J", "-p", "x"}, "no device matches \"evil\\x1b[2J\""},
        {{"generate", "--device", "57", "-p", "x"}, "there is no device 57; the devices here: 0 = "}, // nor a name's part
        {{"generate", "--device", "Vulkan157", "-p", "x"}, "there is no device 157; the devices here: 0 = "},
        {{"shaders", "--device", "cpu"}, "this needs a Vulkan device, which cpu is not; the devices here: 0 = "},
        {{"logits", "--device", "cpu", "--profile", "--ids", "1"}, "--profile"},
        {{"chat", "--bad\x1b[31m"}, "unknown flag --bad\\x1b"},
    };
    for (const auto& [arguments, text] : cases) {
        CAPTURE(join(arguments));
        check_complaint(tq_run(arguments), 2, text);
    }
}

TEST_CASE("failures: status 1 and one line that says what to do") {
    const TemporaryFile text_file("root:x:0:0");
    std::ifstream whole(random_model(), std::ios::binary);
    std::string half(std::filesystem::file_size(random_model()) / 2, '\0');
    whole.read(half.data(), std::streamsize(half.size()));
    const TemporaryFile truncated(half), head(half.substr(0, 100));
    const std::pair<std::vector<std::string>, std::string> cases[]{
        {{"generate", "--device", "cpu", "-p", "x", "-m", "/nonexistent.gguf"}, "cannot open /nonexistent.gguf"},
        {{"generate", "--device", "cpu", "-p", "x", "-m", "Qwen/Qwen3-4B-GGUF:Q8_0"}, "give -hf Qwen/Qwen3-4B-GGUF:Q8_0"},
        {{"generate", "--device", "cpu", "-p", "x", "-m", "models/none.gguf"}, "cannot open models/none.gguf: No such file"},
        {{"generate", "--device", "cpu", "-p", "x", "-m", TQ_SOURCE_DIR}, "is a directory"},
        {{"generate", "--device", "cpu", "-p", "x", "-m", text_file.path().string()}, "not a GGUF file"},
        {{"generate", "--device", "cpu", "-p", "x", "-m", truncated.path().string()},
         truncated.path().string() + ": the file is cut off: "},
        {{"generate", "--device", "cpu", "-p", "x", "-m", head.path().string()},
         head.path().string() + ": the file is cut off, or damaged: download it again (header: "},
        {on_cpu({"generate", "-f", "/nonexistent.txt"}), "cannot open /nonexistent.txt"},
        {on_cpu({"generate", "-f", "/none\x1b[2J\xc2\x9b\xe2\x80\xae\xff\xc3\xa4"}),
         "cannot open /none\\x1b[2J\\xc2\\x9b\\xe2\\x80\\xae\\xff\xc3\xa4: "},
        {on_cpu({"generate", "-p", ""}), "the prompt is empty"},
        {on_cpu({"generate", "-p", "twelve bytes", "-c", "8"}), "the prompt has 12 tokens but the context holds 8"},
        {on_cpu({"generate", "-p", "bad \xff"}), "not valid UTF-8 at byte 4"},
        {on_cpu({"logits", "--ids", "1,2,320"}), "token id 320 is out of range: the model has 320 tokens"},
        {{"tokenize", "-m", random_model(), "--text", "\xc3"}, "not valid UTF-8 at byte 0"},
    };
    for (const auto& [arguments, text] : cases) {
        CAPTURE(join(arguments));
        check_complaint(tq_run(arguments), 1, text);
    }
    check_complaint(tq_run({"template"}, "{"), 1, "is not JSON");
    check_complaint(tq_run({"template"}, "{\"tools\": []}"), 1, "messages");
    check_complaint(tq_run({"template"}, "{\"messages\": [], \"add_generation_prompt\": 1}"), 1, "neither true nor false");
    check_complaint(tq_run({"template"}, std::string(100000, '[')), 1, "nested deeper");
    check_complaint(tq_run({"tokenize", "-m", random_model(), "--jsonl"}, "1\n"), 1,
                    "line 1 of standard input is not a JSON string");
}

TEST_CASE("half a character in JSON is read as U+FFFD, as the server reads it") {
    const std::string half = R"("a\ud83d b")", replaced = R"("a\ufffd b")";
    const auto run_with = [](const std::string& text) {
        const std::string ids = tq_run({"tokenize", "-m", random_model(), "--jsonl"}, text + "\n").output;
        const Finished grammar = tq_run({"grammar", "-j", "{\"const\": " + text + "}"});
        const Finished chat =
            tq_run({"template", "-m", random_model()}, R"({"messages": [{"role": "user", "content": )" + text + "}]}");
        CHECK(grammar.error.empty());
        CHECK(chat.error.empty());
        return ids + grammar.output + chat.output;
    };
    CHECK(run_with(half) == run_with(replaced));
}

TEST_CASE("without Vulkan the processor remains") {
    Command devices = command({"devices"}), generate = command({"generate", "-p", "x", "-m", random_model()});
    devices.environment = generate.environment = {"VK_DRIVER_FILES=/nonexistent", "VK_ICD_FILENAMES=/nonexistent"};
    const Finished listed = run(devices);
    CHECK(listed.status == 0);
    CHECK(listed.output.starts_with("cpu "));
    CHECK(listed.error.find("--device cpu") != std::string::npos);
    generate.arguments.insert(generate.arguments.end(), {"-n", "1"});
    const Finished generated = run(generate);
    CHECK(generated.status == 0);
    CHECK(generated.error.starts_with("tq-run: no GPU was found, so this runs on the CPU\n"));
    generate.arguments.insert(generate.arguments.end(), {"--device", "0"}); // but here it was requested
    check_complaint(run(generate), 1, "--device cpu");
}

TEST_CASE("without a GPU the processor is the default, and a driver that imitates one never is") {
    const auto devices = nlohmann::json::parse(tq_run({"devices", "--json"}).output);
    const auto is_gpu = [](const nlohmann::json& device) { return device["type"] != "cpu" && device["usable"] == true; };
    const std::vector<std::string> flags{"-m", random_model(), "-n", "1", "-p", "x", "-v"};
    const auto generate = [&](std::vector<std::string> more) {
        more.insert(more.begin(), "generate");
        more.insert(more.end(), flags.begin(), flags.end());
        const Finished finished = tq_run(more);
        CHECK(finished.status == 0);
        return finished.error;
    };
    const std::string software = devices[0]["name"];
    const std::string by_default = generate({}), named = generate({"--device", "0"});
    if (std::any_of(devices.begin(), devices.end(), is_gpu)) {
        CHECK(by_default.find("no GPU") == std::string::npos);
        return;
    }
    CHECK(by_default.starts_with("tq-run: no GPU was found, so this runs on the CPU; --device "));
    CHECK(by_default.find(", CPU, ") != std::string::npos);
    CHECK(named.find(software) != std::string::npos);
    CHECK(named.find("no GPU") == std::string::npos);
    CHECK(generate({"-dev", "Vulkan0"}).find(software) != std::string::npos);
    CHECK(generate({"-dev", "none"}).find(", CPU, ") != std::string::npos);
    CHECK(tq_run({"chat", "--list-devices"}).output == tq_run({"devices"}).output);
    // Commands about Vulkan devices take any device; the memory of a software driver does not limit them.
    CHECK(tq_run({"validate", "-m", random_model(), "-p", "ab", "-n", "1"}).output.find("measured   " + software) !=
          std::string::npos);
    CHECK(tq_run({"generate", "-p", "x", "--profile"}).status == 2);
    CHECK(tq_run({"plan"}).output.find("device    CPU\n") != std::string::npos);
}

TEST_CASE("devices are described for people and for programs") {
    const Finished table = tq_run({"devices"});
    CHECK(table.status == 0);
    CHECK(table.output.find("\ncpu ") != std::string::npos);
    const auto list = nlohmann::json::parse(tq_run({"devices", "--json"}).output);
    REQUIRE(list.size() >= 2);
    CHECK(list.back()["device"] == "cpu");
    for (const char* key :
         {"name", "type", "driver_name", "memory_bytes", "subgroup_size", "storage_range_bytes", "float16", "kernels"})
        CHECK(list[0].contains(key));
    CHECK(table.output.find(list[0]["name"].get<std::string>()) != std::string::npos);
}

TEST_CASE("tokenize") {
    const auto tokenize = [](std::vector<std::string> arguments, std::string input = {}) {
        arguments.insert(arguments.begin(), {"tokenize", "-m", random_model()});
        const Finished finished = tq_run(arguments, input);
        REQUIRE_MESSAGE(finished.status == 0, finished.error);
        return finished.output;
    };
    // Here the id of a byte is the byte.
    CHECK(tokenize({"--text", "Hi!"}) == "72 105 33\n");
    CHECK(tokenize({}, "Hi!") == "72 105 33\n");
    CHECK(tokenize({"--json"}, "Hi!") == "{\"ids\": [72, 105, 33]}\n");
    CHECK(tokenize({"--json"}, "") == "{\"ids\": []}\n");
    CHECK(tokenize({"--jsonl"}, "\"Hi!\"\n\"\"\n\"\\u0041\"") == "[72, 105, 33]\n[]\n[65]\n");
    const std::string end = "<|im_end|>";
    CHECK(count_lines(tokenize({"--text", end})) == 1);
    CHECK(tokenize({"--text", end}).find(' ') == std::string::npos); // one id
    CHECK(tokenize({"--text", end, "--no-parse-special"}).find(' ') != std::string::npos);
    const std::string decomposed = "e\xcc\x81"; // e and a combining acute: two bytes once composed
    CHECK(nlohmann::json::parse(tokenize({"--json", "--text", decomposed}))["ids"].size() == 2);
    CHECK(nlohmann::json::parse(tokenize({"--json", "--no-nfc", "--text", decomposed}))["ids"].size() == 3);
}

TEST_CASE("template prints the prompt and nothing else") {
    const auto render = [](const std::string& input, std::vector<std::string> arguments = {"template"}) {
        const Finished finished = tq_run(arguments, input);
        CHECK(finished.error == "");
        CHECK(finished.status == 0);
        return finished.output;
    };
    const std::string question = R"({"messages": [{"role": "user", "content": "Hi"}])";
    CHECK(render(question + "}") == "<|im_start|>user\nHi<|im_end|>\n");
    const std::string prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    CHECK(render(question + R"(, "add_generation_prompt": true})") == prompt);
    const std::string silent = R"(, "add_generation_prompt": true, "enable_thinking": false})";
    CHECK(render(question + silent) == prompt + "<think>\n\n</think>\n\n");
    const std::vector<std::string> newest{"template", "--variant", "qwen3.8"};
    CHECK(render(question + R"(, "add_generation_prompt": true, "reasoning_effort": "medium"})", newest) == prompt + "<think>\n");
    CHECK(contains(render(question + R"(, "reasoning_effort": "low"})", newest), "Reasoning effort is set to low."));
    CHECK(contains(tq_run(newest, question + R"(, "reasoning_effort": "huge"})").error, "neither low, medium, high nor xhigh"));
    CHECK(render(question + silent, {"template", "-m", random_model()}) == prompt); // a file without a template never thinks
}

TEST_CASE("tokenize and template agree with the reference cases") {
    const auto folder = test_data("qwen3-tokenizer");
    const TemporaryFile vocabulary;
    write_qwen3_vocabulary(vocabulary.path());
    nlohmann::ordered_json texts, chats;
    std::ifstream(folder / "cases.json") >> texts;
    std::ifstream(folder / "chat_template_cases.json") >> chats;
    std::string lines;
    for (const auto& c : texts) lines += c["text"].dump() + "\n";
    std::istringstream answers(tq_run({"tokenize", "--jsonl", "-m", vocabulary.path().string()}, lines).output);
    std::string answer;
    for (const auto& c : texts) {
        REQUIRE(std::getline(answers, answer));
        CHECK(nlohmann::json::parse(answer) == c["ids"]);
    }
    CHECK_FALSE(std::getline(answers, answer));
    for (const auto& c : chats) CHECK(tq_run({"template"}, c["input"].dump()).output == c["rendered"].get<std::string>());
}

TEST_CASE("logits come with every digit, and the same from every device") {
    const ModelFile file = read_gguf(random_model());
    const Config config = read_config(file);
    const Weights weights = read_weights(file, config);
    const std::vector<uint32_t> ids{5, 7, 11, 13};
    for (const std::string type : {"f32", "tq4"}) {
        const KvType kv = parse_kv_type(type);
        KvOptions options{kv, kv};
        options.conditioning = parse_key_conditioning("norms"); // nothing is measured
        const auto forward = make_cpu_forward(config, weights, {.kv = options, .context_size = 8});
        const auto expected = forward->run(ids);
        const std::vector<std::string> flags{"logits", "--ids", "5,7,11,13", "--json",         "-ctk",
                                             type,     "-ctv",  type,        "--kv-condition", "norms"};
        CHECK(logits_of(tq_run(on_cpu(flags))) == std::vector<float>(expected.begin(), expected.end()));
        auto on_device = flags;
        on_device.insert(on_device.end(), {"-m", random_model(), "--device", "0"});
        CHECK(relative_error(logits_of(tq_run(on_device)), expected) < 1e-4);
    }
    const Finished plain = tq_run(on_cpu({"logits", "--ids", "5"}));
    CHECK(count_lines(plain.output) == config.vocab_size);
}

TEST_CASE("--weights quantises what is not quantised yet, and says when that is nothing") {
    const Finished again = tq_run(on_cpu({"generate", "-n", "1", "-p", "a", "--weights", "Q4_0"}));
    CHECK(again.status == 0);
    CHECK(again.error.find("--weights has no effect: the weights of ") != std::string::npos);
    const Finished same = tq_run(on_cpu({"generate", "-n", "1", "-p", "a", "--weights", "q8_0"}));
    CHECK(same.error.find("has no effect") == std::string::npos);
    const Finished unknown = tq_run(on_cpu({"generate", "-p", "a", "--weights", "q5_0"}));
    CHECK(unknown.status == 2);
    CHECK(unknown.error.find("--weights: it must be q8_0 or q4_0, not q5_0") != std::string::npos);
}

TEST_CASE("a directory from Hugging Face runs by its path") {
    const auto directory = test_data("qwen3-tied-hf");
    const std::vector<std::string> flags{"logits", "--ids", "5,7,11", "--json", "--device", "cpu", "-ctk", "f32", "-ctv", "f32"};
    const auto logits = [&](std::vector<std::string> more) {
        more.insert(more.begin(), flags.begin(), flags.end());
        return logits_of(tq_run(more));
    };
    const auto as_stored = logits({"-m", directory.string()});
    const Golden golden = load_golden(directory);
    const auto forward = make_cpu_forward(golden.config, golden.weights, {.kv = {KvType::f32, KvType::f32}, .context_size = 8});
    const auto expected = forward->run(std::vector<uint32_t>{5, 7, 11});
    CHECK(as_stored == std::vector<float>(expected.begin(), expected.end()));
    CHECK(relative_error(logits({"-m", directory.string(), "--weights", "q8_0"}), as_stored) < 0.05);
    CHECK(tq_run({"tokenize", "-m", directory.string(), "--text", "Hi there<|im_end|>"}).output == "39 72 270 485 498\n");
}

TEST_CASE("generate prints the continuation, and timings elsewhere") {
    const auto generate = [](std::vector<std::string> more, std::string input = {}) {
        more.insert(more.begin(), {"generate", "-n", "12", "--ignore-eos", "-s", "5"});
        const Finished finished = tq_run(on_cpu(more), input);
        CHECK(finished.status == 0);
        CHECK(finished.error.find("[ 12 tokens in ") != std::string::npos);
        CHECK(finished.error.find(" | context ") != std::string::npos);
        return finished.output;
    };
    const std::string first = generate({"-p", "Hello"});
    CHECK(first.size() > 4);
    CHECK(first.ends_with('\n'));
    CHECK(generate({"-p", "Hello"}) == first);
    CHECK(generate({"-p", "-"}, "Hello") == first);
    CHECK(generate({}, "Hello") == first);
    CHECK(generate({"-f", TemporaryFile("Hello").path().string()}) == first);
    CHECK(generate({"-p", "Hello", "-t", "1", "-b", "2"}) == first);
    CHECK(generate({"-p", "Hello", "-s", "6"}) != first); // the last value is used
    CHECK(generate({"-p", "-ctk"}) != first);             // a text, although it looks like a flag
}

TEST_CASE("what users are asked to send shows no password and no key") {
    const TemporaryDirectory none; // no drivers, so that nothing is to be proved
    const std::vector<std::string> environment{"TQ_RUN_API_KEY=sk-hidden", "TQ_CACHE_SHARED=redis://me:hidden@store:6379/1",
                                               "VK_DRIVER_FILES=" + none.path().string(),
                                               "VK_ICD_FILENAMES=" + none.path().string()};
    for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--json"}}) {
        std::vector<std::string> arguments{"doctor"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const Finished doctor = tq_run(arguments, {}, environment);
        CAPTURE(doctor.output);
        CHECK(contains(doctor.output, "TQ_RUN_API_KEY"));
        CHECK(contains(doctor.output, "redis://***@store:6379/1"));
        CHECK_FALSE(contains(doctor.output + doctor.error, "hidden"));
    }
}
