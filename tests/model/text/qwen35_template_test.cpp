// The templates of Qwen3.5, 3.6, 3.8 and Qwen3-Coder-Next: their renderings, what they would refuse, and how they are recognised.
#include "base/error.h"
#include "model/engine/sampling/sampler.h"
#include "model/model.h"
#include "model/text/chat_template.h"
#include "tests/support/chat_cases.h"
#include "tests/support/test_data.h"
#include "tests/support/text.h"
#include "tests/support/vocabulary_file.h"
#include <algorithm>

using namespace tq;
using namespace tq::test;

namespace {

using Json = nlohmann::ordered_json;

constexpr ChatVariant all_variants[] = {ChatVariant::qwen35, ChatVariant::qwen35_small, ChatVariant::qwen36, ChatVariant::qwen38};

std::string render(const char* messages, const ChatOptions& options, const char* tools = "null") {
    return to_text(render_chat(Json::parse(messages), Json::parse(tools), options));
}

ChatVariant variant_of(std::string_view chat_template) {
    return chat_variant(open_keys({{"tokenizer.chat_template", chat_template}}));
}

} // namespace

TEST_CASE("what the templates of Qwen3.5 and later, and Qwen3-Coder-Next's, render") {
    check_chat_cases(test_data("qwen35_template_cases.json"), 43);
}

TEST_CASE("a system message that is not the first is a user's turn, but no question") {
    const char* list = R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "r"},
                           {"role": "system", "content": " mid\n"}])";
    for (const ChatVariant variant : all_variants) {
        const ChatOptions options{.variant = variant, .enable_thinking = false};
        CHECK(render(list, options) ==
              "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\nr\n</think>\n\nb<|im_end|>\n"
              "<|im_start|>user\nmid<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
    }
}

TEST_CASE("nobody need ask, and a tool's result may be the first message") {
    for (const ChatVariant variant : all_variants) {
        const ChatOptions options{.variant = variant, .add_generation_prompt = false, .enable_thinking = false};
        CHECK(render(R"([{"role": "system", "content": "a"}])", options) == "<|im_start|>system\na<|im_end|>\n");
        CHECK(
            render(R"([{"role": "system", "content": "s"}, {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}])",
                   options) == "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\n<tool_response>\n1\n</tool_response>\n"
                               "<tool_response>\n2\n</tool_response><|im_end|>\n");
    }
}

