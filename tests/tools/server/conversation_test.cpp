// A conversation that is sent through all three APIs is one prompt; what only its history holds is never refused.
#include "tests/tools/server/refused.h"
#include "tests/tools/server/scripted_server.h"
#include "tools/server/anthropic/messages.h"
#include "tools/server/openai/messages.h"
#include "tools/server/openai/responses.h"
#include "tools/server/prompt.h"

using namespace tq;
using namespace tq::server;

namespace {

struct Forms {
    const char *what, *chat, *responses, *messages; // lists of messages or items; of the last also "system" before a "|"
    std::vector<std::string> shown;                 // of the prompt
};

Json tools_of(const char* form) {
    const Json parameters = {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}};
    if (form == std::string("chat"))
        return {{{"type", "function"}, {"function", {{"name", "weather"}, {"parameters", parameters}}}}};
    if (form == std::string("responses")) return {{{"type", "function"}, {"name", "weather"}, {"parameters", parameters}}};
    return {{{"name", "weather"}, {"input_schema", parameters}}};
}

std::string prompt_of(ScriptedServer& server, ChatTask task) {
    task.think = false;
    return server.model.tokenizer.decode(chat_prompt(server.service, task).ids, false);
}

std::string chat_prompt_of(ScriptedServer& server, const std::string& list) {
    return prompt_of(server, read_chat_task(server.service, {{"messages", Json::parse(list)}, {"tools", tools_of("chat")}}));
}

std::string responses_prompt_of(ScriptedServer& server, const std::string& list) {
    const Json body = {{"input", Json::parse(list)}, {"tools", tools_of("responses")}};
    return prompt_of(server, responses_api::read(body, Limits()).task);
}

std::string messages_prompt_of(ScriptedServer& server, const std::string& given) {
    const size_t bar = given.find('|');
    Json body = {{"messages", Json::parse(given.substr(bar == given.npos ? 0 : bar + 1))}, {"tools", tools_of("messages")}};
    if (bar != given.npos) body["system"] = Json::parse(given.substr(0, bar));
    return prompt_of(server, messages_api::read_prompt(body, Limits()).task);
}

