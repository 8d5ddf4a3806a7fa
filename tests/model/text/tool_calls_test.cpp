// Tool calls in an answer: all forms, divided at every place, with thinking and text around them, and what only looks like a
// call.
#include "base/error.h"
#include "model/text/tool_calls.h"
#include "tests/support/parsed_answer.h"
#include <algorithm>
#include <array>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <random>

using namespace tq;

namespace {

using Kind = AnswerPart::Kind;
using Json = nlohmann::ordered_json;

// The parts as "kind text" lines; neighbours of one kind are joined.
std::string described(const std::vector<AnswerPart>& parts) {
    std::string out;
    const AnswerPart* before = nullptr;
    for (const AnswerPart& part : parts) {
        const bool joins = before && before->kind == part.kind && part.kind != Kind::call_begin && part.kind != Kind::call_end;
        constexpr const char* names[] = {"R ", "C ", "F ", "A ", "E "};
        if (!joins) out += (before ? "\n" : "") + std::string(names[int(part.kind)]);
        if (!joins && part.kind >= Kind::call_begin) out += std::to_string(part.call) + " ";
        out += part.kind == Kind::call_end ? (part.valid ? "valid" : "invalid " + part.text) : part.text;
        before = &part;
    }
    return out;
}

std::string parse(std::string_view text, size_t step, bool in_thinking, const ToolTypes& types,
                  UntaggedCalls untagged = UntaggedCalls::none, bool cut = false) {
    AnswerParser parser(in_thinking, types, untagged);
    std::vector<AnswerPart> parts;
    const auto take = [&](std::vector<AnswerPart> more) { parts.insert(parts.end(), more.begin(), more.end()); };
    for (size_t begin = 0, end; begin < text.size(); begin = end) {
        end = std::min(begin + step, text.size());
        while (end < text.size() && (uint8_t(text[end]) & 0xC0) == 0x80) ++end; // complete characters
        take(parser.push(text.substr(begin, end - begin)));
    }
    take(parser.finish(cut));
    return described(parts);
}

// The same for every division.
void check(std::string_view text, const std::string& wanted, bool in_thinking = false, const ToolTypes& types = {},
           UntaggedCalls untagged = UntaggedCalls::none, bool cut = false) {
    CAPTURE(std::string(text));
    for (const size_t step : {text.size() + 1, size_t(1), size_t(2), size_t(3), size_t(7)})
        CHECK(parse(text, step, in_thinking, types, untagged, cut) == wanted);
}

const char* tools = R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
    "text": {"type": "string"}, "n": {"type": "integer"}, "on": {"type": "boolean"}, "list": {"type": "array"},
    "maybe": {"type": ["string", "null"]}, "kind": {"enum": ["a", "b"]}, "any": {}}}}}, {"name": "g"}, 7, {"name": 1}])";

} // namespace

