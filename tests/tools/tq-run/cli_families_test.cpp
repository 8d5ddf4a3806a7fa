// Models of other families than Qwen as users run them, and what is said of files whose keys have faults that nothing depends on.
#include "tests/support/changed_model.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include "tests/support/test_data.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>

using namespace tq;
using namespace tq::test;

namespace {

const std::string& llama3() {
    static const std::string path = test_data("llama3.gguf").string();
    return path;
}

// The output of a command that succeeds.
std::string output(std::vector<std::string> arguments, const std::string& input = {}) {
    const Finished finished = tq_run(std::move(arguments), input);
    CAPTURE(finished.error);
    CHECK(finished.status == 0);
    return finished.output;
}

// The small model of Llama 3's kind with more keys.
void write_changed(const TemporaryFile& to, const std::map<std::string, ModelFile::Value>& keys) {
    tq::test::write_changed(to.path(), llama3(), keys);
}

} // namespace

TEST_CASE("Llama 3: its BOS token, its template, and texts") {
    CHECK(output({"tokenize", "-m", llama3(), "--text", "2024"}) == "296 284 19\n");
    const auto logits = [](const char* flag, const char* value) {
        return output({"logits", "-m", llama3(), "--device", "cpu", flag, value});
    };
    CHECK(logits("-p", "2024") == logits("--ids", "296,284,19"));
    CHECK(logits("-p", "2024") != logits("--ids", "284,19"));
    const std::string
        messages = R"({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true})",
        prompt = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday "
                 "Date: 26 Jul 2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>"
                 "assistant<|end_header_id|>\n\n";
    CHECK(output({"template", "-m", llama3()}, messages) == prompt);
    CHECK(output({"template", "--variant", "llama31"}, messages) == prompt);
    CHECK(!output({"generate", "-m", llama3(), "--device", "cpu", "-p", "the weather", "-n", "4", "--ignore-eos"}).empty());
    CHECK(!output({"chat", "-m", llama3(), "--device", "cpu", "-st", "-p", "the weather", "-n", "4"}).empty());
}

TEST_CASE("keys that nothing needs: a line says that they are ignored") {
    const TemporaryFile changed;
    write_changed(changed, {{"tokenizer.ggml.padding_token_id", uint64_t(9999)}, {"general.sampling.top_k", int64_t(-1)}});
    const Finished finished = tq_run({"logits", "-m", changed.path().string(), "--device", "cpu", "--ids", "1"});
    CHECK(finished.status == 0);
    CHECK(contains(finished.error, "padding_token_id is 9999, which is ignored: there are 512 tokens\n"));
    output({"generate", "-m", changed.path().string(), "--device", "cpu", "-p", "the", "-n", "1"});
}

TEST_CASE("an answer ends with the tokens that a list of signed integers names") {
    const TemporaryFile all;
    std::vector<int64_t> ids;
    for (int64_t id = 0; id < 505; id++) ids.push_back(id);
    write_changed(all, {{"tokenizer.ggml.eos_token_ids", ids}});
    CHECK(output({"generate", "-m", all.path().string(), "--device", "cpu", "-p", "the", "-n", "5"}) ==
          output({"generate", "-m", all.path().string(), "--device", "cpu", "-p", "the", "-n", "0"}));
}

TEST_CASE("a vocabulary without the tokens of a template: chat says why, and generate goes on") {
    const TemporaryFile other;
    write_changed(other, {{"tokenizer.chat_template", std::string_view("{{ bos_token }}<User>{{ messages[0].content }}")}});
    const Finished chat = tq_run({"chat", "-m", other.path().string(), "--device", "cpu", "-st", "-p", "Hi", "-n", "2"});
    CHECK(chat.status == 1);
    CHECK(contains(chat.error, "has a chat template of another kind than ChatML and Llama 3's"));
    CHECK(contains(chat.error, "the model's vocabulary has no token <|im_start|>"));
    output({"generate", "-m", other.path().string(), "--device", "cpu", "-p", "Hi", "-n", "2"});
}

TEST_CASE("a file without the kind of its tokenizer runs on ids") {
    const TemporaryFile other;
    write_changed(other, {{"tokenizer.ggml.pre", std::string_view("unheard-of")}});
    CHECK(output({"logits", "-m", other.path().string(), "--device", "cpu", "--ids", "296,5", "--kv-condition", "none"}) ==
          output({"logits", "-m", llama3(), "--device", "cpu", "--ids", "296,5", "--kv-condition", "none"}));
    const Finished generate = tq_run({"generate", "-m", other.path().string(), "--device", "cpu", "-p", "Hi"});
    CHECK(generate.status == 1);
    CHECK(contains(generate.error, "tokenizer.ggml.pre is \"unheard-of\""));
}