const Forms all_forms[] = {
    {"system texts at the beginning are one message",
     R"([{"role": "system", "content": "A"}, {"role": "developer", "content": [{"type": "text", "text": "B"}, {"type": "text", "text": "C"}]},
        {"role": "user", "content": "Hello"}])",
     R"([{"role": "system", "content": "A"}, {"role": "developer", "content": [{"type": "input_text", "text": "B"},
        {"type": "input_text", "text": "C"}]}, {"role": "user", "content": "Hello"}])",
     R"([{"type": "text", "text": "A"}, {"type": "text", "text": "B"}, {"type": "text", "text": "C"}]|[{"role": "user", "content": "Hello"}])",
     {"system\nA\n\nB\n\nC"}},
    {"developer messages stay where they stand",
     R"([{"role": "system", "content": "A"}, {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"},
        {"role": "developer", "content": "Note"}, {"role": "user", "content": "More"}])",
     R"([{"role": "system", "content": "A"}, {"role": "user", "content": "Hello"}, {"role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
        {"role": "developer", "content": "Note"}, {"role": "user", "content": "More"}])",
     R"("A"|[{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"},
        {"role": "system", "content": "Note"}, {"role": "user", "content": "More"}])",
     {"Hi<|im_end|>\n<|im_start|>system\nNote<|im_end|>\n<|im_start|>user\nMore"}},
    {"parts of a user's message, images among them",
     R"([{"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "text", "text": "this"}]}, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": [{"type": "file", "file": {}}]}])",
     R"([{"role": "user", "content": [{"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
        {"type": "input_text", "text": "this"}]}, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}])",
     R"([{"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image", "source": {"type": "base64", "data": "AA=="}},
        {"type": "text", "text": "this"}]}, {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": [{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}}]}])",
     {"See\n[image is left out: the model reads only text]\nthis", "\n[document is left out: the model reads only text]"}},
    {"calls and their results, with an image and half a character",
     R"([{"role": "user", "content": "Hello \ud83d"}, {"role": "assistant", "content": "Let me see", "reasoning_content": "Hm",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "Sun\ude00ny"}, {"type": "image_url", "image_url": {}}]}])",
     R"([{"role": "user", "content": "Hello \ud83d"}, {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see"}]},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{\"city\": \"Oslo\"}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "Sun\ude00ny"}, {"type": "input_image"}]}])",
     R"([{"role": "user", "content": "Hello \ud83d"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": ""},
        {"type": "text", "text": "Let me see"}, {"type": "tool_use", "id": "c", "name": "weather", "input": {"city": "Oslo"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "Sun\ude00ny"},
        {"type": "image", "source": {}}]}]}])",
     {"Hello \xEF\xBF\xBD",
      "<tool_response>\nSun\xEF\xBF\xBDny\n[image is left out: the model reads only text]\n</tool_response>"}},
    {"arguments that were cut off",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function",
        "function": {"name": "weather", "arguments": "{\"city\":"}}]}, {"role": "tool", "tool_call_id": "c", "content": "cut off"}])",
     R"([{"role": "user", "content": "Hello"}, {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{\"city\":"},
        {"type": "function_call_output", "call_id": "c", "output": "cut off"}])",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "weather",
        "input": "{\"city\":"}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "cut off"}]}])",
     {"{\"city\":"}},
    {"arguments that are missing, or no object",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "tool_calls": [{"function": {"name": "weather"}},
        {"function": {"name": "weather", "arguments": ["a"]}}]}, {"role": "tool", "content": null}])",
     R"([{"role": "user", "content": "Hello"}, {"type": "function_call", "name": "weather"},
        {"type": "function_call", "name": "weather", "arguments": ["a"]}, {"type": "function_call_output"}])",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": [{"type": "tool_use", "name": "weather"},
        {"type": "tool_use", "name": "weather", "input": ["a"]}]}, {"role": "user", "content": [{"type": "tool_result"}]}])",
     {"[\"a\"]"}},
    {"calls without a name, and results that are no texts",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "tool_calls": [{"function": {"name": "", "arguments": "{}"}}, {"id": "d"},
        {"id": "c", "function": {"name": "weather", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "c", "content": {"sun": true}},
        {"role": "tool"}, {"role": "tool", "content": [{"stdout": "a"}]}])",
     R"([{"role": "user", "content": "Hello"}, {"type": "function_call", "name": "", "arguments": "{}"}, {"type": "function_call"},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": {"sun": true}}, {"type": "function_call_output"},
        {"type": "shell_call", "action": {}}, {"type": "shell_call_output", "output": [{"stdout": "a"}]}])",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": [{"type": "tool_use", "name": "", "input": {}}, {"type": "tool_use"},
        {"type": "tool_use", "id": "c", "name": "weather", "input": {}}]}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c", "content": {"sun": true}}, {"type": "tool_result"},
        {"type": "tool_result", "content": [{"stdout": "a"}]}]}])",
     {"{\"sun\":true}", "[{\"stdout\":\"a\"}]"}},
    {"files of text, with their names",
     R"([{"role": "user", "content": [{"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,R3LDvMOfZQ=="}},
        {"type": "file", "file": {"filename": "b.pdf", "file_data": "data:application/pdf;base64,AA=="}}]}])",
     R"([{"role": "user", "content": [{"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;charset=utf-8;base64,R3LDvMOfZQ"},
        {"type": "input_file", "filename": "b.pdf", "file_data": "data:application/pdf;base64,AA=="}]}])",
     R"([{"role": "user", "content": [{"type": "document", "title": "a.txt", "source": {"type": "base64", "media_type": "text/plain",
        "data": "R3LDvM\nOfZQ=="}}, {"type": "document", "title": "b.pdf", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}}]}])",
     {"user\na.txt\nGr\u00fc\u00dfe\nb.pdf\n[document is left out: the model reads only text]<|im_end|>"}},
    {"calls of other servers' tools, and their results",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Let me see", "tool_calls": [{"id": "s", "type": "function",
        "function": {"name": "fetch", "arguments": {"q": "sky"}}}]}, {"role": "tool", "tool_call_id": "s", "content": "https://a.example\nGreen"},
        {"role": "assistant", "content": "It is green"}, {"role": "user", "content": "Sure?"}])",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Let me see"}, {"type": "mcp_call", "id": "s", "name": "fetch",
        "server_label": "m", "arguments": "{\"q\": \"sky\"}", "output": "https://a.example\nGreen", "error": null},
        {"role": "assistant", "content": "It is green"}, {"role": "user", "content": "Sure?"}])",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": [{"type": "text", "text": "Let me see"},
        {"type": "server_tool_use", "id": "s", "name": "fetch", "input": {"q": "sky"}}, {"type": "web_fetch_tool_result", "tool_use_id": "s",
        "content": {"type": "web_fetch_result", "url": "https://a.example", "content": {"type": "document", "source": {"type": "text",
        "media_type": "text/plain", "data": "Green"}}}}, {"type": "text", "text": "It is green"}]}, {"role": "user", "content": "Sure?"}])",
     {"fetch", "sky", "<tool_response>\nhttps://a.example\nGreen\n</tool_response>"}},
    {"a refusal",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": null, "refusal": "I can't"}, {"role": "user", "content": "Why?"}])",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": [{"type": "refusal", "refusal": "I can't"}]},
        {"role": "user", "content": "Why?"}])",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "I can't"}, {"role": "user", "content": "Why?"}])",
     {"I can't<|im_end|>"}},
    {"ids and texts of the history that have another type",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "tool_calls": [{"id": 5, "function": {"name": "weather"}}, 7, null]},
        {"role": "tool", "tool_call_id": 5, "content": "Sunny"}, {"role": "assistant", "content": [{"type": "text", "text": {"value": "Fine"}}],
        "tool_calls": {}, "function_call": []}, {"role": "user", "content": "More"}])",
     R"([{"role": "user", "content": "Hello"}, {"type": "function_call", "call_id": 5, "name": "weather"},
        {"type": "function_call_output", "call_id": 5, "output": "Sunny"},
        {"role": "assistant", "content": [{"type": "output_text", "text": {"value": "Fine"}}]}, {"role": "user", "content": "More"}])",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": [{"type": "tool_use", "id": 5, "name": "weather"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": 5, "is_error": 0, "content": "Sunny"}]},
        {"role": "assistant", "content": "Fine"}, {"role": "user", "content": "More"}])",
     {"Sunny", "Fine"}},
    {"texts of the history that are no texts",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "count"}}]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": 42}]}, {"role": "assistant",
        "content": [{"type": "text", "text": 42}]}, {"role": "user", "content": "More"}])",
     R"([{"role": "user", "content": "Hello"}, {"type": "reasoning", "encrypted_content": 5, "content": [7, null]},
        {"type": "function_call", "call_id": "c", "name": "count"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "text", "text": 42}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": 42}]}, {"role": "user", "content": "More"}])",
     R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "count"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": 42}]}]},
        {"role": "assistant", "content": [{"type": "text", "text": 42}]}, {"role": "user", "content": "More"}])",
     {"<tool_response>\n[{\"type\":\"text\",\"text\":42}]\n</tool_response>", "42<|im_end|>"}},
    {"the line that changes with every request, and what a router puts behind it",
     R"([{"role": "system", "content": "x-anthropic-billing-header: cc_version=2.1.3; cc_entrypoint=cli; cch=71fea; You are an agent.\nBe brief."},
        {"role": "user", "content": "Hello"}])",
     R"([{"role": "developer", "content": [{"type": "input_text", "text": "x-anthropic-billing-header: cc_version=2.1.4; cch=00000;\n"},
        {"type": "input_text", "text": "You are an agent.\nBe brief."}]}, {"role": "user", "content": "Hello"}])",
     R"("x-anthropic-billing-header: cc_version=2.1.3; cch=1a2b3; You are an agent.\nBe brief."|[{"role": "user", "content": "Hello"}])",
     {"system\nYou are an agent.\nBe brief."}},
};

} // namespace