TEST_CASE("Llama's calls have no tags, and name a tool") {
    const ToolTypes types(Json::parse(tools));
    const auto is = [&](std::string_view text, const std::string& wanted) {
        check(text, wanted, false, types, UntaggedCalls::several);
    };
    is(R"({"name": "f", "parameters": {"text": "}", "n": 4}})", "F 0 f\nA 0 {\"text\": \"}\", \"n\": 4}\nE 0 valid");
    is("\n {\"type\": \"function\", \"name\": \"g\", \"parameters\": {}}\n", "F 0 g\nA 0 {}\nE 0 valid\nC \n");
    is(R"({"name": "f", "parameters": "{\"n\": 4}"})", "F 0 f\nA 0 {\"n\": 4}\nE 0 valid");
    is(R"({"name": "g", "parameters": {}}; {"name": "f", "parameters": {"n": 1}})",
       "F 0 g\nA 0 {}\nE 0 valid\nF 1 f\nA 1 {\"n\": 1}\nE 1 valid");
    for (const char* content :
         {R"({"name": "other", "parameters": {}})", R"({"name": "f"})", R"({"name": "f", "parameters": [1]})",
          R"({"name": "f", "parameters": {"n": 1)", R"({"a": 1} and {"name": "g", "parameters": {}})",
          R"(So: {"name": "g", "parameters": {}})", "{", "{}", "Hello {", "[1]", R"({"name": 1, "parameters": {}})"})
        is(content, std::string("C ") + content);
    is("", "");
    is(R"({"name": "g", "parameters": {}}; and)", "F 0 g\nA 0 {}\nE 0 valid\nC ; and");
    is(R"({"name": "g", "parameters": {}}; {"name": "no)", "F 0 g\nA 0 {}\nE 0 valid\nC ; {\"name\": \"no");
    is("```json\n{\"name\": \"g\", \"parameters\": {}}\n```", "F 0 g\nA 0 {}\nE 0 valid");
    const auto cut = [&](std::string_view text, const std::string& wanted) {
        check(text, wanted, false, types, UntaggedCalls::several, true);
    };
    const std::string begun = R"({"type": "function", "name": "f", "parameters": {"n": 1)";
    cut(begun, "F 0 f\nA 0 {\"n\": 1\nE 0 invalid " + begun);
    cut(R"({"name": "g", "parameters": {}}; )" + begun, "F 0 g\nA 0 {}\nE 0 valid\nF 1 f\nA 1 {\"n\": 1\nE 1 invalid ; " + begun);
    for (size_t n = 1; n < begun.find(": {") + 3; ++n) cut(begun.substr(0, n), ""); // nothing of it is content
    cut(R"({"parameters": {"n": 1}, "na)", "");
    cut("```json\n" + begun, "F 0 f\nA 0 {\"n\": 1\nE 0 invalid ```json\n" + begun);
    for (const char* content : {R"({"name": "no)", R"({"name": "f", "parameters": [1)", R"({"b)", "{}", "```", "Hello {"})
        cut(content, std::string("C ") + content);
    check(R"({"name": "f", "par)", "", false, types, UntaggedCalls::alone, true);
    for (const char* content : {"{", R"({"na)", R"({"arguments": {)"}) // of models whose calls have tags
        check(content, std::string("C ") + content, false, types, UntaggedCalls::alone, true);
    check(R"({"name": "g", "parameters": {}})", R"(C {"name": "g", "parameters": {}})", false, ToolTypes(Json::parse(tools)));
    is("<think>\nhm\n</think>\n\n{\"name\": \"g\", \"parameters\": {}}", "R hm\nF 0 g\nA 0 {}\nE 0 valid");
}

TEST_CASE("calls without tags begin a line: in a fence, or at the answer's end, behind text and one another") {
    const ToolTypes types(Json::parse(tools));
    const std::string g = R"({"name": "g", "arguments": {}})", f = R"({"name": "f", "arguments": {"text": "```"}})";
    const std::string g_parts = "F 0 g\nA 0 {}\nE 0 valid", f_parts = "F 0 f\nA 0 {\"text\": \"```\"}\nE 0 valid";
    for (const UntaggedCalls kind : {UntaggedCalls::alone, UntaggedCalls::several}) {
        const auto is = [&](const std::string& text, const std::string& wanted, bool cut = false) {
            CAPTURE(int(kind));
            check(text, wanted, false, types, kind, cut);
        };
        is("I look.\n\n```json\n" + f + "\n```", "C I look.\n" + f_parts);
        is("I look.\n```JSON\n" + f + "\n```\n \n", "C I look.\n" + f_parts);
        is("```tool_call\n" + g + "```", g_parts);
        is("``` " + g + "\n", g_parts);
        is("I look.\n" + g + "\n", "C I look.\n" + g_parts);
        is("See ```json\n" + g + "\n```", "C See\n" + g_parts);
        is("A\n```\n" + g + "\n" + g + "\n```\n", "C A\n" + g_parts + "\nF 1 g\nA 1 {}\nE 1 valid");
        is("A\n```json\n" + g + "\n```\n\n```json\n" + g + "\n```", "C A\n" + g_parts + "\nF 1 g\nA 1 {}\nE 1 valid");
        is(g + "\n" + g, g_parts + "\nF 1 g\nA 1 {}\nE 1 valid");
        is("So:\n```python\nx = 1\n```\n```json\n" + g + "\n```", "C So:\n```python\nx = 1\n```\n" + g_parts);
        is("A\n<tool_call>" + g + "</tool_call>\n```json\n" + g + "\n```", "C A\n" + g_parts + "\nF 1 g\nA 1 {}\nE 1 valid");
        const std::string tagged = "<tool_call>\n" + g + "\n</tool_call>";
        is("A\n```xml\n" + tagged + "\n```", "C A\n" + g_parts);
        is("```\n" + tagged + "\n" + tagged + "\n```\nB", g_parts + "\nF 1 g\nA 1 {}\nE 1 valid\nC \nB");
        is("```xml\n" + tagged + "B", g_parts + "\nC B");
        is("A\n```xml\n<tools>\n```", "C A\n```xml\n<tools>\n```");
        is("```xml\n<tool_call>x</tool_call>\n```", "C ```xml\nx\n```");
        is("A\n<tools>\n" + g + "\n" + g + "\n</tools>", "C A\n" + g_parts + "\nF 1 g\nA 1 {}\nE 1 valid");
        is("```xml\n<tools>\n" + g + "\n</tools>\n```", g_parts);
        is(g + "\n</tool_call>", g_parts);
        is("A </tool_call>\nB </tool_cal", "C A\nB </tool_cal");
        is("A\n```json\n[" + g + "]\n```", "C A\n" + g_parts);
        is("[" + g + ",\n " + f + "]\n", g_parts + "\nF 1 f\nA 1 {\"text\": \"```\"}\nE 1 valid");
        is("A\n[ " + g + " ]", "C A\n" + g_parts);
        const std::string of_openai = R"({"id": "c", "type": "function", "function": {"name": "g", "arguments": {}}})";
        is(of_openai, g_parts);
        is("A\n" + of_openai, "C A\n" + g_parts);
        is("[" + of_openai + ", " + g + "]", g_parts + "\nF 1 g\nA 1 {}\nE 1 valid");
        is(R"({"function": {"arguments": "{\"n\": 1}", "name": "f"}, "type": "function"})", "F 0 f\nA 0 {\"n\": 1}\nE 0 valid");
        is("<tool_call>\n" + of_openai + "\n</tool_call>", g_parts);
        for (const std::string& text : std::vector<std::string>{
                 "[]", "[" + g + ", 1]", "[[" + g + "]]", "[" + g + "] " + g, "[" + g + "] and", "[1, " + g + "]", "[a](b)\n[c]",
                 "[" + g + ", {\"name\": \"h\", \"arguments\": {}}]", R"({"function": {"name": "h", "arguments": {}}})",
                 R"({"function": "g", "arguments": {}})", R"({"function": {"function": {"name": "g", "arguments": {}}}})"})
            is(text, "C " + text);
        const std::string begun = R"({"name": "f", "arguments": {"n": 1)";
        is("[" + g + ", " + begun, g_parts + "\nF 1 f\nA 1 {\"n\": 1\nE 1 invalid " + begun, true);
        is("I look.\n```json\n" + begun, "C I look.\nF 0 f\nA 0 {\"n\": 1\nE 0 invalid \n```json\n" + begun, true);
        is("```json\n" + g + "\n" + begun, g_parts + "\nF 1 f\nA 1 {\"n\": 1\nE 1 invalid " + begun, true);
        for (const std::string& text : std::vector<std::string>{
                 "A\n```json\n{\"name\": \"h\", \"arguments\": {}}\n```\nB", "A\n```json\n{\"name\": \"g\"}\n```",
                 "A\n```json\n" + g + ", x\n```", "A\n```json\n" + g + "\n{\"a\": 1}\n```", std::string("A\n`"), "A `` B",
                 "A ```x\n{\n```\nB", "A\n```json\n" + g + "\n```\nB", "A\n```json\n" + g + "\n```\n```sh\nls\n```",
                 std::string("A\n```json"), std::string("A\n{"), std::string("`g`\n{\"a\": 1}\n"),
                 "A\n[\n" + g.substr(0, g.size() - 1) + "\n]"})
            is(text, "C " + text);
    }
    for (const std::string& text : std::vector<std::string>{"A\n" + g + "\nB", g + "\n\nB"})
        check(text, "C " + text, false, types, UntaggedCalls::alone);
    const std::string fenced = "A\n```json\n" + g + "\n```";
    check(fenced, "C " + fenced, false, types);
}

TEST_CASE("text and thinking without calls") {
    check("", "");
    check("Hello.", "C Hello.");
    check(" a <b \n\n", "C  a <b \n\n");
    check("<think>\nhm\n</think>\n\nYes.", "R hm\nC Yes.");
    check("hm\n\nhm\n</think>\n\nYes.", "R hm\n\nhm\nC Yes.", true);
    check("\n<think>hm", "R hm");
    check("<think>a</thin", "R a</thin");
    check("<think>\n\n</think>\n\n", "");
    check("<thin", "C <thin");
    check("no <think>x</think>", "C no <think>x</think>");
    check("<think><tool_call>{</think>b", "R <tool_call>{\nC b");
}

TEST_CASE("calls as JSON, several, with text before, between and after") {
    check("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, {\"y\": \"}\\\"\"}]}}\n</tool_call>",
          "F 0 f\nA 0 {\"x\": [1, {\"y\": \"}\\\"\"}]}\nE 0 valid");
    check("I look.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": "
          "{\"a\": 1}}\n"
          "</tool_call> done\n",
          "C I look.\nF 0 f\nA 0 {}\nE 0 valid\nF 1 g\nA 1 {\"a\": 1}\nE 1 valid\nC  done\n");
    check("<think>x</think><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "R x\nF 0 f\nA 0 {}\nE 0 valid");
    // A tag within a string is text; a name has escapes.
    check("<tool_call>{\"name\": \"\\u00e9\", \"arguments\": {\"x\": \"</tool_call>\"}}</tool_call>",
          "F 0 é\nA 0 {\"x\": \"</tool_call>\"}\nE 0 valid");
    // Another order, no arguments, arguments as a text.
    check("<tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"f\"}</tool_call>", "F 0 f\nA 0 {\"x\": 1}\nE 0 valid");
    check("<tool_call>{\"name\": \"f\"}</tool_call>", "F 0 f\nA 0 {}\nE 0 valid");
    check("<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call>", "F 0 f\nA 0 {\"x\": 1}\nE 0 valid");
    // The answer ends before the tag does.
    check("<tool_call>{\"name\": \"f\", \"arguments\": {}}", "F 0 f\nA 0 {}\nE 0 valid");
}

TEST_CASE("what only looks like a call is content, and a broken one is returned whole") {
    for (const char* text : {"<tool_call>", "<tool_call>\n", "<tool_call>hello</tool_call>",
                             "<tool_call>{\"name\": 1}</tool_call>", "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
                             "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>", "<tool_call>{\"name\": \"f\", \"arg",
                             "<tool_call>[]</tool_call>", "<tool_call><function=", "<tool_call><function=>x</tool_call>",
                             "<tool_call>{\"name\": \"f\", \"name\": \"g\"}</tool_call>"})
        check(text, "C " + std::string(text));
    check("a <tool_call>x</tool_call> b", "C a <tool_call>x</tool_call> b");
    check("<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1",
          "F 0 f\nA 0 {\"x\": 1\nE 0 invalid <tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1");
    check("<tool_call>{\"name\": \"f\", \"arguments\": {\"x\" 1}}</tool_call>",
          "F 0 f\nA 0 {\"x\" 1}\nE 0 invalid <tool_call>{\"name\": \"f\", \"arguments\": {\"x\" 1}}</tool_call>");
    check("<tool_call>{\"name\": \"f\", \"arguments\": {}, oops</tool_call>",
          "F 0 f\nA 0 {}\nE 0 invalid <tool_call>{\"name\": \"f\", \"arguments\": {}, oops</tool_call>");
    const ParsedAnswer answer = parse_answer("a <tool_call>{\"name\": \"f\", \"arguments\": {\"x\" 1}}</tool_call>");
    CHECK(answer.calls.empty());
    CHECK(answer.content == "a <tool_call>{\"name\": \"f\", \"arguments\": {\"x\" 1}}</tool_call>");
}

TEST_CASE("calls as XML: types by the tool's schema") {
    const ToolTypes types(Json::parse(tools));
    check("<tool_call>\n<function=f>\n<parameter=text>\ntwo\n\"lines\"\n</parameter>\n<parameter=n>\n42\n</parameter>\n"
          "<parameter=on>\nTrue\n</parameter>\n<parameter=list>\n[1, \"a\"]\n</parameter>\n</function>\n</tool_call>",
          "F 0 f\nA 0 {\"text\": \"two\\n\\\"lines\\\"\", \"n\": 42, \"on\": true, \"list\": [1, \"a\"]}\nE 0 valid", false,
          types);
    check("<tool_call><function=f><parameter=text>42</parameter></function></tool_call>",
          "F 0 f\nA 0 {\"text\": \"42\"}\nE 0 valid", false, types);
    check("<tool_call><function=f><parameter=maybe>null</parameter><parameter=any>x</parameter><parameter=kind>1</parameter>"
          "<parameter=other>1</parameter></function></tool_call>",
          "F 0 f\nA 0 {\"maybe\": null, \"any\": \"x\", \"kind\": \"1\", \"other\": \"1\"}\nE 0 valid", false, types);
    check("<tool_call><function=f><parameter=n>not a number</parameter></function></tool_call>",
          "F 0 f\nA 0 {\"n\": \"not a number\"}\nE 0 valid", false, types);
    check("<tool_call>\n<function=g>\n</function>\n</tool_call>\n<tool_call><function=f></function></tool_call>",
          "F 0 g\nA 0 {}\nE 0 valid\nF 1 f\nA 1 {}\nE 1 valid", false, types);
    // Tags and newlines within a text; the answer ends before the last tag.
    check("<tool_call><function=f><parameter=text>\n\n<a></b>\n\n</parameter></function>",
          "F 0 f\nA 0 {\"text\": \"\\n<a></b>\\n\"}\nE 0 valid", false, types);
    check("<tool_call><function=f>oops</tool_call>b", "F 0 f\nA 0 {\nE 0 invalid <tool_call><function=f>oops</tool_call>\nC b",
          false, types);
    check("<tool_call><function=f><parameter=text>a",
          "F 0 f\nA 0 {\"text\": \"a\nE 0 invalid <tool_call><function=f><parameter=text>a", false, types);
}

TEST_CASE("calls as XML whose <tool_call> is missing name a tool") {
    const ToolTypes types(Json::parse(tools));
    const std::string call = "<function=f>\n<parameter=n>\n42\n</parameter>\n</function>",
                      is_call = "F 0 f\nA 0 {\"n\": 42}\nE 0 valid";
    for (const auto untagged : {UntaggedCalls::none, UntaggedCalls::alone, UntaggedCalls::several}) {
        check(call, is_call, false, types, untagged);
        check(call + "\n</tool_call>", is_call, false, types, untagged);
        check("I look.\n\n" + call + "\n", "C I look.\n" + is_call, false, types, untagged);
        check("I look: " + call + "\n</tool_call>\nDone.", "C I look:\n" + is_call + "\nC \nDone.", false, types, untagged);
        check(call + "\n" + call, is_call + "\nF 1 f\nA 1 {\"n\": 42}\nE 1 valid", false, types, untagged);
        check(call + "\n<tool_call>\n" + call + "\n</tool_call>", is_call + "\nF 1 f\nA 1 {\"n\": 42}\nE 1 valid", false, types,
              untagged);
        check("Thoughts " + call + "</tool_call>", "R Thoughts \n" + is_call, true, types, untagged);
        check("<function=f><parameter=text>a", "F 0 f\nA 0 {\"text\": \"a\nE 0 invalid <function=f><parameter=text>a", false,
              types, untagged, true);
        check("<function=f>oops</function>b", "F 0 f\nA 0 {\nE 0 invalid <function=f>oops</function>\nC b", false, types,
              untagged);
        for (const char* other : {"<function=h>\n</function>", "<function f>", "a <function=", "a <function=ff>b"})
            check(other, std::string("C ") + other, false, types, untagged);
    }
    check("```xml\n" + call + "\n```", is_call, false, types, UntaggedCalls::alone);
    check(call, "C " + call);
}

TEST_CASE("a call of a known tool ends the thinking, and a </think> behind it is nothing") {
    const ToolTypes types(Json::parse(tools));
    const std::string call = "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>";
    const auto in = [&](const std::string& text, const std::string& wanted) { check(text, wanted, true, types); };
    in("hm\n\n" + call, "R hm\nF 0 f\nA 0 {\"n\": 1}\nE 0 valid");
    in(call, "F 0 f\nA 0 {\"n\": 1}\nE 0 valid");
    in("hm\n" + call + "\n</think>\n\nDone", "R hm\nF 0 f\nA 0 {\"n\": 1}\nE 0 valid\nC Done");
    in("hm " + call + "\n" + call + "</think>", "R hm \nF 0 f\nA 0 {\"n\": 1}\nE 0 valid\nF 1 f\nA 1 {\"n\": 1}\nE 1 valid");
    in("hm\n" + call + " and </think>", "R hm\nF 0 f\nA 0 {\"n\": 1}\nE 0 valid\nC  and </think>");
    in("<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>", "F 0 g\nA 0 {}\nE 0 valid");
    check("<think>\nhm\n" + call, "R hm\nF 0 f\nA 0 {\"n\": 1}\nE 0 valid", false, types);
    in("hm</think>\n\nI look.\n\n" + call, "R hm\nC I look.\nF 0 f\nA 0 {\"n\": 1}\nE 0 valid");
    // Text that only speaks of calls is thinking.
    for (const std::string thought : {"a <tool_call> b", "<tool_call>\n<function=other>\n</function>", "<tool_call>\n<function=",
                                      "<tool_call>\n{\"name\": \"other\", ", "<tool_call>", "<tool_call>{\"x\"", "\n<tool"}) {
        in("hm\n" + thought + "</think>\n\nyes", "R hm\n" + thought + "\nC yes");
        in("hm\n" + thought, "R hm\n" + thought);
    }
    check(call + "</think>", "R " + call, true); // no tools were given
}

TEST_CASE("an answer with XML calls that is cut off anywhere has the beginnings of its parts") {
    const ToolTypes types(Json::parse(tools));
    const std::string call = "<tool_call>\n<function=f>\n<parameter=text>\na\nb\n</parameter>\n<parameter=n>\n1\n</parameter>\n"
                             "</function>\n</tool_call>",
                      json = "{\"text\": \"a\\nb\", \"n\": 1}";
    for (const std::string before : {"Hm\n</think>\n\nI look.\n\n", "Hm\n"}) {
        const std::string whole = before + call + "\n" + call;
        for (size_t length = 0; length <= whole.size(); ++length) {
            AnswerParser parser(true, types);
            std::vector<AnswerPart> parts;
            const auto take = [&](std::vector<AnswerPart> more) { parts.insert(parts.end(), more.begin(), more.end()); };
            for (size_t i = 0; i < length; ++i) take(parser.push(whole.substr(i, 1)));
            take(parser.finish(true));
            std::string reasoning, content;
            std::vector<std::string> arguments;
            for (const AnswerPart& part : parts) {
                if (part.kind == Kind::reasoning) reasoning += part.text;
                if (part.kind == Kind::content) content += part.text;
                if (part.kind == Kind::call_begin) CHECK(part.text == "f");
                if (part.kind == Kind::call_begin) arguments.emplace_back();
                if (part.kind == Kind::arguments) arguments.back() += part.text;
            }
            CAPTURE(whole.substr(0, length));
            CHECK(("Hm\n" + std::string(before.size() > 3 ? "</think>" : "<tool_call>")).starts_with(reasoning));
            const bool begins =
                std::ranges::any_of(std::array{"I look.\n\n<tool_call>", "I look.\n<tool_call>", "\n<tool_call>"},
                                    [&](const char* text) { return std::string_view(text).starts_with(content); });
            CHECK(begins);
            for (const std::string& each : arguments) CHECK(json.starts_with(each));
            const size_t head = call.find('>', call.find("<function=")) + 1, first = before.size() + head;
            CHECK(arguments.size() == (length < first ? 0u : length < first + call.size() + 1 ? 1u : 2u));
        }
    }
}

TEST_CASE("valid calls have valid arguments, and no text is lost, for random mixtures") {
    const ToolTypes types(Json::parse(tools));
    constexpr std::string_view pieces[] = {"<tool_call>",
                                           "</tool_call>",
                                           "{\"name\": \"f\", \"arguments\": ",
                                           "{\"x\": \"<\"}",
                                           "}",
                                           "<function=f>",
                                           "<parameter=n>",
                                           "<parameter=text>",
                                           "</parameter>",
                                           "</function>",
                                           "\n",
                                           "é",
                                           "7",
                                           "<think>",
                                           "</think>",
                                           "\\\""};
    std::mt19937 random(5);
    for (int round = 0; round < 4000; ++round) {
        std::string text;
        for (uint32_t i = random() % 12; i-- > 0;) text += pieces[random() % std::size(pieces)];
        CAPTURE(text);
        const std::string whole = parse(text, text.size() + 1, false, types);
        CHECK(parse(text, 1, false, types) == whole);
        CHECK(parse(text, 1, true, types) == parse(text, text.size() + 1, true, types));
        AnswerParser parser(false, types);
        std::vector<AnswerPart> parts = parser.push(text);
        for (AnswerPart& part : parser.finish()) parts.push_back(part);
        std::string arguments;
        size_t kept = 0;
        for (const AnswerPart& part : parts) {
            if (part.kind == Kind::call_begin) arguments.clear();
            if (part.kind == Kind::arguments) arguments += part.text;
            if (part.kind == Kind::call_end && part.valid) CHECK(Json::parse(arguments).is_object());
            if (part.kind == Kind::reasoning || part.kind == Kind::content || part.kind == Kind::call_end)
                for (const char c : part.text) kept += c != '\n' && c != ' ';
        }
        size_t given = 0;
        for (const char c : text) given += c != '\n' && c != ' ';
        for (const std::string_view tag : pieces) // tags are not kept
            for (size_t at = text.find(tag); tag.starts_with('<') && tag != "<think>" && tag != "</think>" && at != text.npos;
                 at = text.find(tag, at + 1))
                given -= tag.size();
        if (text.rfind("<tool_call>") != text.npos && text.rfind("<tool_call>") + 1 > text.rfind("</tool_call>") + 1) continue;
        const auto tag = [&](std::string_view name) { return text.find(name) != text.npos ? name.size() : 0; };
        CHECK(kept + tag("<think>") + tag("</think>") >= given);
    }
}