TEST_CASE("arguments may be the text of an object, or empty; what is no object is refused or shown") {
    const auto calls = [](ChatVariant variant, const std::string& arguments, bool cut) {
        const std::string list = R"([{"role": "user", "content": "q"},
            {"role": "assistant", "tool_calls": [{"name": "f", "arguments": )" +
                                 arguments + "}]}]";
        const std::string text = render(list.c_str(), {.variant = variant, .cut_arguments = cut});
        const size_t begin = text.find("<function="), end = text.find("</function>");
        REQUIRE(begin < end);
        return text.substr(begin, end - begin);
    };
    for (const ChatVariant variant : all_variants) {
        CHECK(calls(variant, R"("{\"x\": [1]}")", false) == "<function=f>\n<parameter=x>\n[1]\n</parameter>\n");
        CHECK(calls(variant, R"({"x": [1]})", false) == "<function=f>\n<parameter=x>\n[1]\n</parameter>\n");
        CHECK(calls(variant, R"("")", false) == "<function=f>\n");
        CHECK(calls(variant, R"("{\"x\": ")", true) == "<function=f>\n{\"x\": \n");
        CHECK_THROWS_WITH_AS(calls(variant, "[1]", false), "message 1 has a tool call whose arguments are not a JSON object",
                             Error);
    }
}

TEST_CASE("a prompt opens the thinking where the model is to think") {
    const char* hi = R"([{"role": "user", "content": "Hi"}])";
    for (const ChatVariant variant : all_variants) {
        CHECK(render(hi, {.variant = variant, .enable_thinking = true}).ends_with("<|im_start|>assistant\n<think>\n"));
        CHECK(render(hi, {.variant = variant, .enable_thinking = false})
                  .ends_with("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
        const ChatOptions silent{.variant = variant};
        CHECK(silent.thinks() == (variant != ChatVariant::qwen35_small));
        CHECK(silent.opens_thinking() == silent.thinks());
        CHECK(silent.keeps_thinking() == (variant == ChatVariant::qwen38));
        CHECK(render(hi, silent).ends_with(silent.thinks() ? "assistant\n<think>\n" : "<think>\n\n</think>\n\n"));
    }
    CHECK(!ChatOptions{.variant = ChatVariant::qwen35, .preserve_thinking = true}.keeps_thinking());
    CHECK(ChatOptions{.variant = ChatVariant::qwen36, .preserve_thinking = true}.keeps_thinking());
    CHECK(!ChatOptions{.variant = ChatVariant::coder_next}.thinks());
}

TEST_CASE("only Qwen3.8 is told how much to think, and not where it does not think") {
    const char* hi = R"([{"role": "user", "content": "Hi"}])";
    for (const ChatVariant variant : all_variants)
        for (const ReasoningEffort effort : {ReasoningEffort::low, ReasoningEffort::medium, ReasoningEffort::xhigh})
            for (const bool thinks : {true, false}) {
                const bool told = variant == ChatVariant::qwen38 && effort != ReasoningEffort::medium && thinks;
                const std::string text = render(hi, {.variant = variant, .enable_thinking = thinks, .effort = effort});
                const std::string level = effort == ReasoningEffort::low ? "low. Keep" : "xhigh. Please";
                CHECK(
                    text.starts_with(told ? "<|im_start|>system\nReasoning effort is set to " + level : "<|im_start|>user\nHi"));
            }
}

TEST_CASE("nothing in a conversation can forge a special token") {
    const Tokenizer tokenizer(small_vocabulary().open());
    const auto specials = [&](ChatVariant variant, const char* text) {
        const std::string list = fmt::format(R"([{{"role": "system", "content": "{0}"}}, {{"role": "user", "content": "{0}"}},
            {{"role": "assistant", "content": "a{0}", "reasoning_content": "{0}",
              "tool_calls": [{{"name": "{0}", "arguments": {{"{0}": "{0}", "x": ["{0}"]}}}}]}},
            {{"role": "tool", "content": "{0}"}}, {{"role": "system", "content": "{0}"}}])",
                                             text);
        const std::string tools = fmt::format(R"([{{"name": "{0}", "{0}": "{0}"}}])", text);
        const auto ids = tokenizer.encode(render_chat(Json::parse(list), Json::parse(tools), {.variant = variant}));
        return std::ranges::count_if(ids, [&](uint32_t id) { return tokenizer.special(tokenizer.bytes(id)).has_value(); });
    };
    for (const ChatVariant variant : all_variants) {
        CHECK(specials(variant, "x") > 0);
        for (const char* forged : {"<|im_end|>", "</tool_call>", "<think>", "</think>"})
            CHECK(specials(variant, forged) == specials(variant, "x"));
    }
}

TEST_CASE("where a file says nothing, sampling is that of the cards") {
    const auto sampling = [](std::string_view chat_template, bool thinks) {
        return recommended_sampling(open_keys({{"tokenizer.chat_template", chat_template}}), thinks);
    };
    const std::string_view qwen35 = "<parameter= enable_thinking", next = "<parameter= following tools:", coder = "<parameter=";
    CHECK(sampling(qwen35, true).temperature == 1);
    CHECK(sampling(qwen35, true).top_p == 0.95f);
    CHECK(sampling(qwen35, true).top_k == 20);
    CHECK(sampling(qwen35, true).presence_penalty == 0);
    CHECK(sampling(qwen35, false).temperature == 0.7f);
    CHECK(sampling(qwen35, false).top_p == 0.8f);
    CHECK(sampling(next, false).temperature == 1);
    CHECK(sampling(next, false).top_k == 40);
    CHECK(sampling(coder, false).temperature == 0.7f);
    const SamplerOptions own = recommended_sampling(
        open_keys(
            {{"tokenizer.chat_template", qwen35}, {"general.sampling.temp", 0.25}, {"general.sampling.top_k", uint64_t(7)}}),
        true);
    CHECK(own.temperature == 0.25f);
    CHECK(own.top_k == 7);
    CHECK(own.top_p == 0.95f);
}

TEST_CASE("a template is recognised by its features") {
    const std::string calls = R"({%- macro render_content(content) %}{{ '<tool_call>\n<function=' + name + '>\n<parameter=' }})",
                      off = "{%- if enable_thinking is defined and enable_thinking is false %}";
    CHECK(variant_of(calls + off) == ChatVariant::qwen35);
    CHECK(variant_of(calls + "{%- if enable_thinking is defined and enable_thinking is true %}") == ChatVariant::qwen35_small);
    CHECK(variant_of(calls + "{%- if (preserve_thinking is defined and preserve_thinking is true) %}" + off) ==
          ChatVariant::qwen36);
    CHECK(variant_of("{%- if enable_thinking is undefined or enable_thinking is true %}" + calls +
                     "{%- if preserve_thinking is undefined or preserve_thinking is true %}") == ChatVariant::qwen38);
    const std::string coder = "{{ '\\n<tool_call>\\n<function=' + name + '>\\n<parameter=' }}";
    CHECK(variant_of("You have access to the following functions:" + coder) == ChatVariant::coder);
    CHECK(variant_of("You have access to the following tools:" + coder) == ChatVariant::coder_next);
    for (const auto& [name, variant] : chat_variant_names) CHECK(find_chat_variant(name) == variant);
    CHECK(!find_chat_variant("qwen3.7"));
}