TEST_CASE("the same conversation is the same prompt in all APIs") {
    for (const ChatVariant variant :
         {ChatVariant::instruct, ChatVariant::hybrid, ChatVariant::coder, ChatVariant::qwen35, ChatVariant::qwen38}) {
        ScriptedServer server("yes", variant);
        for (const Forms& forms : all_forms) {
            CAPTURE(forms.what);
            CAPTURE(int(variant));
            const auto body =
                [](const std::string& list) { // as it comes over HTTP: nlohmann's own parser refuses half a character
                    const Json parsed = parse_body("{\"list\": " + list + "}", Limits());
                    return dump_text(parsed.at("list"));
                };
            const std::string prompt = chat_prompt_of(server, body(forms.chat));
            CHECK(responses_prompt_of(server, body(forms.responses)) == prompt);
            const std::string messages = forms.messages;
            const size_t bar = messages.find('|');
            CHECK(messages_prompt_of(server, (bar == messages.npos ? "" : messages.substr(0, bar + 1)) +
                                                 body(messages.substr(bar + 1))) == prompt);
            for (std::string text : forms.shown) {
                const size_t later = text.find("<|im_start|>system\n");
                if (is_qwen35(variant) && later != text.npos) text.replace(later, 18, "<|im_start|>user");
                CAPTURE(text);
                CAPTURE(prompt);
                if (!has_xml_calls(variant) || !text.starts_with("system\n")) CHECK(prompt.find(text) != prompt.npos);
            }
        }
    }
}

TEST_CASE("the fields of the changing line end where they end, and nothing else is taken") {
    const std::string header = "x-anthropic-billing-header: cc_version=2.1.3.abc; cc_entrypoint=sdk-cli; cch=71fea;";
    const auto system = [](const std::string& text) {
        const Json read = read_messages(
            {{"messages", {{{"role", "system"}, {"content", text}}, {{"role", "user"}, {"content", "x"}}}}}, Limits());
        return read.at(0).at("role") == "system" ? read.at(0).at("content").get<std::string>() : "none";
    };
    CHECK(system(header) == "none");
    CHECK(system(header + "\n") == "none");
    for (const char* between : {"", " ", "\n", "\r\n", "\n\n"})
        CHECK(system(header + between + "a=b; You are X.") == "a=b; You are X.");
    for (const char* before : {"\n", " \r\n\n", "  "}) CHECK(system(before + header + "\nYou are X.") == "You are X.");
    CHECK(system("First.\n" + header + "\nYou are X.") == "First.\nYou are X.");
    CHECK(system("First.\n\n " + header + " You are X.\n" + header + "\nThird") == "First.\n\n You are X.\nThird");
    CHECK(system("\n" + header) == "none");
    CHECK(system("x-anthropic-billing-header: You are X") == "You are X");
    CHECK(system("The x-anthropic-billing-header: cch=1; is a header") == "The x-anthropic-billing-header: cch=1; is a header");
    CHECK(responses_api::read_items({{"instructions", header + " You are X"}, {"input", "x"}}, Limits()).at(0).at("content") ==
          "You are X");
}

TEST_CASE("documents and search results that are made of text are read") {
    ScriptedServer server("yes");
    const Json document = {{"type", "document"},
                           {"title", "Sky"},
                           {"source", {{"type", "text"}, {"media_type", "text/plain"}, {"data", "It is green."}}}};
    const Json parts = {{"type", "document"},
                        {"source", {{"type", "content"}, {"content", {{{"type", "text"}, {"text", "Inner"}}}}}}};
    const Json found = {{"type", "search_result"},
                        {"source", "https://a.example"},
                        {"title", "Page"},
                        {"content", {{{"type", "text"}, {"text", "The result"}}}}};
    const Json body = {
        {"messages",
         {{{"role", "user"}, {"content", {document, parts, found}}},
          {{"role", "assistant"}, {"content", {{{"type", "tool_use"}, {"id", "t"}, {"name", "f"}, {"input", Json::object()}}}}},
          {{"role", "user"}, {"content", {{{"type", "tool_result"}, {"tool_use_id", "t"}, {"content", {found, document}}}}}}}}};
    const std::string prompt = prompt_of(server, messages_api::read_prompt(body, Limits()).task);
    CHECK(prompt.find("user\nSky\nIt is green.\nInner\nPage\nhttps://a.example\nThe result<|im_end|>") != prompt.npos);
    CHECK(prompt.find("<tool_response>\nPage\nhttps://a.example\nThe result\nSky\nIt is green.\n</tool_response>") !=
          prompt.npos);
}

TEST_CASE("a document has its title, its context and its text, and what is no text is told") {
    ScriptedServer server("yes");
    const auto prompt = [&](const std::string& parts) {
        return messages_prompt_of(server,
                                  R"([{"role": "user", "content": [)" + parts + R"(, {"type": "text", "text": "End"}]}])");
    };
    const std::string from_text = prompt(
        R"({"type": "document", "title": "T", "context": "C", "source": {"type": "text", "media_type": "text/plain", "data": "D"}})");
    CHECK(from_text.find("user\nT\nC\nD\nEnd") != from_text.npos);
    const std::string from_pdf =
        prompt(R"({"type": "document", "title": "T", "context": "C", "source": {"type": "url", "url": "https://a.example"}})");
    CHECK(from_pdf.find("user\nT\nC\n[document is left out: the model reads only text]\nEnd") != from_pdf.npos);
    for (const char* odd :
         {R"({"type": "document", "context": 7, "source": {"type": "base64", "media_type": 7, "data": {}}})",
          R"({"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": "?"}})", R"({"type": "file"})",
          R"({"type": "input_file", "file_data": 7, "filename": []})", R"({"type": "file", "file": "data:,a"})"}) {
        CAPTURE(odd);
        CHECK(prompt(odd).find("user\n[document is left out: the model reads only text]\nEnd") != std::string::npos);
    }
}

TEST_CASE("a file is a text if its type says so, or its bytes do") {
    ScriptedServer server("yes");
    const auto prompt = [&](const char* type, const char* base64) {
        const Json part = {{"type", "document"}, {"source", {{"type", "base64"}, {"media_type", type}, {"data", base64}}}};
        return messages_prompt_of(server, Json::array({{{"role", "user"}, {"content", {part}}}}).dump());
    };
    for (const char* type : {"application/yaml", "application/javascript", "application/sql", "application/x-sh", "image/svg+xml",
                             "application/json; charset=utf-8", "application/octet-stream", ""})
        CHECK(prompt(type, "YTogMQ==").find("user\na: 1<|im_end|>") != std::string::npos);
    CHECK(prompt("text/plain", "YfA=").find("user\na\xEF\xBF\xBD<|im_end|>") != std::string::npos);
    for (const auto& [type, base64] :
         {std::pair("application/pdf", "YTogMQ=="), {"application/zip", "UEsDBA=="}, {"image/png", "iVBORw=="}})
        CHECK(prompt(type, base64).find("[document is left out") != std::string::npos);
}

TEST_CASE("results of other servers' tools are read wherever their text is, and a call without one is left out") {
    const auto answer = [](const Json& content) {
        const Json body = {{"messages", {{{"role", "user"}, {"content", "x"}}, {{"role", "assistant"}, {"content", content}}}}};
        return messages_api::read_prompt(body, Limits()).task.messages;
    };
    const auto result_of = [&](const char* type, const Json& content) {
        const Json turns = answer({{{"type", "mcp_tool_use"}, {"id", "s"}, {"name", "f"}, {"input", {{"a", 1}}}},
                                   {{"type", type}, {"tool_use_id", "s"}, {"content", content}}});
        if (turns.size() < 3) return std::string("none");
        CHECK(turns.at(1).at("tool_calls").at(0).at("function") == Json{{"name", "f"}, {"arguments", {{"a", 1}}}});
        CHECK(turns.at(2).at("role") == "tool");
        return turns.at(2).at("content").get<std::string>();
    };
    CHECK(result_of("mcp_tool_result", {{{"type", "text"}, {"text", "R"}}, {{"type", "text"}, {"text", "S"}}}) == "R\nS");
    CHECK(result_of("mcp_tool_result", "R") == "R");
    CHECK(result_of("web_search_tool_result",
                    {{{"type", "web_search_result"}, {"title", "T"}, {"url", "u"}, {"encrypted_content", "E"}}}) == "T\nu");
    CHECK(result_of("bash_code_execution_tool_result",
                    {{"type", "bash_code_execution_result"}, {"stdout", "out"}, {"stderr", ""}, {"return_code", 0}}) == "out");
    CHECK(result_of("web_search_tool_result", Json::array()) == "none");
    CHECK(result_of("web_search_tool_result", nullptr) == "none");
    const auto items = [](const Json& list) { return responses_api::read_items({{"input", list}}, Limits()); };
    const Json code = items(
        {{{"type", "code_interpreter_call"}, {"id", "c"}, {"code", "1+1"}, {"outputs", {{{"type", "logs"}, {"logs", "2"}}}}}});
    CHECK(code.at(0).at("tool_calls").at(0).at("function") ==
          Json{{"name", "code_interpreter"}, {"arguments", {{"code", "1+1"}}}});
    CHECK(code.at(1).at("content") == "2");
    const Json shell = items({{{"type", "local_shell_call"}, {"call_id", "l"}, {"action", {{"command", {"ls"}}}}},
                              {{"type", "local_shell_call_output"}, {"call_id", "l"}, {"output", "done"}}});
    CHECK(shell.at(0).at("tool_calls").at(0).at("function").at("name") == "local_shell");
    CHECK(shell.at(1) == Json{{"role", "tool"}, {"tool_call_id", "l"}, {"content", "done"}});
    const Json failed =
        items({{{"type", "mcp_call"}, {"id", "m"}, {"name", "q"}, {"arguments", "{}"}, {"error", "no such page"}}});
    CHECK(failed.at(1).at("content") == "no such page");
}

TEST_CASE("a conversation may have more messages than any context holds") {
    ScriptedServer server([](const std::string&) { return "yes"; }, ChatVariant::instruct, ScriptedServer::greedy(),
                          {.context_size = 65536});
    Json body = chat_body("Hello");
    for (int i = 0; i < 5000; ++i) body["messages"].push_back({{"role", i % 2 == 0 ? "assistant" : "user"}, {"content", "a"}});
    body["max_tokens"] = 1;
    CHECK(server.answer(chat_completions, body).at("usage").at("prompt_tokens") > 20000);
    CHECK(server.answer(messages, body).at("usage").at("output_tokens") == 1);
    body["input"] = body["messages"];
    CHECK(server.answer(response_input_tokens, body).at("input_tokens") > 20000);
}

TEST_CASE("items of the last answers may be referred to by their ids, by whom they were given") {
    ScriptedServer server("<think>\nHm\n</think>\n\nSunny", ChatVariant::hybrid);
    const Json question = {{"role", "user"}, {"content", "Weather?"}}, more = {{"role", "user"}, {"content", "Sure?"}};
    const Json first = server.answer(responses, {{"input", {question}}});
    Json input = {question}, sent = {question};
    for (const Json& item : first["output"]) {
        input.push_back({{"type", "item_reference"}, {"id", item["id"]}});
        sent.push_back(item);
    }
    REQUIRE(input.size() == 3);
    input.push_back(more), sent.push_back(more);
    const auto tokens = [&](const Json& items) {
        return server.answer(response_input_tokens, {{"input", items}})["input_tokens"];
    };
    CHECK(tokens(input) == tokens(sent));
    HttpRequest other{.body = Json{{"input", input}}.dump(), .tenant = "another"};
    CHECK(refused_field([&] { responses(server.service, other); }) == "input[1]");
    ItemMemory small(100);
    for (const char* id : {"a", "b", "c"}) small.put("t", {{"id", id}, {"text", std::string(30, 'x')}});
    CHECK(!small.find("t", "a"));
    CHECK(small.find("t", "c").value()["id"] == "c");
}

TEST_CASE("items of other servers' tools are left out of the history, and their texts are read") {
    const Json items = {{{"role", "user"}, {"content", "Hello"}},
                        {{"type", "web_search_call"}, {"id", "ws"}, {"status", "completed"}},
                        {{"type", "computer_call"}, {"id", "cc"}},
                        {{"type", "mcp_list_tools"}, {"tools", Json::array()}},
                        {{"type", "compaction"}, {"encrypted_content", "x"}},
                        {{"type", "local_shell_call_output"}, {"call_id", "l"}, {"output", "done"}},
                        {{"role", "user"}, {"content", "More"}}};
    const responses_api::Request read = responses_api::read({{"input", items}}, Limits());
    CHECK(read.task.messages == Json{{{"role", "user"}, {"content", "Hello"}},
                                     {{"role", "tool"}, {"tool_call_id", "l"}, {"content", "done"}},
                                     {{"role", "user"}, {"content", "More"}}});
    CHECK(read.task.ignored.count("items of the type computer_call") == 1);
}

TEST_CASE("older and custom forms of calls are read in chats") {
    const Json messages = {
        {{"role", "user"}, {"content", "Hello"}},
        {{"role", "assistant"}, {"content", nullptr}, {"function_call", {{"name", "f"}, {"arguments", "{\"x\": 1}"}}}},
        {{"role", "function"}, {"name", "f"}, {"content", "2"}},
        {{"role", "assistant"}, {"tool_calls", {{{"id", "c"}, {"type", "custom"}, {"custom", {{"name", "g"}, {"input", "y"}}}}}}},
        {{"role", "tool"}, {"tool_call_id", "c"}, {"content", "3"}}};
    const Json read = read_messages({{"messages", messages}}, Limits());
    CHECK(read.at(1).at("tool_calls").at(0).at("function") == Json{{"name", "f"}, {"arguments", "{\"x\": 1}"}});
    CHECK(read.at(2).at("role") == "tool");
    CHECK(read.at(3).at("tool_calls").at(0).at("function") == Json{{"name", "g"}, {"arguments", {{"input", "y"}}}});
}

TEST_CASE("what a server cut off itself can be sent back to it, in every API and form of calls") {
    for (const ChatVariant variant : {ChatVariant::instruct, ChatVariant::coder}) {
        ScriptedServer server("fine", variant);
        for (const Json& arguments : {Json("{\"city\": \"Os"), Json("null"), Json("[\"a\"]"), Json("not JSON"), Json(7),
                                      Json(nullptr), Json("{\"a\": \"\\ud83d\"}")}) {
            const Json call = {{"id", "1"}, {"type", "function"}, {"function", {{"name", "weather"}, {"arguments", arguments}}}};
            Json body = chat_body("Weather?", {{"tools", weather_tools()}});
            body["messages"].push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}});
            body["messages"].push_back({{"role", "tool"}, {"tool_call_id", "1"}, {"content", "arguments are cut off"}});
            CHECK(server.answer(chat_completions, body)["choices"][0]["message"]["content"] == "fine");
        }
    }
}

TEST_CASE("a conversation without a system prompt has the template's own, or the server's, by every API") {
    for (const bool is_set : {false, true})
        for (const std::string wanted : {"", "You are here."}) {
            ServiceOptions options = ScriptedServer::greedy();
            if (is_set) options.system = wanted;
            ScriptedServer server([](const std::string&) { return "ok"; }, ChatVariant::instruct, options);
            server.model.system = is_set ? "The file's." : wanted;
            const std::string turn = wanted.empty() ? "" : "<|im_start|>system\n" + wanted + "<|im_end|>\n";
            const Json messages = Json::array({{{"role", "user"}, {"content", "Hi"}}});
            const auto prompt = [&](const ChatTask& task) { return prompt_of(server, task); };
            const std::string rest = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
            CHECK(prompt(read_chat_task(server.service, {{"messages", messages}})) == turn + rest);
            CHECK(prompt(responses_api::read({{"input", "Hi"}}, Limits()).task) == turn + rest);
            CHECK(prompt(messages_api::read_prompt({{"messages", messages}}, Limits()).task) == turn + rest);
            Json own = messages;
            own.insert(own.begin(), Json{{"role", "system"}, {"content", "Mine."}});
            CHECK(prompt(read_chat_task(server.service, {{"messages", own}})) == "<|im_start|>system\nMine.<|im_end|>\n" + rest);
            const Json tools = weather_tools();
            const std::string with_tools = prompt(read_chat_task(server.service, {{"messages", messages}, {"tools", tools}}));
            CHECK(with_tools.starts_with("<|im_start|>system\n" + (wanted.empty() ? "" : wanted + "\n\n") + "# Tools"));
        }
}
